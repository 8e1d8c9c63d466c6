{#-
What all linear kernels share: bindings, parameters, epilogue.
Uses the axes: scheme, scale_type, norm, bias, residual, act.
-#}
{% macro plus(base, n) %}{{ base }}{{ " + " ~ n ~ "u" if n }}{% endmacro %}

{% macro declare(number, name, type, access="read") %}
@group(0) @binding({{ number }}) var<storage, {{ access }}> {{ name }}: array<{{ type }}>;
{% endmacro %}

{% macro bindings(x_type="f32", code_type="u32") %}
{% set ns = namespace(i=2) %}
{{ declare(0, "x", x_type) }}
{%- if scheme == "f32" %}
{{ declare(1, "weight", code_type if code_type != "u32" else "f32") }}
{%- else %}
{{ declare(1, "codes", code_type) }}
{{- declare(2, "scales", "u32" if scale_type == "f16" else "f32") }}
{%- set ns.i = 3 %}
{% endif %}
{%- for name, on in (("norm_weight", norm), ("bias", bias), ("residual", residual)) if on %}
{{ declare(ns.i, name, x_type if name == "norm_weight" else "f32") }}
{%- set ns.i = ns.i + 1 %}
{% endfor %}
{{ declare(ns.i, "y", "f32", "read_write") }}
{%- set ns.i = ns.i + 1 %}
struct Params {
    rows: i32,    // rows of x from the first one bound, may be <= 0 in a late window
    cols: u32,    // outputs of this window of the weight
    first: u32,   // the window's first output
    stride: u32,  // outputs of a whole row of y
}
@group(0) @binding({{ ns.i }}) var<uniform> params: Params;
{% endmacro %}

{# load4(..)(m, i): elements i .. i+3 of a row, zero from K on; i is a multiple of 4, below K where `exact`. #}
{% macro load4(source, name, base, exact=false) %}
fn {{ name }}({{ "m: u32, " if base }}i: u32) -> vec4<f32> {
{% if exact %}
    return {{ source }}[({{ base }}i) / 4u];
{% elif k % 4 == 0 %}
    return select(vec4<f32>(), {{ source }}[({{ base }}min(i, K - 4u)) / 4u], i < K);
{% else %}
    let e = vec4<u32>(i) + vec4<u32>(0u, 1u, 2u, 3u);
    let at = {{ "vec4<u32>(m * K) + " if base }}min(e, vec4<u32>(K - 1u));
    let value = vec4<f32>({{ source }}[at.x], {{ source }}[at.y], {{ source }}[at.z], {{ source }}[at.w]);
    return select(vec4<f32>(), value, e < vec4<u32>(K));
{% endif %}
}
{% endmacro %}

{# activate(gate): the activation of a gated MLP. #}
{% macro activate() %}
{% if act == "silu" %}
fn activate(gate: f32) -> f32 {
    return gate / (1.0 + exp(min(-gate, 88.0)));  // e^88 is the last that f32 holds
}

{% elif act == "gelu_tanh" %}
fn activate(gate: f32) -> f32 {
    let inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate);
    return 0.5 * gate * (1.0 + tanh(clamp(inner, -15.0, 15.0)));  // 1 in f32 beyond
}

{% endif %}
{% endmacro %}

{# store(m, n, value{s}): epilogue of output n of this window in row m, nothing past the edges. #}
{% macro store() %}
{{ activate() }}
fn store(m: u32, n: u32, value: f32{{ ", up: f32" if act != "none" }}) {
    if (i32(m) >= params.rows || n >= params.cols) {
        return;
    }
    let i = m * params.stride + params.first + n;
    y[i] = {{ "activate(value) * up" if act != "none" else "value" }}
{%- if bias %} + bias[params.first + n]{% endif %}
{%- if residual %} + residual[i]{% endif %};
}
{% endmacro %}
