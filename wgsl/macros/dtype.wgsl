{#- Storage types and the types in which arithmetic is done (f16 is stored only: it is computed in f32).

    compute(dtype)        the WGSL type of a loaded value
    load(dtype, expr)     a stored element as its compute type
    store(dtype, expr)    a computed value as stored
    enable(dtypes)        `enable f16;` if one of them needs it
-#}
{% macro compute(dtype) -%}{{ "f32" if dtype == "f16" else dtype }}{%- endmacro %}
{% macro load(dtype, expr) -%}{{ "f32(" ~ expr ~ ")" if dtype == "f16" else expr }}{%- endmacro %}
{% macro store(dtype, expr) -%}{{ "f16(" ~ expr ~ ")" if dtype == "f16" else expr }}{%- endmacro %}
{% macro enable(dtypes) -%}{% if "f16" in dtypes %}enable f16;{% endif %}{%- endmacro %}

{% macro convert(src, dst, expr) -%}
{% if src == dst %}{{ expr }}
{%- elif dst == "u32" %}select(0u, 1u, {{ expr }} != {{ {"f32": "0.0", "f16": "0.0h", "i32": "0"}[src] }})
{%- else %}{{ dst }}({{ expr }}){% endif %}
{%- endmacro %}
