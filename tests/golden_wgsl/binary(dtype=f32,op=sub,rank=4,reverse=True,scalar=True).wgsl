struct Params {
    n: u32,
    d0: u32, d1: u32, d2: u32, d3: u32, 
    a0: u32, a1: u32, a2: u32, a3: u32, 
    scalar: f32,
}

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

fn apply(left: f32, right: f32) -> f32 {
    return left - right;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        var rest_i = i;
        let i3 = rest_i % params.d3;
        rest_i /= params.d3;
        let i2 = rest_i % params.d2;
        rest_i /= params.d2;
        let i1 = rest_i % params.d1;
        rest_i /= params.d1;
        let i0 = rest_i;
        let left = a[i0 * params.a0 + i1 * params.a1 + i2 * params.a2 + i3 * params.a3];
        let right = params.scalar;
        y[i] = apply(right, left);
    }
}
