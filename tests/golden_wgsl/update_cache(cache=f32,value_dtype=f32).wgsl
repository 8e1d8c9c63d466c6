struct Params {
    n: u32,
    S: u32,
    C: u32,
    row: u32,
    position: u32,
}

@group(0) @binding(0) var<storage, read> value: array<f32>;
@group(0) @binding(1) var<storage, read_write> cache: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        let token = i / params.row;
        let slot = params.position + token % params.S;
        if (slot < params.C) {
            let at = (token / params.S * params.C + slot) * params.row + i % params.row;
            cache[at] = f32(value[i]);
        }
    }
}
