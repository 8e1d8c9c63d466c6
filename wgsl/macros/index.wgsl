{#- Addressing that all strided kernels share.

    unravel(rank)            from a flat output index `i` to one index a dimension: i0, i1, ...
    offset(prefix, rank)     the sum of index times stride, the strides being parameters prefix0, prefix1, ...
    fields(prefix, rank)     the declarations of such parameters
    Calls stand inside a function with a `var rest = i;`-free scope: unravel declares what it needs.
-#}
{% macro fields(prefix, rank) -%}
{% for k in range(rank) %}{{ prefix }}{{ k }}: u32, {% endfor %}
{%- endmacro %}

{% macro unravel(rank, flat="i", index="i", size="params.d") -%}
{% if rank == 1 %}
let {{ index }}0 = {{ flat }};
{%- else %}
var rest_{{ index }} = {{ flat }};
{% for k in range(rank - 1, 0, -1) %}
    let {{ index }}{{ k }} = rest_{{ index }} % {{ size }}{{ k }};
    rest_{{ index }} /= {{ size }}{{ k }};
{% endfor %}
    let {{ index }}0 = rest_{{ index }};
{%- endif %}
{%- endmacro %}

{% macro offset(prefix, rank, index="i") -%}
{% for k in range(rank) %}{{ " + " if k }}{{ index }}{{ k }} * params.{{ prefix }}{{ k }}{% endfor %}
{%- endmacro %}
