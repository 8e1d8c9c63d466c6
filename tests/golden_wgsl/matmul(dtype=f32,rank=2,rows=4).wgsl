struct Params {
    M: u32, N: u32, K: u32,
    tiles: u32,
    d0: u32, d1: u32, 
    a0: u32, a1: u32, 
    b0: u32, b1: u32, 
}

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

var<workgroup> tile_a: array<f32, 512>;
var<workgroup> tile_b: array<vec4f, 128>;

fn load_b(base: u32, k: u32, n: u32) -> f32 {
    if (k < params.K && n < params.N) {
        return b[base + k * params.N + n];
    }
    return 0.0;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let tile = group.x + group.y * groups.x;
    if (tile >= params.tiles) {
        return;
    }
    let wide = (params.N + 31u) / 32u;
    let high = (params.M + 31u) / 32u;
    let stack = tile / (wide * high);
    let m0 = tile / wide % high * 32u;
    let n0 = tile % wide * 32u;
    var rest_i = stack;
    let i1 = rest_i % params.d1;
    rest_i /= params.d1;
    let i0 = rest_i;
    let a_start = i0 * params.a0 + i1 * params.a1;
    let b_start = i0 * params.b0 + i1 * params.b1;
    let column = lane % 8u;
    let line = lane / 8u * 4u;
    var sums = array<vec4f, 4>();
    for (var k0 = 0u; k0 < params.K; k0 += 16u) {
        for (var i = lane; i < 512u; i += 64u) {
            let m = m0 + i / 16u;
            let k = k0 + i % 16u;
            var v = 0.0;
            if (m < params.M && k < params.K) {
                v = a[a_start + m * params.K + k];
            }
            tile_a[i] = v;
        }
        for (var i = lane; i < 128u; i += 64u) {
            let k = k0 + i / 8u;
            let n = n0 + i % 8u * 4u;
            tile_b[i] = vec4f(load_b(b_start, k, n), load_b(b_start, k, n + 1u),
                              load_b(b_start, k, n + 2u), load_b(b_start, k, n + 3u));
        }
        workgroupBarrier();
        for (var k = 0u; k < 16u; k++) {
            let right = tile_b[k * 8u + column];
            sums[0] += tile_a[(line + 0u) * 16u + k] * right;
            sums[1] += tile_a[(line + 1u) * 16u + k] * right;
            sums[2] += tile_a[(line + 2u) * 16u + k] * right;
            sums[3] += tile_a[(line + 3u) * 16u + k] * right;
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < 4u; r++) {
        for (var c = 0u; c < 4u; c++) {
            let m = m0 + line + r;
            let n = n0 + column * 4u + c;
            if (m < params.M && n < params.N) {
                y[(stack * params.M + m) * params.N + n] = sums[r][c];
            }
        }
    }
}
