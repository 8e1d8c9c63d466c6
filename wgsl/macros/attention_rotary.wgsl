{#- attention_decode's part in rotating: Q, and of the workgroups whose split holds the token's own key its K and V.

    The token's K and V never come out of the cache: they replace what the tile holds in that place, rounded as the
    cache rounds. To write them and read them back behind a barrier would cost the workgroups for which all others wait
    a way to the L2 cache and back. So their rows of the cache are for the next step, and one workgroup of a KV head
    writes them.

    A quad is four pairs of dimensions, in two vec4s of a head; the rows of quads are the workgroup's query heads, then K.
    load      the quads of this thread and their frequencies, a vec4 of V
    stage     quads, rotated, into `queries`; the caches' new rows
    fresh_k, fresh_v   the tile that holds the token's own key gets it, in the registers that `fetch` filled
-#}
{% import "macros/attention_decode.wgsl" as part %}
{% macro load(quad_loads, quads, rotated, heads, U, threads) %}
    let holds = end > params.position;
    let kv_heads = params.q_heads / params.group;
{% for n in range(quad_loads) %}
    let quad{{ n }} = min({{ part.plus('lane', n * threads) }}, {{ quads - 1 }}u);
    let row{{ n }} = quad{{ n }} / {{ U // 2 }}u;
    let column{{ n }} = quad{{ n }} % {{ U // 2 }}u;
    let two{{ n }} = pair(column{{ n }});
    let query_head{{ n }} = group_head + min(first_head + row{{ n }}, last_head);
    let head{{ n }} = select(query_head{{ n }}, params.q_heads + kv_head, row{{ n }} == {{ heads }}u);
    let from{{ n }} = q_start + head{{ n }} * params.q_h;
    let plain{{ n }} = mat2x4f(qkv[from{{ n }} + two{{ n }}.x], qkv[from{{ n }} + two{{ n }}.y]);
{% set frequency = "column%d" % n if rotated * 2 == U else "min(column%d, %du)" % (n, rotated - 1) %}
    let frequencies{{ n }} = inv_freq[{{ frequency }}];
{% endfor %}
    let own_v = qkv[q_start + (params.q_heads + kv_heads + kv_head) * params.q_h + column];
{% endmacro %}

{% macro stage(quad_loads, quads, rotated, heads, U, threads, cache) %}
    let writes = holds && group.y % params.rounds == 0u;
    let own = base + params.position * params.k_c;
{% for n in range(quad_loads) %}
    if ({{ part.plus('lane', n * threads) }} < {{ quads }}u) {
{% if rotated * 2 == U %}
        let turned = turn_four(params.position, frequencies{{ n }}, plain{{ n }});
{% else %}
        var turned = plain{{ n }};
        if (column{{ n }} < {{ rotated }}u) {
            turned = turn_four(params.position, frequencies{{ n }}, turned);
        }
{% endif %}
        queries[row{{ n }} * {{ U }}u + two{{ n }}.x] = turned[0];
        queries[row{{ n }} * {{ U }}u + two{{ n }}.y] = turned[1];
        if (writes && row{{ n }} == {{ heads }}u) {
            k[own + two{{ n }}.x] = vec4<{{ cache }}>(turned[0]);
            k[own + two{{ n }}.y] = vec4<{{ cache }}>(turned[1]);
        }
    }
{% endfor %}
    if (writes && lane < {{ U }}u) {
        v[own + column] = vec4<{{ cache }}>(own_v);
    }
{% endmacro %}

{% macro fresh_k(key_loads, unit_loads, heads, U, tile, threads, cache) %}
        if (params.position - start < {{ tile }}u) {
{% for j in range(key_loads) %}
            if (start + ({{ part.plus('lane', j * threads) }}) / 4u == params.position) {
{% for i in range(unit_loads) %}
                k{{ j }}_{{ i }} = vec4<{{ cache }}>(queries[{{ heads * U }}u + {{ part.unit(i, U) }}]);
{% endfor %}
            }
{% endfor %}
        }
{% endmacro %}

{% macro fresh_v(value_loads, slices, tile, cache) %}
        if (params.position - start < {{ tile }}u) {
{% for n in range(value_loads) %}
            if (start + {{ part.plus('slice', n * slices) }} == params.position) {
                v{{ n }} = vec4<{{ cache }}>(own_v);
            }
{% endfor %}
        }
{% endmacro %}
