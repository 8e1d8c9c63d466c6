struct Params {
    n: u32,
    width: u32,
    kept0: u32, 
    o0: u32, 
    gone0: u32, 
    r0: u32, 
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

var<workgroup> parts: array<f32, 64>;

fn combine(a: f32, b: f32) -> f32 {
    return a + b;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let output = group.x + group.y * groups.x;
    if (output >= params.n) {
        return;
    }
    let o0 = output;
    let start = o0 * params.o0;
    var total = f32(0);
    for (var i = lane; i < params.width; i += 64u) {
        let r0 = i;
        let v = x[start + r0 * params.r0];
        total = combine(total, v);
    }
    parts[lane] = total;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half /= 2u) {
        if (lane < half) {
            parts[lane] = combine(parts[lane], parts[lane + half]);
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
        y[output] = parts[0];
    }
}
