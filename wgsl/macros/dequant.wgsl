{#-
Whole weights from stored words, one value each: what f16 forms and the tiles of linear_gemm need. Forms that sum codes first
and scale the sum take the codes of macros/quant.wgsl instead.

One formula for all of them, with one rounding: (code - 8) * scale, code * scale, or fma(code, scale, minimum).
Uses the axes: scheme, group, k, scale_type.
-#}
{% import "macros/quant.wgsl" as quant with context %}

{# of(code): the formula; the argument is a float or a vector of them. #}
{% macro of(code, vector) -%}
{% if quant.affine -%}
fma({{ code }}, {{ "vec4<f32>(scale.x), vec4<f32>(scale.y)" if vector else "scale.x, scale.y" }})
{%- elif quant.q4 -%}
({{ code }} - 8.0) * scale.x
{%- else -%}
{{ code }} * scale.x
{%- endif %}
{%- endmacro %}

{# low_weight(word, scale), high_weight(word, scale): the weights of a chunk; f32 weights are what they are. #}
{% macro by_word() %}
{% if quant.quantised %}
fn low_weight(word: u32, scale: vec2<f32>) -> vec4<f32> {
    return {{ of("low(word) * LOW_UNIT" if quant.q4 else "low(word)", true) }};
}

{% if quant.q4 %}
fn high_weight(word: u32, scale: vec2<f32>) -> vec4<f32> {
    return {{ of("high(word) * HIGH_UNIT", true) }};
}
{% endif %}
{% endif %}
{% endmacro %}

{# weight_at(row, i): weight i of a row, from a word and a scale that it loads itself. #}
{% macro by_code() %}
fn weight_at(row: u32, i: u32) -> f32 {
{% if quant.quantised %}
    let c = min(i / CHUNK, CHUNKS - 1u);
    let word = fetch(row * ROW, c);
    let scale = scale_at(row * SCALE_ROW, {{ quant.group_of("c") }});
{% if quant.q4 %}
    let code = f32((word >> (8u * (i % 4u) + (i & 4u))) & 15u);
{% else %}
    let code = f32(bitcast<i32>(word << (24u - 8u * (i % 4u))) & -16777216);  // 2^24 times, as low()
{% endif %}
    return {{ of("code", false) }};
{% else %}
    return weight[row * K + min(i, K - 1u)];
{% endif %}
}
{% endmacro %}
