enable f16;

struct Params {
    rows: u32,
    width: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f16>;
@group(0) @binding(1) var<storage, read_write> y: array<f16>;
@group(0) @binding(2) var<uniform> params: Params;

var<workgroup> sum_lanes: array<f32, 256>;

fn workgroup_sum(lane: u32, value: f32) -> f32 {
    sum_lanes[lane] = value;
    workgroupBarrier();
    var part = 0.0;
    if (lane < 16u) {
        for (var k = 0u; k < 16u; k++) {
            part += sum_lanes[lane * 16u + k];
        }
    }
    workgroupBarrier();
    if (lane < 16u) {
        sum_lanes[lane] = part;
    }
    workgroupBarrier();
    var total = 0.0;
    for (var k = 0u; k < 16u; k++) {
        total += sum_lanes[k];
    }
    workgroupBarrier();
    return total;
}

var<workgroup> max_lanes: array<f32, 256>;

fn workgroup_max(lane: u32, value: f32) -> f32 {
    max_lanes[lane] = value;
    workgroupBarrier();
    var part = value;
    if (lane < 16u) {
        for (var k = 0u; k < 16u; k++) {
            part = max(part, max_lanes[lane * 16u + k]);
        }
    }
    workgroupBarrier();
    if (lane < 16u) {
        max_lanes[lane] = part;
    }
    workgroupBarrier();
    var total = max_lanes[0];
    for (var k = 1u; k < 16u; k++) {
        total = max(total, max_lanes[k]);
    }
    workgroupBarrier();
    return total;
}

fn is_nan(v: f32) -> bool {
    return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u;
}

fn exponential(v: f32) -> f32 {
    return select(exp(v), v, is_nan(v));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let row = group.x + group.y * groups.x;
    if (row >= params.rows) {
        return;
    }
    let start = row * params.width;
    var peak = -3.4028234e38;
    for (var i = lane; i < params.width; i += 256u) {
        peak = max(peak, f32(x[start + i]));
    }
    peak = workgroup_max(lane, peak);
    var sum = 0.0;
    for (var i = lane; i < params.width; i += 256u) {
        sum += exponential(f32(x[start + i]) - peak);
    }
    sum = workgroup_sum(lane, sum);
    for (var i = lane; i < params.width; i += 256u) {
        let v = exponential(f32(x[start + i]) - peak) / sum;
        y[start + i] = f16(v);
    }
}
