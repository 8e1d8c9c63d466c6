struct Params {
    n: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> params: Params;

fn apply(v: f32) -> u32 {
    return select(0u, 1u, v == 0.0);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        let v = x[i];
        y[i] = apply(v);
    }
}
