enable f16;

struct Params {
    n: u32,
    start: f32,
    step: f32,
}

@group(0) @binding(0) var<storage, read_write> y: array<f16>;
@group(0) @binding(1) var<uniform> params: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        y[i] = f16(params.start + f32(i) * params.step);
    }
}
