{#-
How the threads of linear_gemm fill the tile of a weight.
Uses the axes: scheme, group, k, scale_type, multiply, tile, depth, share_rows, share_cols.
-#}
{% import "macros/quant.wgsl" as quant with context %}
{% import "macros/tile.wgsl" as tiles with context %}
{% import "macros/linear.wgsl" as linear with context %}
{% set run = tiles.run %}
{% set count = run // quant.chunk %}
{% set blocks = count % 4 == 0 %}
{% set one_scale = group % run == 0 or group >= k %}

{# Expressions: an index kept within K, word i of a run, its scale, four of its weights. #}
{% macro within(i, end) -%}
{{ "min(" ~ i ~ ", " ~ end ~ ")" if k % depth else i }}
{%- endmacro %}

{% macro word(i) -%}
{{ "block" ~ i // 4 ~ "[" ~ i % 4 ~ "]" if blocks else "word" ~ i }}
{%- endmacro %}

{% macro scale(i) -%}
{{ "scale" ~ ("" if one_scale else i) }}
{%- endmacro %}

{% macro four(i) -%}
{% if not quant.quantised -%}
{{ word(i) }}
{%- elif quant.q4 -%}
{{ "high" if i % 2 else "low" }}_weight({{ word(i // 2) }}, {{ scale(i // 2) }})
{%- else -%}
low_weight({{ word(i) }}, {{ scale(i) }})
{%- endif %}
{%- endmacro %}

{% macro row_of(side) -%}
let w_row = min(col + n, params.cols - 1u){{ " + params.cols" if side == "up" }};
{%- endmacro %}

{# A thread takes a run of words of one row, and their scale once if they share it. #}
{% macro words(sides) -%}
{% set runs = depth // run %}
{{ "if (thread < " ~ tile * runs ~ "u) " if tile * runs < tiles.threads }}{
            let n = thread / {{ runs }}u;
            let first = {{ run }}u * (thread % {{ runs }}u);
            let own = first / {{ tiles.values }}u;
            let c = (k + first) / CHUNK;
{% for side in sides %}
            {
                {{ row_of(side) }}
{% for i in range(count) %}
{% if blocks and i % 4 == 0 %}
                let block{{ i // 4 }} = fetch_block(w_row, {{ within(linear.plus("c / 4u", i // 4), (quant.chunks - 1) // 4 ~ "u") }});
{% elif not blocks %}
                let word{{ i }} = fetch(w_row * ROW, {{ within(linear.plus("c", i), "CHUNKS - 1u") }});
{% endif %}
{% endfor %}
{% for i in range((1 if one_scale else count) if quant.quantised else 0) %}
                let {{ scale(i) }} = scale_at(w_row * SCALE_ROW, {{ quant.group_of(within(linear.plus("c", i), "CHUNKS - 1u")) }});
{% endfor %}
{% for i in range(run // tiles.values) %}
                {{ side }}_tile[at(n, {{ linear.plus("own", i) }})] = {{ "chunk(" ~ four(2 * i) ~ ", " ~ four(2 * i + 1) ~ ")" if tiles.half else four(i) }};
{% endfor %}
            }
{% endfor %}
        }
{%- endmacro %}

{# A thread takes the codes of four bytes of the tile, each with a word and a scale of its own. #}
{% macro codes(sides) -%}
{% set size = 2 if tiles.half else 1 %}
for (var i = thread; i < TILE * DEPTH / {{ size }}u; i += THREADS) {
            let n = i / {{ depth // size }}u;
            let d = {{ size }}u * (i % {{ depth // size }}u);
{% for side in sides %}
            {
                {{ row_of(side) }}
                let value = {{ "part(weight_at(w_row, k + d), weight_at(w_row, k + d + 1u))" if tiles.half else "weight_at(w_row, k + d)" }};
                {{ side }}_tile[at(n, d / {{ tiles.values }}u)][d % {{ tiles.values }}u / {{ size }}u] = value;
            }
{% endfor %}
        }
{%- endmacro %}
