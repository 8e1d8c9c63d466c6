{#-
purpose: linear for many rows of x on a GPU, weights quantised or f32, tiles in workgroup memory
formula: y[m,n] = sum_k x[m,k] * w[n,k] + bias[n] + residual[m,n]; with act: act(y[n]) * y[n + cols]; with multiply=f16 x and w are rounded to f16 first
bindings:
  0 x         array<vec4<f32>> (array<f32> unless 4 divides K)  [rows, K]  read
  1 codes     array<u32> (array<vec4<u32>> where a thread takes four words)  [N, words] (weight f32 [N, K] for scheme f32)  read
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
  multiply: f32, f16
  sums: f32, f16
  dequant: word, nibble
  tile: 32, 64, 128
  depth: 16, 32, 64
  share_rows: 4, 8  # 8 from tile 64 on: neighbours must keep to one pattern of banks
  share_cols: 4, 8  # likewise
  bias: bool
  residual: bool
  act: none, silu, gelu_tanh
requires: none (shader-f16 for multiply=f16)
launch: a workgroup computes tile rows by tile outputs, share_rows by share_cols a thread, `depth` of K at a time. Grid x (folded
  over y) counts tiles of outputs, z tiles of rows. dequant=word: a thread loads a run of words of one row once a tile, and their
  scale once where the run lies in one group; nibble: each code loads its word and its scale (same bits). Tiles hold f16 with
  multiply=f16: half the memory.
accuracy: products of f32, or of f16 factors (then exact); f32 sums in the order of k. sums=f16: one f16 sum of even, one of odd k
-#}
{% set norm = false %}
{% import "macros/quant.wgsl" as quant with context %}
{% import "macros/dequant.wgsl" as weights with context %}
{% import "macros/staging.wgsl" as staging with context %}
{% import "macros/tile.wgsl" as tiles with context %}
{% import "macros/linear.wgsl" as linear with context %}
{% set gated = act != "none" %}
{% set x_type = "vec4<f32>" if k % 4 == 0 else "f32" %}
{% set sides = ["gate", "up"] if gated else ["w"] %}
{% set by_word = dequant == "word" %}
{% set blocks = by_word and staging.blocks %}
{% if tiles.half %}
enable f16;

{% endif %}
{{ linear.bindings(x_type, "u32" if not blocks else "vec4<u32>" if quant.quantised else x_type) }}
{{ quant.constants() }}
const CHUNK = {{ quant.chunk }}u;
{{ tiles.declare(["x"] + sides) }}
{{ tiles.pack() }}
{{ tiles.multiply_add() }}
{{ quant.decode() }}
{{ quant.fetch_block() if blocks else quant.fetch() }}
{{ quant.scale_at() }}
{{ weights.by_word() if by_word else weights.by_code() }}
{{ linear.load4("x", "load_x", "m * K + ") }}
{{ linear.store() }}
@compute @workgroup_size({{ tiles.threads }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let row = group.z * TILE;
    let col = (group.x + group.y * groups.x) * TILE;
    let last_row = u32(max(params.rows, 1) - 1);
    let own_row = thread / {{ tiles.across }}u;  // and every {{ tiles.down }}th after it
    let own_col = thread % {{ tiles.across }}u;  // and every {{ tiles.across }}th after it
{% for side in sides %}
    var {{ side }}: array<Sum, {{ tiles.outputs }}>;
{% endfor %}
    for (var k = 0u; k < K; k += DEPTH) {
        for (var i = thread; i < TILE * ROW_CHUNKS; i += THREADS) {
            let m = min(row + i / ROW_CHUNKS, last_row);
            let first = k + {{ tiles.values }}u * (i % ROW_CHUNKS);
            x_tile[at(i / ROW_CHUNKS, i % ROW_CHUNKS)] = {{ "chunk(load_x(m, first), load_x(m, first + 4u))" if tiles.half else "load_x(m, first)" }};
        }
        {{ staging.words(sides) if by_word else staging.codes(sides) }}
        workgroupBarrier();
        for (var c = 0u; c < ROW_CHUNKS; c++) {
            let x_at = at(own_row, c);
            let w_at = at(own_col, c);
{% for r in range(share_rows) %}
            let x{{ r }} = x_tile[{{ linear.plus("x_at", r * tiles.down * tiles.row_chunks) }}];
{% endfor %}
{% for side in sides %}
{% for j in range(share_cols) %}
            let {{ side }}{{ j }} = {{ side }}_tile[{{ linear.plus("w_at", j * tiles.across * tiles.row_chunks) }}];
{% endfor %}
{% endfor %}
{% for part in tiles.parts %}
{% for r in range(share_rows if part else 0) %}
            let x{{ r }}_{{ part }} = four(x{{ r }}.{{ part }});
{% endfor %}
{% for side in sides %}
{% for j in range(share_cols) %}
{% set b = side ~ j ~ ("_" ~ part if part else "") %}
{% if part %}
            let {{ b }} = four({{ side }}{{ j }}.{{ part }});
{% endif %}
{% for i in range(j, tiles.outputs, share_cols) %}
            {{ side }}[{{ i }}] = madd({{ side }}[{{ i }}], x{{ i // share_cols }}{{ "_" ~ part if part }}, {{ b }});
{% endfor %}
{% endfor %}
{% endfor %}
{% endfor %}
        }
        workgroupBarrier();
    }
{% for i in range(tiles.outputs) %}
{% set r, j = i // share_cols, i % share_cols %}
{% set at = linear.plus("row + own_row", r * tiles.down) ~ ", " ~ linear.plus("col + own_col", j * tiles.across) %}
    store({{ at }}, {% for side in sides %}{{ "total(" ~ side ~ "[" ~ i ~ "])" if sums == "f16" else side ~ "[" ~ i ~ "]" }}{{ ", " if not loop.last }}{% endfor %});
{% endfor %}
}
