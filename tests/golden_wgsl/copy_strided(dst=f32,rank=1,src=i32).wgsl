struct Params {
    n: u32,
    x_start: u32,
    y_start: u32,
    d0: u32, 
    x0: u32, 
    y0: u32, 
}

@group(0) @binding(0) var<storage, read> x: array<i32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        let i0 = i;
        let v = x[params.x_start + i0 * params.x0];
        y[params.y_start + i0 * params.y0] = f32(v);
    }
}
