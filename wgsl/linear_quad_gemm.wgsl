{#-
purpose: linear for many rows of x on a CPU adapter, weights quantised or f32
formula: y[m,n] = sum_k x[m,k] * w[n,k] + bias[n] + residual[m,n]; with act: act(y[n]) * y[n + cols]
bindings:
  0 x         array<f32>  [rows, K]                          read
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
  rows: 1..4
  quads: 1..16
  bias: bool
  residual: bool
  act: none, silu, gelu_tanh
requires: subgroups
launch: a workgroup is one quad and computes 4 * rows rows by 4 * quads outputs; grid x (folded over y) counts tiles of outputs,
  z tiles of rows. Each invocation owns `rows` rows of x (4 apart) and loads every fourth row of the weight; the other three come
  from its neighbours by quadSwap, so an invocation meets the outputs of a quad in the order lane ^ 0, 1, 2, 3.
accuracy: f32 products and sums, one partial sum a group
-#}
{% set norm = false %}
{% import "macros/quant.wgsl" as quant with context %}
{% import "macros/linear.wgsl" as linear with context %}
{% set gated = act != "none" %}
{% set streams = quads * (2 if gated else 1) %}
{% set swaps = ("", "quadSwapX", "quadSwapY", "quadSwapDiagonal") %}
{% set halves = ["low", "high"] if quant.q4 else ["low"] %}
{% macro products(q, t, r) -%}
dot(low{{ q }}_{{ t }}, x{{ r }}_low)
{%- if quant.q4 %} + dot(high{{ q }}_{{ t }}, x{{ r }}_high){% endif %}
{%- endmacro %}
enable subgroups;

{{ linear.bindings() }}
{{ quant.constants() }}
{{ quant.decode() }}
{{ quant.fetch() }}
{{ quant.scale_at() }}
{{ linear.store() }}
{% if quant.quantised %}
fn quad_values(value: f32) -> vec4<f32> {
    return vec4<f32>(value, quadSwapX(value), quadSwapY(value), quadSwapDiagonal(value));
}
{% endif %}

fn load_x(start: u32, i: u32) -> vec4<f32> {
    let at = start + i;
{% if quant.tail %}
    let end = start + K - 1u;
    let value = vec4<f32>(x[min(at, end)], x[min(at + 1u, end)],
                          x[min(at + 2u, end)], x[min(at + 3u, end)]);
    return select(vec4<f32>(), value, vec4<u32>(i) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(K));
{% else %}
    return vec4<f32>(x[at], x[at + 1u], x[at + 2u], x[at + 3u]);
{% endif %}
}

@compute @workgroup_size(4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(subgroup_invocation_id) id: u32) {
    let lane = id & 3u;
    let row = group.z * {{ 4 * rows }}u + lane;
    let col = (group.x + group.y * groups.x) * {{ 4 * quads }}u;
    let last_row = u32(max(params.rows, 1) - 1);
{% for r in range(rows) %}
    let x_row{{ r }} = min({{ linear.plus("row", 4 * r) }}, last_row) * K;
{% endfor %}
{% for q in range(quads) %}
    let n{{ q }} = min({{ linear.plus("col + lane", 4 * q) }}, params.cols - 1u);
{% endfor %}
{% if gated %}
{% for q in range(quads) %}
    let n{{ quads + q }} = n{{ q }} + params.cols;
{% endfor %}
{% endif %}
{{ quant.row_starts(streams) }}
{% for r in range(rows) %}
{% for q in range(streams) %}
    var acc{{ r }}_{{ q }} = vec4<f32>();
{% endfor %}
{% endfor %}
{% if quant.quantised %}
    for (var g = 0u; g < GROUPS; g++) {
{% for r in range(rows) %}
{% if quant.offset %}
        var sum{{ r }} = 0.0;
{% endif %}
{% for q in range(streams) %}
        var part{{ r }}_{{ q }} = vec4<f32>();
{% endfor %}
{% endfor %}
{% endif %}
        {{ quant.each_chunk() }}
{% for r in range(rows) %}
{% for half in halves %}
{% set at = quant.chunk ~ "u * c" ~ (" + 4u" if half == "high" else "") %}
{% if quant.offset %}
            var x{{ r }}_{{ half }} = load_x(x_row{{ r }}, {{ at }});
            sum{{ r }} += dot(x{{ r }}_{{ half }}, vec4<f32>(1.0));
{% if quant.q4 %}
            x{{ r }}_{{ half }} *= {{ half | upper }}_UNIT;
{% endif %}
{% else %}
            let x{{ r }}_{{ half }} = load_x(x_row{{ r }}, {{ at }});
{% endif %}
{% endfor %}
{% endfor %}
{% for q in range(streams) %}
            let w{{ q }} = fetch(w_row{{ q }}, c);
{% for t in range(4) %}
{% for half in halves %}
            let {{ half }}{{ q }}_{{ t }} = {{ half }}({{ swaps[t] ~ "(w" ~ q ~ ")" if t else "w" ~ q }});
{% endfor %}
{% endfor %}
{% for r in range(rows) %}
            {{ "part" if quant.quantised else "acc" }}{{ r }}_{{ q }} += vec4<f32>(
{% for t in range(4) %}
                {{ products(q, t, r) }}{{ "," if t < 3 else ");" }}
{% endfor %}
{% endfor %}
{% endfor %}
        }
{% if quant.quantised %}
{% for q in range(streams) %}
        let s{{ q }} = scale_at(s_row{{ q }}, g);
        let scale{{ q }} = quad_values(s{{ q }}.x);
{% if quant.offset %}
        let offset{{ q }} = quad_values(s{{ q }}.y);
{% endif %}
{% for r in range(rows) %}
        acc{{ r }}_{{ q }} += scale{{ q }} * part{{ r }}_{{ q }}{{ " + offset" ~ q ~ " * sum" ~ r if quant.offset }};
{% endfor %}
{% endfor %}
    }
{% endif %}
{% for r in range(rows) %}
{% for q in range(quads) %}
{% for t in range(4) %}
    store({{ linear.plus("row", 4 * r) }}, {{ linear.plus("col", 4 * q) }} + {{ "(lane ^ " ~ t ~ "u)" if t else "lane" }}, acc{{ r }}_{{ q }}[{{ t }}]{{ ", acc" ~ r ~ "_" ~ (quads + q) ~ "[" ~ t ~ "]" if gated }});
{% endfor %}
{% endfor %}
{% endfor %}
}
