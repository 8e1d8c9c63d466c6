{#-
purpose: product of two stacks of matrices, the stack dimensions broadcast
formula: y[b, m, n] = sum_k a[b, m, k] * b[b, k, n]
bindings:
  0 a  array<dtype>  [..., M, K]  read
  1 b  array<dtype>  [..., K, N]  read
  2 y  array<dtype>  [..., M, N]  read_write
params:
  M, N, K  u32  sizes
  tiles    u32  workgroups in all
  d0..     u32  sizes of the stack, outermost first
  a0..     u32  strides of a over the stack, elements (0 = repeated)
  b0..     u32  strides of b over the stack, elements
axes:
  dtype: f32, f16
  rank: 1..8
  rows: 1, 4              # rows of y a thread computes (by 4 columns)
requires: none            (shader-f16 with dtype=f16)
launch: 8 x 8 threads compute a tile of 8 * rows by 32 of y, K in steps of 16 through workgroup memory
accuracy: f32 accumulation in the order of K
-#}
{% import "macros/index.wgsl" as index %}
{% import "macros/dtype.wgsl" as type %}
{% set BM = 8 * rows %}
{{ type.enable([dtype]) }}

struct Params {
    M: u32, N: u32, K: u32,
    tiles: u32,
    {{ index.fields("d", rank) }}
    {{ index.fields("a", rank) }}
    {{ index.fields("b", rank) }}
}

@group(0) @binding(0) var<storage, read> a: array<{{ dtype }}>;
@group(0) @binding(1) var<storage, read> b: array<{{ dtype }}>;
@group(0) @binding(2) var<storage, read_write> y: array<{{ dtype }}>;
@group(0) @binding(3) var<uniform> params: Params;

var<workgroup> tile_a: array<f32, {{ BM * 16 }}>;
var<workgroup> tile_b: array<vec4f, 128>;

fn load_b(base: u32, k: u32, n: u32) -> f32 {
    if (k < params.K && n < params.N) {
        return {{ type.load(dtype, "b[base + k * params.N + n]") }};
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
    let high = (params.M + {{ BM - 1 }}u) / {{ BM }}u;
    let stack = tile / (wide * high);
    let m0 = tile / wide % high * {{ BM }}u;
    let n0 = tile % wide * 32u;
    {{ index.unravel(rank, "stack") | indent(0) }}
    let a_start = {{ index.offset("a", rank) }};
    let b_start = {{ index.offset("b", rank) }};
    let column = lane % 8u;
    let line = lane / 8u * {{ rows }}u;
    var sums = array<vec4f, {{ rows }}>();
    for (var k0 = 0u; k0 < params.K; k0 += 16u) {
        for (var i = lane; i < {{ BM * 16 }}u; i += 64u) {
            let m = m0 + i / 16u;
            let k = k0 + i % 16u;
            var v = 0.0;
            if (m < params.M && k < params.K) {
                v = {{ type.load(dtype, "a[a_start + m * params.K + k]") }};
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
{% for r in range(rows) %}
            sums[{{ r }}] += tile_a[(line + {{ r }}u) * 16u + k] * right;
{% endfor %}
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < {{ rows }}u; r++) {
        for (var c = 0u; c < 4u; c++) {
            let m = m0 + line + r;
            let n = n0 + column * 4u + c;
            if (m < params.M && n < params.N) {
                y[(stack * params.M + m) * params.N + n] = {{ type.store(dtype, "sums[r][c]") }};
            }
        }
    }
}
