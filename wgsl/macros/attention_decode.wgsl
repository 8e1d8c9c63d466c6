{#- The parts of attention_decode's loop over tiles of keys; `count` keys from `start` on.

    plus        `name + n`, or just the name
    query, stage_query  Q into registers, from there into workgroup memory: between them other loads can start
    fetch       K and V of a tile into registers; past the split's end, its last key again
    products    four threads share a key: each writes its quarter of the products of all heads to `quarters`
    scores      the scores of the tile's keys, LOWEST past its end
    values      weight times V added to the sums o<head> of this thread's slice, against the slice's own maximum
    join        the sums of all slices against their common maximum, and the results
-#}
{% macro plus(name, n) -%}
{{ name }}{{ " + %du" % n if n }}
{%- endmacro %}

{% macro unit(i, U) -%}
{{ "min(%s, %du)" % (plus("quarter", 4 * i), U - 1) if 4 * i + 4 > U else plus("quarter", 4 * i) }}
{%- endmacro %}

{% macro query(query_loads, heads, U, threads) %}
{% for n in range(query_loads) %}
    let i{{ n }} = min({{ plus('lane', n * threads) }}, {{ heads * U - 1 }}u);
    let head{{ n }} = group_head + min(first_head + i{{ n }} / {{ U }}u, last_head);
    let query{{ n }} = q[q_start + head{{ n }} * params.q_h + i{{ n }} % {{ U }}u];
{% endfor %}
{% endmacro %}

{% macro stage_query(query_loads, heads, U, threads) %}
{% for n in range(query_loads) %}
    if ({{ plus('lane', n * threads) }} < {{ heads * U }}u) {
        queries[{{ plus('lane', n * threads) }}] = query{{ n }};
    }
{% endfor %}
{% endmacro %}

{% macro fetch(start, key_loads, unit_loads, value_loads, U, slices, threads, declare) %}
{% set var = "var " if declare %}
{% for j in range(key_loads) %}
    let at{{ j }} = base + min({{ start }} + ({{ plus('lane', j * threads) }}) / 4u, last) * params.k_c;
{% for i in range(unit_loads) %}
    {{ var }}k{{ j }}_{{ i }} = k[at{{ j }} + {{ unit(i, U) }}];
{% endfor %}
{% endfor %}
{% for n in range(value_loads) %}
    {{ var }}v{{ n }} = v[base + min({{ start }} + {{ plus('slice', n * slices) }}, last) * params.k_c + column];
{% endfor %}
{% endmacro %}

{% macro products(key_loads, unit_loads, heads, U, tile, threads) %}
{% for j in range(key_loads) %}{% for g in range(heads) %}
        var p{{ j }}_{{ g }} = 0.0;
{% endfor %}{% endfor %}
{% for i in range(unit_loads) %}
{% if 4 * i + 4 > U %}
        if (quarter < {{ U - 4 * i }}u) {
{% else %}
        {
{% endif %}
{% for g in range(heads) %}
            let q{{ g }} = queries[{{ g * U + 4 * i }}u + quarter];
{% for j in range(key_loads) %}
            p{{ j }}_{{ g }} += dot(q{{ g }}, vec4f(k{{ j }}_{{ i }}));
{% endfor %}
{% endfor %}
        }
{% endfor %}
{% for j in range(key_loads) %}
{% set past = (j + 1) * threads > tile * 4 %}
        {{ "if (lane < %du) {" % (tile * 4 - j * threads) if past else "{" }}
{% for g in range(heads) %}
            quarters[({{ plus('lane', j * threads) }}) / 4u * {{ heads * 4 }}u + {{ g * 4 }}u + quarter] = p{{ j }}_{{ g }};
{% endfor %}
        }
{% endfor %}
{% endmacro %}

{% macro scores(heads, tile, threads) %}
        for (var i = lane; i < {{ heads * tile }}u; i += {{ threads }}u) {
            let key = i % {{ tile }}u;
            var s = LOWEST;
            if (key < count) {
                let p = (key * {{ heads }}u + i / {{ tile }}u) * 4u;
                let product = (quarters[p] + quarters[p + 1u]) + (quarters[p + 2u] + quarters[p + 3u]);
                let head = group_head + min(first_head + i / {{ tile }}u, last_head);
                s = score(product, batch, head, token, start + key);
            }
            scores[i] = s;
        }
{% endmacro %}

{% macro values(value_loads, heads, slices, tile) %}
{% for g in range(heads) %}
        {
            var top = peak{{ g }};
{% for n in range(value_loads) %}
{% set key = plus("slice", n * slices) %}
{% if (n + 1) * slices > tile %}
            let at{{ n }} = {{ g * tile }}u + min({{ key }}, {{ tile - 1 }}u);
            let s{{ n }} = select(LOWEST, scores[at{{ n }}], {{ key }} < {{ tile }}u);
{% else %}
            let s{{ n }} = scores[{{ g * tile }}u + {{ key }}];
{% endif %}
            top = max(top, s{{ n }});
{% endfor %}
            let shrink = exp(peak{{ g }} - top);
            peak{{ g }} = top;
            total{{ g }} *= shrink;
            o{{ g }} *= shrink;
{% for n in range(value_loads) %}
            if (!(s{{ n }} == LOWEST)) {
                let w = exponential(s{{ n }} - top);
                total{{ g }} += w;
                o{{ g }} += w * vec4f(v{{ n }});
            }
{% endfor %}
        }
{% endfor %}
{% endmacro %}

{% macro join(heads, slices, U, threads, partial) %}
    if (lane < {{ slices * U }}u) {
{% for g in range(heads) %}
        results[(slice * {{ heads }}u + {{ g }}u) * {{ U }}u + column] = o{{ g }};
        if (column == 0u) {
            peaks[{{ g * slices }}u + slice] = peak{{ g }};
            totals[{{ g * slices }}u + slice] = total{{ g }};
        }
{% endfor %}
    }
    workgroupBarrier();
    for (var i = lane; i < {{ heads * U }}u; i += {{ threads }}u) {
        let g = i / {{ U }}u;
        let head = group_head + min(first_head + g, last_head);
        var peak = LOWEST;
        for (var n = 0u; n < {{ slices }}u; n++) {
            peak = max(peak, peaks[g * {{ slices }}u + n]);
        }
        var total = 0.0;
        var o = vec4f(0.0);
        for (var n = 0u; n < {{ slices }}u; n++) {
            let shrink = exp(peaks[g * {{ slices }}u + n] - peak);
            total += shrink * totals[g * {{ slices }}u + n];
            o += shrink * results[n * {{ heads * U }}u + i];
        }
{% if partial %}
        let row = (group.z * params.q_heads + head) * params.splits + split;
        sums[row * {{ U }}u + i % {{ U }}u] = o;
        if (i % {{ U }}u == 0u) {
            stats[row] = vec2f(peak, total);
        }
{% else %}
        let start = batch * params.y_b + token * params.y_s + head * params.y_h;
        sums[start + i % {{ U }}u] = select(o / total, vec4f(0.0), total == 0.0);
{% endif %}
    }
{% endmacro %}
