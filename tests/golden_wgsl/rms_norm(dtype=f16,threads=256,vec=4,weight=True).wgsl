enable f16;

struct Params {
    rows: u32,
    units: u32,
    width: f32,
    eps: f32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<f16>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f16>>;
@group(0) @binding(3) var<uniform> params: Params;

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

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let row = group.x + group.y * groups.x;
    if (row >= params.rows) {
        return;
    }
    let start = row * params.units;
    var squares = 0.0;
    for (var i = lane; i < params.units; i += 256u) {
        let v = vec4<f32>(x[start + i]);
        squares += dot(v, v);
    }
    let scale = inverseSqrt(workgroup_sum(lane, squares) / params.width + params.eps);
    for (var i = lane; i < params.units; i += 256u) {
        let v = vec4<f32>(x[start + i]) * scale * weight[i];
        y[start + i] = vec4<f16>(v);
    }
}
