struct Params {
    n: u32,
    size: u32,
    count: u32,
    inner: u32,
    nan: u32,
}

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> ids: array<i32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        let slice = i / params.inner;
        let id = ids[slice % params.count];
        let known = id >= 0 && id < i32(params.size);
        let row = slice / params.count * params.size + u32(select(0, id, known));
        let v = x[row * params.inner + i % params.inner];
        y[i] = select(u32(0), v, known);
    }
}
