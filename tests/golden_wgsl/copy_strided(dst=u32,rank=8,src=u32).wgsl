struct Params {
    n: u32,
    x_start: u32,
    y_start: u32,
    d0: u32, d1: u32, d2: u32, d3: u32, d4: u32, d5: u32, d6: u32, d7: u32, 
    x0: u32, x1: u32, x2: u32, x3: u32, x4: u32, x5: u32, x6: u32, x7: u32, 
    y0: u32, y1: u32, y2: u32, y3: u32, y4: u32, y5: u32, y6: u32, y7: u32, 
}

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> params: Params;

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
        let v = x[params.x_start + i0 * params.x0 + i1 * params.x1 + i2 * params.x2 + i3 * params.x3 + i4 * params.x4 + i5 * params.x5 + i6 * params.x6 + i7 * params.x7];
        y[params.y_start + i0 * params.y0 + i1 * params.y1 + i2 * params.y2 + i3 * params.y3 + i4 * params.y4 + i5 * params.y5 + i6 * params.y6 + i7 * params.y7] = v;
    }
}
