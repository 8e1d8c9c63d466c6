struct Params {
    n: u32,
    d0: u32, d1: u32, d2: u32, d3: u32, d4: u32, d5: u32, d6: u32, d7: u32, 
    c0: u32, c1: u32, c2: u32, c3: u32, c4: u32, c5: u32, c6: u32, c7: u32, 
    a0: u32, a1: u32, a2: u32, a3: u32, a4: u32, a5: u32, a6: u32, a7: u32, 
    b0: u32, b1: u32, b2: u32, b3: u32, b4: u32, b5: u32, b6: u32, b7: u32, 
}

@group(0) @binding(0) var<storage, read> cond: array<u32>;
@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read> b: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<u32>;
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        var rest_i = i;
        let i7 = rest_i % params.d7;
        rest_i /= params.d7;
        let i6 = rest_i % params.d6;
        rest_i /= params.d6;
        let i5 = rest_i % params.d5;
        rest_i /= params.d5;
        let i4 = rest_i % params.d4;
        rest_i /= params.d4;
        let i3 = rest_i % params.d3;
        rest_i /= params.d3;
        let i2 = rest_i % params.d2;
        rest_i /= params.d2;
        let i1 = rest_i % params.d1;
        rest_i /= params.d1;
        let i0 = rest_i;
        let chosen = cond[i0 * params.c0 + i1 * params.c1 + i2 * params.c2 + i3 * params.c3 + i4 * params.c4 + i5 * params.c5 + i6 * params.c6 + i7 * params.c7] != 0u;
        y[i] = select(b[i0 * params.b0 + i1 * params.b1 + i2 * params.b2 + i3 * params.b3 + i4 * params.b4 + i5 * params.b5 + i6 * params.b6 + i7 * params.b7], a[i0 * params.a0 + i1 * params.a1 + i2 * params.a2 + i3 * params.a3 + i4 * params.a4 + i5 * params.a5 + i6 * params.a6 + i7 * params.a7], chosen);
    }
}
