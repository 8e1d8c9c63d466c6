{#-
purpose: linear for one to four rows of x on a CPU adapter, weights quantised or f32
formula: y[m,n] = sum_k xn[m,k] * w[n,k] + bias[n] + residual[m,n], xn = x or rms_norm(x) * norm_weight; with act: act(y[n]) * y[n + cols]
bindings:
  0 x            array<f32>  [rows, K]                          read
  1 codes        array<u32>  [N, words] (weight f32 [N, K] for scheme f32)  read
  2 scales       array<u32>, f32 with scale_type=f32  [N, groups] as in docs/FORMAT.md, not for scheme f32  read
  3 norm_weight  array<f32>  [K]  if norm      read
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
  rows: 1..4
  cols: 1..16
  norm: bool
  eps: float
  bias: bool
  residual: bool
  act: none, silu, gelu_tanh
requires: subgroups
launch: a workgroup is one quad; each of its 4 invocations owns `cols` outputs (4 apart) of all rows and walks the whole
  of K alone. Grid x (folded over y) counts tiles of 4 * cols outputs. A CPU adapter pays for loads, not for arithmetic: x is
  loaded once by the quad, each invocation a fourth, and handed round by quadBroadcast.
accuracy: f32 products and sums, one partial sum a group; 1/rms is multiplied in at the end
-#}
{% import "macros/quant.wgsl" as quant with context %}
{% import "macros/linear.wgsl" as linear with context %}
{% set gated = act != "none" %}
{% set streams = cols * (2 if gated else 1) %}
{% set chunk = quant.chunk %}
enable subgroups;

{{ linear.bindings() }}
{{ quant.constants() }}
{{ quant.decode() }}
{{ quant.fetch() }}
{{ quant.scale_at() }}
{{ linear.store() }}
{% if quant.offset or norm %}
fn quad_sum(value: f32) -> f32 {
    let pair = value + quadSwapX(value);
    return pair + quadSwapY(pair);
}
{% endif %}

fn quad_values(value: f32) -> vec4<f32> {
    return vec4<f32>(quadBroadcast(value, 0u), quadBroadcast(value, 1u),
                     quadBroadcast(value, 2u), quadBroadcast(value, 3u));
}

fn load_x(start: u32, i: u32) -> f32 {
{% if quant.tail %}
    return select(0.0, x[start + min(i, K - 1u)], i < K);
{% else %}
    return x[start + i];
{% endif %}
}

@compute @workgroup_size(4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(subgroup_invocation_id) id: u32) {
    let lane = id & 3u;
    let col = (group.x + group.y * groups.x) * {{ 4 * cols }}u + lane;
    let last = params.cols - 1u;
{% for j in range(cols) %}
    let n{{ j }} = min({{ linear.plus("col", 4 * j) }}, last);
{% endfor %}
{% if gated %}
{% for j in range(cols) %}
    let n{{ cols + j }} = n{{ j }} + params.cols;
{% endfor %}
{% endif %}
{{ quant.row_starts(streams) }}
{% if rows > 1 %}
    let last_row = u32(max(params.rows, 1) - 1);
{% for r in range(1, rows) %}
    let x_row{{ r }} = min({{ r }}u, last_row) * K;
{% endfor %}
{% endif %}
{% if quant.q4 %}
    let low_unit = 1.0 / f32(1u << (8u * lane));
    let high_unit = 0.0625 * low_unit;
{% endif %}
{% for r in range(rows) %}
{% for j in range(streams) %}
    var acc{{ r }}_{{ j }} = 0.0;
{% endfor %}
{% if norm %}
    var squares{{ r }} = 0.0;
{% endif %}
{% endfor %}
{% if quant.quantised %}
    for (var g = 0u; g < GROUPS; g++) {
{% else %}
    {
{% endif %}
{% for r in range(rows) %}
{% if quant.offset %}
        var sum{{ r }} = 0.0;
{% endif %}
{% for j in range(streams) %}
        var part{{ r }}_{{ j }} = 0.0;
{% endfor %}
{% endfor %}
        {{ quant.each_chunk() }}
            let i = {{ chunk }}u * c + lane;
{% for half in (["low", "high"] if quant.q4 else ["low"]) %}
{% set at = "i" if half == "low" else "i + 4u" %}
{% if norm %}
            let weight_{{ half }} = norm_weight[{{ "min(" ~ at ~ ", K - 1u)" if quant.tail else at }}];
{% endif %}
{% for r in range(rows) %}
            var own{{ r }}_{{ half }} = load_x({{ "x_row" ~ r if r else "0u" }}, {{ at }});
{% if norm %}
            squares{{ r }} += own{{ r }}_{{ half }} * own{{ r }}_{{ half }};
            own{{ r }}_{{ half }} *= weight_{{ half }};
{% endif %}
{% if quant.offset %}
            sum{{ r }} += own{{ r }}_{{ half }};
{% endif %}
            let x{{ r }}_{{ half }} = quad_values(own{{ r }}_{{ half }}{{ " * " ~ half ~ "_unit" if quant.q4 }});
{% endfor %}
{% endfor %}
{% for j in range(streams) %}
            let w{{ j }} = fetch(w_row{{ j }}, c);
{% if rows == 1 %}
            part0_{{ j }} += dot(low(w{{ j }}), x0_low){{ " + dot(high(w" ~ j ~ "), x0_high)" if quant.q4 }};
{% else %}
            let low{{ j }} = low(w{{ j }});
{% if quant.q4 %}
            let high{{ j }} = high(w{{ j }});
{% endif %}
{% for r in range(rows) %}
            part{{ r }}_{{ j }} += dot(low{{ j }}, x{{ r }}_low){{ " + dot(high" ~ j ~ ", x" ~ r ~ "_high)" if quant.q4 }};
{% endfor %}
{% endif %}
{% endfor %}
        }
{% if quant.offset %}
{% for r in range(rows) %}
        let total{{ r }} = quad_sum(sum{{ r }});
{% endfor %}
{% endif %}
{% for j in range(streams) %}
{% if quant.quantised %}
        let s{{ j }} = scale_at(s_row{{ j }}, g);
{% endif %}
{% for r in range(rows) %}
        acc{{ r }}_{{ j }} += {{ "s" ~ j ~ ".x * " if quant.quantised }}part{{ r }}_{{ j }}{{ " + s" ~ j ~ ".y * total" ~ r if quant.offset }};
{% endfor %}
{% endfor %}
    }
{% for r in range(rows) %}
{% if norm %}
    let scale{{ r }} = inverseSqrt(quad_sum(squares{{ r }}) / f32(K) + {{ eps | f32 }});
{% endif %}
{% set by = " * scale" ~ r if norm else "" %}
{% for j in range(cols) %}
    store({{ r }}u, {{ linear.plus("col", 4 * j) }}, acc{{ r }}_{{ j }}{{ by }}{{ ", acc" ~ r ~ "_" ~ (cols + j) ~ by if gated }});
{% endfor %}
{% endfor %}
}
