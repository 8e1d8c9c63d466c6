{#-
purpose: linear for one to sixteen rows of x on a GPU, weights quantised or f32; every weight is read once for all rows
formula: y[m,n] = sum_k xn[m,k] * w[n,k] + bias[n] + residual[m,n], xn = x or rms_norm(x) * norm_weight; with act: act(y[n]) * y[n + cols]; with multiply=f16 x and w are rounded to f16 first
bindings:
  0 x            array<vec4<f32>> (array<f32> unless 4 divides K)  [rows, K]  read
  1 codes        array<vec4<u32>>  [N, words] (weight f32 [N, K] for scheme f32)  read
  2 scales       array<u32>, f32 with scale_type=f32  [N, groups] as in docs/FORMAT.md, not for scheme f32  read
  3 norm_weight  as x        [K]  if norm      read
  4 bias         array<f32>  [N]  if bias      read
  5 residual     array<f32>  [rows, N]  if residual  read
  6 y            array<f32>  [rows, N]  read_write
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
  rows: 1, 2, 4, 8, 16
  cols: 1..16
  threads: 32, 64, 128, 256
  reduce: team, subgroup, workgroup
  lanes: int  # threads of a subgroup with reduce=team, else 0
  norm: bool
  eps: float
  bias: bool
  residual: bool
  act: none, silu, gelu_tanh
requires: none (subgroups for reduce=team and subgroup, shader-f16 for multiply=f16, which has no norm)
launch: a workgroup computes `cols` outputs of all rows, with reduce=team each of its subgroups does. Its threads walk K in blocks
  of four chunks (16 bytes of codes). Grid x (folded over y) counts tiles of outputs. subgroup: right for every size, each leaves
  one partial sum; team: for devices whose subgroups all have `lanes` threads.
accuracy: products of f32, or of f16 factors (then exact); f32 sums, one partial sum a thread; 1/rms is multiplied in at the end
-#}
{% import "macros/quant.wgsl" as quant with context %}
{% import "macros/dequant.wgsl" as weights with context %}
{% import "macros/partial_sums.wgsl" as partial with context %}
{% import "macros/linear.wgsl" as linear with context %}
{% set half = multiply == "f16" %}
{% set offset = quant.offset and not half %}
{% set gated = act != "none" %}
{% set streams = cols * (2 if gated else 1) %}
{% set sums = rows * streams + (rows if norm else 0) %}
{% set team = reduce == "team" %}
{% set own, step = ("lane", "LANES") if team else ("thread", "THREADS") %}
{% set step_rows = [rows, 4] | min %}
{% set exact = k % (4 * quant.chunk) == 0 %}
{% set halves, unit = ["low", "high"] if quant.q4 else ["low"], quant.unit if quant.quantised else 4 %}
{% set x_type = "vec4<f32>" if k % 4 == 0 else "f32" %}
{% set code_type = "vec4<u32>" if quant.quantised else x_type %}
{# Four codes as floats, or with multiply=f16 the weights that they stand for, rounded. #}
{% macro values(side, c) -%}
{% if half and quant.quantised -%}
rounded({{ side }}_weight(w[j][{{ c }}], scale[j]))
{%- elif half -%}
rounded(w[j][{{ c }}])
{%- else -%}
{{ side }}(w[j][{{ c }}])
{%- endif %}
{%- endmacro %}
{% if half %}
enable f16;
{% endif %}
{% if reduce != "workgroup" %}
enable subgroups;
{% endif %}

{{ linear.bindings(x_type, code_type) }}
{{ quant.constants() }}
const {{ step }} = {{ lanes if team else threads }}u;
const BLOCKS = {{ (quant.chunks + 3) // 4 }}u;
const ROWS = {{ rows }}u;
const STEP = {{ step_rows }}u;  // rows that a thread has under way at once
const STREAMS = {{ streams }}u;  // rows of the weight that a workgroup reads
const SUMS = {{ sums }}u;
{% if not team %}
var<workgroup> partial: array<f32, {{ sums * (threads // 4 if reduce == "subgroup" else threads) }}>;
{% endif %}

{{ quant.decode() }}
{{ quant.fetch_block() }}
{{ quant.scale_at() }}
{% if half %}
{{ weights.by_word() }}
// A compiler may take f32(f16(x)) for x (Mesa does); a zero that it cannot know, mixed into the bits, forbids that.
fn rounded(value: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec2<u32>>(vec4<f16>(value)) ^ vec2<u32>(params.stride >> 31u);
    return vec4<f32>(bitcast<vec4<f16>>(bits));
}

{% endif %}
{{ linear.load4("x", "load_x", "m * K + ", exact) }}
{% if norm %}
{{ linear.load4("norm_weight", "load_norm", "", exact) }}
{% endif %}
{{ linear.store() }}
@compute @workgroup_size({{ threads }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32
{%- if reduce == "subgroup" %}, @builtin(subgroup_size) width: u32{% endif %}) {
{% if team %}
    let lane = thread % LANES;
    let col = ((group.x + group.y * groups.x) * {{ threads // lanes }}u + thread / LANES) * {{ cols }}u;
{% else %}
    let col = (group.x + group.y * groups.x) * {{ cols }}u;
{% endif %}
{% if rows > 1 %}
    let last_row = u32(max(params.rows, 1) - 1);
{% endif %}
    var sums: array<f32, SUMS>;
    var n: array<u32, STREAMS>;
    for (var j = 0u; j < STREAMS; j++) {
        n[j] = min(col + j % {{ cols }}u, params.cols - 1u){{ " + (j / " ~ cols ~ "u) * params.cols" if gated }};
    }
    for (var b = {{ own }}; b < BLOCKS; b += {{ step }}) {
        var w: array<Block, STREAMS>;
        for (var j = 0u; j < STREAMS; j++) {
            w[j] = fetch_block(n[j], b);
        }
{% for u in range(0, 4, unit) %}
{% if quant.quantised %}
        {
            let g = {{ quant.group_of("4u * b" ~ (" + " ~ u ~ "u" if u else "")) }};
            var scale: array<vec2<f32>, STREAMS>;
            for (var j = 0u; j < STREAMS; j++) {
                scale[j] = scale_at(n[j] * SCALE_ROW, g);
            }
{% else %}
        {
{% endif %}
{# Written out, so that no sum has an index which is known at run time only: it would lie in memory, not in a register. #}
{% for m in range(0, rows, step_rows) %}
            {{ "if (params.rows > " ~ m ~ ") " if m }}{
                // The zeros are said, for Tint (Chrome 156) does not clear a var in later rounds.
                var part = array<f32, STEP * STREAMS>();
{% if offset %}
                var sum = array<f32, STEP>();
{% endif %}
{% for c in range(u, u + unit) %}
{% for side in halves %}
{% set at = quant.chunk ~ "u * (4u * b + " ~ c ~ "u)" ~ (" + 4u" if side == "high" else "") %}
{% set x_at = (("min(" ~ linear.plus("r", m) ~ ", last_row)" if rows > 1 else "r") ~ ", " ~ at) %}
                for (var r = 0u; r < STEP; r++) {
                    var v = {{ "rounded(load_x(" ~ x_at ~ "))" if half else "load_x(" ~ x_at ~ ")" }};
{% if norm %}
                    sums[ROWS * STREAMS + {{ linear.plus("r", m) }}] += dot(v, v);
                    v *= load_norm({{ at }});
{% endif %}
{% if offset %}
                    sum[r] += dot(v, vec4<f32>(1.0));
{% endif %}
{% if quant.q4 and not half %}
                    v *= {{ side | upper }}_UNIT;
{% endif %}
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot({{ values(side, c) }}, v);
                    }
                }
{% endfor %}
{% endfor %}
                for (var r = 0u; r < STEP; r++) {
                    for (var j = 0u; j < STREAMS; j++) {
                        let value = part[r * STREAMS + j];
                        sums[{{ linear.plus("r * STREAMS + j", m * streams) }}] += {{ "value" if half or not quant.quantised else "scale[j].x * value + scale[j].y * sum[r]" if quant.affine else "scale[j].x * (value - 8.0 * sum[r])" if offset else "scale[j].x * value" }};
                    }
                }
            }
{% endfor %}
        }
{% endfor %}
    }
    {{ partial.finish(eps | f32) }}
}

{{ partial.total() if not team }}
