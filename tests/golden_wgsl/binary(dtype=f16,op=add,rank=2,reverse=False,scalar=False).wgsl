enable f16;

struct Params {
    n: u32,
    d0: u32, d1: u32, 
    a0: u32, a1: u32, 
    b0: u32, b1: u32, 
}

@group(0) @binding(0) var<storage, read> a: array<f16>;
@group(0) @binding(1) var<storage, read> b: array<f16>;
@group(0) @binding(2) var<storage, read_write> y: array<f16>;
@group(0) @binding(3) var<uniform> params: Params;

fn apply(left: f32, right: f32) -> f32 {
    return left + right;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        var rest_i = i;
        let i1 = rest_i % params.d1;
        rest_i /= params.d1;
        let i0 = rest_i;
        let left = f32(a[i0 * params.a0 + i1 * params.a1]);
        let right = f32(b[i0 * params.b0 + i1 * params.b1]);
        y[i] = f16(apply(left, right));
    }
}
