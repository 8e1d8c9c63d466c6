{#-
purpose: linear for many rows of x on a GPU, weights quantised or f32, tiles in workgroup memory
formula: y[m,n] = sum_k x[m,k] * w[n,k] + bias[n] + residual[m,n]; with act: act(y[n]) * y[n + cols]
bindings:
  0 x         array<vec4<f32>> (array<f32> unless 4 divides K)  [rows, K]  read
  1 codes     array<u32>  [N, words] (weight f32 [N, K] for scheme f32)  read
  2 scales    array<u32>, f32 with scale_type=f32  [N, groups] as in docs/FORMAT.md, not for scheme f32  read
  3 bias      array<f32>  [N]  if bias      read
  4 residual  array<f32>  [rows, N]  if residual  read
  5 y         array<f32>  [rows, N]  read_write
params:
  rows    i32  rows of x from the first one bound
  cols    u32  outputs of this window of the weight
  first   u32  first output of the window
  stride  u32  outputs of a whole row of y
axes:
  scheme: q4gsw, q4gaw, q8gsw, q8gaw, f32
  scale_type: f16, f32
  group: int
  k: int
  tile: 32, 64
  depth: 16, 32
  bias: bool
  residual: bool
  act: none, silu, gelu_tanh
requires: none
launch: a workgroup of (tile / 4)^2 threads computes tile rows by tile outputs, 4x4 a thread, `depth` of K at a time; a word
  of codes and its scale are read once a tile. Grid x (folded over y) counts tiles of outputs, z tiles of rows.
accuracy: f32 products and sums in the order of k
-#}
{% set norm = false %}
{% import "macros/quant.wgsl" as quant with context %}
{% import "macros/linear.wgsl" as linear with context %}
{% set gated = act != "none" %}
{% set halves = ["low", "high"] if quant.q4 else ["low"] %}
{% set x_type = "vec4<f32>" if k % 4 == 0 else "f32" %}
{% set sides = ["gate", "up"] if gated else ["w"] %}
{{ linear.bindings(x_type) }}
{{ quant.constants() }}
const TILE = {{ tile }}u;
const DEPTH = {{ depth }}u;
const THREADS = {{ (tile // 4) ** 2 }}u;
const CHUNK = {{ quant.chunk }}u;
// Tiles lie k-major: element (k, i) is component i % 4 of vector k * TILE / 4 + i / 4.
var<workgroup> x_tile: array<vec4<f32>, {{ tile * depth // 4 }}>;
{% for side in sides %}
var<workgroup> {{ side }}_tile: array<vec4<f32>, {{ tile * depth // 4 }}>;
{% endfor %}

{{ quant.decode() }}
{{ quant.fetch() }}
{{ quant.scale_at() }}
{{ linear.load4("x", "load_x", "m * K + ") }}
{{ linear.store() }}
fn at(depth: u32, i: u32) -> u32 {
    return depth * (TILE / 4u) + i / 4u;
}

@compute @workgroup_size({{ (tile // 4) ** 2 }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let row = group.z * TILE;
    let col = (group.x + group.y * groups.x) * TILE;
    let last_row = u32(max(params.rows, 1) - 1);
    let own_row = 4u * (thread / (TILE / 4u));
    let own_col = 4u * (thread % (TILE / 4u));
{% for side in sides %}
    var {{ side }}: array<vec4<f32>, 4>;
{% endfor %}
    for (var k = 0u; k < K; k += DEPTH) {
        for (var i = thread; i < TILE * DEPTH / 4u; i += THREADS) {
            let m = i % TILE;
            let d = 4u * (i / TILE);
            let value = load_x(min(row + m, last_row), k + d);
{% for c in range(4) %}
            x_tile[at(d{{ " + " ~ c ~ "u" if c }}, m)][m % 4u] = value[{{ c }}];
{% endfor %}
        }
        for (var i = thread; i < TILE * DEPTH / CHUNK; i += THREADS) {
            let n = i % TILE;
            let d = CHUNK * (i / TILE);
            let c = min((k + d) / CHUNK, CHUNKS - 1u);
{% for side in sides %}
            {
                let w_row = min(col + n, params.cols - 1u){{ " + params.cols" if side == "up" }};
                let word = fetch(w_row * ROW, c);
{% if quant.quantised %}
                let scale = scale_at(w_row * SCALE_ROW, {{ quant.group_of("c") }});
{% endif %}
{% for half in halves %}
                let {{ half }}_value = {{ half }}(word)
{%- if quant.q4 %} * {{ half | upper }}_UNIT{% endif %}
{%- if quant.quantised %} * scale.x{% endif %}
{%- if quant.offset %} + scale.y{% endif %};
{% for e in range(4) %}
{% set shift = e + (4 if half == "high" else 0) %}
                {{ side }}_tile[at(d{{ " + " ~ shift ~ "u" if shift }}, n)][n % 4u] = {{ half }}_value[{{ e }}];
{% endfor %}
{% endfor %}
            }
{% endfor %}
        }
        workgroupBarrier();
        for (var d = 0u; d < DEPTH; d++) {
            let a = x_tile[at(d, own_row)];
{% for side in sides %}
            let {{ side }}_b = {{ side }}_tile[at(d, own_col)];
{% for r in range(4) %}
            {{ side }}[{{ r }}] += a[{{ r }}] * {{ side }}_b;
{% endfor %}
{% endfor %}
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < 4u; r++) {
        for (var c = 0u; c < 4u; c++) {
            store(row + own_row + r, col + own_col + c, {{ sides[0] }}[r][c]{{ ", up[r][c]" if gated }});
        }
    }
}
