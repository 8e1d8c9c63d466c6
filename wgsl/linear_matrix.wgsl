{#-
purpose: linear for many rows of x by subgroup matrices, with factors in f16 and sums in f32
formula: y[m,n] = sum_k f16(x[m,k]) * f16(w[n,k]) + bias[n] + residual[m,n]; with act: act(y[n]) * y[n + cols]
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
  tile_rows: 64, 128
  depth: 32, 64
  bias: bool
  residual: bool
  act: none, silu, gelu_tanh
requires: shader-f16, subgroups of 32, chromium-experimental-subgroup-matrix (f16 to f32, 16x16x16)
launch: subgroups of 32x32 sums compute tile_rows rows by 64 outputs (32 with act: gate and up lie side by side), `depth` of
  K at a time through workgroup memory, while the next of it is read to registers. Grid x (folded over y) counts tiles of
  outputs, z tiles of rows.
accuracy: exact products of f16 factors, f32 sums in the order of the matrix unit
-#}
{% set norm = false %}
{% import "macros/quant.wgsl" as quant with context %}
{% import "macros/linear.wgsl" as linear with context %}
{% import "macros/dequant.wgsl" as weights with context %}
{% import "macros/matrix.wgsl" as tiles with context %}
{% set gated = act != "none" %}
{% set tile_cols = 32 if gated else 64 %}
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);

{{ linear.bindings("vec4<f32>" if k % 4 == 0 else "f32") }}
{{ quant.constants() }}
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;
const DEPTH = {{ depth }}u;
const CHUNK = {{ quant.chunk }}u;
{{ tiles.declare() }}
var<workgroup> piece: array<f32, {{ 8 * tiles.threads }}>;  // 16x16 sums of each subgroup

{% if quant.quantised and not tiles.by_pairs %}
{{ quant.decode() }}
{{ weights.by_word() }}
{% endif %}
{{ quant.fetch() }}
{{ quant.scale_at() }}
{{ linear.load4("x", "load_x", "m * K + ", tiles.exact) }}
{{ linear.store() }}
@compute @workgroup_size({{ tiles.threads }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let row = group.z * {{ tile_rows }}u;
    let col = (group.x + group.y * groups.x) * {{ tile_cols }}u;
    let last_row = u32(max(params.rows, 1) - 1);
    let team = thread / 32u;
    let lane = thread % 32u;
    let own_row = 32u * (team / 2u);
    let own_col = {{ tile_cols // 2 }}u * (team % 2u);
{% for i in range(2) %}
{% for j in range(2) %}
    var sums{{ i }}{{ j }}: Sums;
{% endfor %}
{% endfor %}
    {{ tiles.places() }}
    {{ tiles.bring("0u") }}
    for (var k = 0u; k < K; k += DEPTH) {
        {{ tiles.put() }}
        workgroupBarrier();
        {{ tiles.bring("k + DEPTH") | indent(4) }}
        let x_at = own_row * LINE;
        let w_at = own_col * LINE;
{% for d in range(0, depth, 16) %}
        {
{% for i in range(2) %}
            let a{{ i }} = subgroupMatrixLoad<Left, row_major>(&x_tile, x_at + {{ 16 * i }}u * LINE + {{ d }}u, LINE);
{% endfor %}
{% for j in range(2) %}
            let b{{ j }} = subgroupMatrixLoad<Right, col_major>(&w_tile, w_at + {{ j * (32 if gated else 16) }}u * LINE + {{ d }}u, LINE);
{% endfor %}
{% for i in range(2) %}
{% for j in range(2) %}
            sums{{ i }}{{ j }} = subgroupMatrixMultiplyAccumulate(a{{ i }}, b{{ j }}, sums{{ i }}{{ j }});
{% endfor %}
{% endfor %}
        }
{% endfor %}
        workgroupBarrier();
    }
{% if gated %}
    var gate: array<f32, 8>;
{% endif %}
{% for i in range(2) %}
{% for j in range(2) %}
    subgroupMatrixStore<row_major>(&piece, 256u * team, sums{{ i }}{{ j }}, 16u);
    workgroupBarrier();
    for (var e = 0u; e < 8u; e++) {
        let at = lane + 32u * e;
        let sum = piece[256u * team + at];
{% set place = "row + own_row + %du + at / 16u, col + own_col + %du + at %% 16u" % (16 * i, 0 if gated else 16 * j) %}
{% if gated and j == 0 %}
        gate[e] = sum;
{% else %}
        store({{ place }}, {{ "gate[e], " if gated }}sum);
{% endif %}
    }
    workgroupBarrier();
{% endfor %}
{% endfor %}
}
