struct Params {
    rows: u32,
    keys: u32,
}

const LOWEST = -3.4028234e38;

@group(0) @binding(0) var<storage, read> scores: array<f32>;
@group(0) @binding(1) var<storage, read_write> weights: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

var<workgroup> sum_lanes: array<f32, 64>;

fn workgroup_sum(lane: u32, value: f32) -> f32 {
    sum_lanes[lane] = value;
    workgroupBarrier();
    var part = 0.0;
    if (lane < 8u) {
        for (var k = 0u; k < 8u; k++) {
            part += sum_lanes[lane * 8u + k];
        }
    }
    workgroupBarrier();
    if (lane < 8u) {
        sum_lanes[lane] = part;
    }
    workgroupBarrier();
    var total = 0.0;
    for (var k = 0u; k < 8u; k++) {
        total += sum_lanes[k];
    }
    workgroupBarrier();
    return total;
}

var<workgroup> max_lanes: array<f32, 64>;

fn workgroup_max(lane: u32, value: f32) -> f32 {
    max_lanes[lane] = value;
    workgroupBarrier();
    var part = value;
    if (lane < 8u) {
        for (var k = 0u; k < 8u; k++) {
            part = max(part, max_lanes[lane * 8u + k]);
        }
    }
    workgroupBarrier();
    if (lane < 8u) {
        max_lanes[lane] = part;
    }
    workgroupBarrier();
    var total = max_lanes[0];
    for (var k = 1u; k < 8u; k++) {
        total = max(total, max_lanes[k]);
    }
    workgroupBarrier();
    return total;
}

fn exponential(v: f32) -> f32 {
    let nan = (bitcast<u32>(v) & u32(0x7fffffffu)) > u32(0x7f800000u);
    return select(exp(v), v, nan);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let row = group.x + group.y * groups.x;
    if (row >= params.rows) {
        return;
    }
    let start = row * params.keys;
    var peak = LOWEST;
    for (var j = lane; j < params.keys; j += 64u) {
        peak = max(peak, scores[start + j]);
    }
    peak = workgroup_max(lane, peak);
    var total = 0.0;
    for (var j = lane; j < params.keys; j += 64u) {
        let s = scores[start + j];
        if (!(s == LOWEST)) {
            total += exponential(s - peak);
        }
    }
    total = workgroup_sum(lane, total);
    for (var j = lane; j < params.keys; j += 64u) {
        let s = scores[start + j];
        weights[start + j] = select(exponential(s - peak) / total, -1.0, s == LOWEST);
    }
}
