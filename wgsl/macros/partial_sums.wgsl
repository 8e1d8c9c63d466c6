{#-
The sums of a GEMV's threads, SUMS a thread, put together and stored.
Uses the axes: reduce, rows, cols, norm, act. A sum is named by its number, not by an index of the run:
such an array would lie in memory.
-#}
{% set streams, step_rows = cols * (2 if act != "none" else 1), [rows, 4] | min %}
{% set by = " * scale" if norm else "" %}

{# Puts the sums of threads together and stores the outputs of a subgroup (team) or of the workgroup. #}
{% macro finish(eps) -%}
{% if reduce == "team" %}
{% for m in range(rows) %}
    {{ "if (params.rows > " ~ m ~ ") " if m }}{
{% if norm %}
        let scale = inverseSqrt(subgroupAdd(sums[{{ rows * streams + m }}]) / f32(K) + {{ eps }});
{% endif %}
        for (var j = 0u; j < {{ cols }}u; j++) {
            let value = subgroupAdd(sums[j{{ " + %du" % (m * streams) if m }}]){{ by }};
{% if act != "none" %}
            let up = subgroupAdd(sums[j + {{ m * streams + cols }}u]){{ by }};
{% endif %}
            if (lane == 0u) {
                store({{ m }}u, col + j, value{{ ", up" if act != "none" }});
            }
        }
    }
{% endfor %}
{% else %}
{{ _collect() }}
    for (var i = thread; i < {{ rows * cols }}u; i += THREADS) {
        let m = i / {{ cols }}u;
        let j = i % {{ cols }}u;
{% if norm %}
        let scale = inverseSqrt(total(ROWS * STREAMS + m, slots) / f32(K) + {{ eps }});
{% endif %}
        let value = total(m * STREAMS + j, slots){{ by }};
{% if act != "none" %}
        let up = total(m * STREAMS + {{ cols }}u + j, slots){{ by }};
{% endif %}
        store(m, col + j, value{{ ", up" if act != "none" }});
    }
{% endif %}
{%- endmacro %}

{# Leaves `slots` partial sums of each in the workgroup array `partial`; right for every subgroup size. #}
{% macro _collect() -%}
{% if reduce == "subgroup" %}
let slot = thread / width;
{% for m in range(0, rows, step_rows) %}
    {{ "if (params.rows > " ~ m ~ ") " if m }}{
        {{ _collect_range(m * streams, step_rows * streams) }}
{% if norm %}
        {{ _collect_range(rows * streams + m, step_rows) }}
{% endif %}
    }
{% endfor %}
    workgroupBarrier();
    let slots = (THREADS + width - 1u) / width;
{% else %}
for (var i = 0u; i < SUMS; i++) {
        partial[thread * SUMS + i] = sums[i];
    }
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if (thread < half) {
            for (var i = 0u; i < SUMS; i++) {
                partial[thread * SUMS + i] += partial[(thread + half) * SUMS + i];
            }
        }
        workgroupBarrier();
    }
    let slots = 1u;
{% endif %}
{%- endmacro %}

{% macro _collect_range(first, count) -%}
for (var i = {{ first }}u; i < {{ first + count }}u; i++) {
            let sum = subgroupAdd(sums[i]);
            if (thread % width == 0u) {
                partial[slot * SUMS + i] = sum;
            }
        }
{%- endmacro %}

{# total(i, slots): sum i of the workgroup. #}
{% macro total() %}
fn total(i: u32, slots: u32) -> f32 {
    var sum = 0.0;
    for (var s = 0u; s < slots; s++) {
        sum += partial[s * SUMS + i];
    }
    return sum;
}
{% endmacro %}
