struct Params {
    n: u32,
    d0: u32, 
    a0: u32, 
    b0: u32, 
}

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

fn apply(left: f32, right: f32) -> f32 {
    return left + right;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        let i0 = i;
        let left = a[i0 * params.a0];
        let right = b[i0 * params.b0];
        y[i] = apply(left, right);
    }
}
