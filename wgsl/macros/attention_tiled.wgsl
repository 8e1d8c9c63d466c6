{#- The parts of attention_tiled's loop over tiles of keys. A thread owns `own` groups of four rows from `mine`
    on, the keys column, column + across, ... of a tile, and the vec4s column, column + across, ... of D. A vec4
    named after a key holds four rows, one named after a row holds four dimensions.

    plus                  `name + n`, or just the name
    stage_queries         Q into workgroup memory, four rows a vec4
    fetch, put            a tile of K or V into registers, ahead of its use, and from there into workgroup memory
    products              s<key>_<group> += Q K^T, four dimensions
    finish_scores         products become scores, LOWEST where a row does not see the key; tops go to `parts`
    soften                scores become weights against the new maximum; -1 marks an unseen key
    value_step            o<row>_<unit> += weight times V of one key; `guarded` skips the rows that do not see it
-#}
{% macro plus(name, n) -%}
{{ name }}{{ " + %du" % n if n }}
{%- endmacro %}

{% macro stage_queries(U, groups, threads) %}
for (var i = lane; i < {{ groups * U }}u; i += {{ threads }}u) {
        let d = i % {{ U }}u;
        let g = i / {{ U }}u;
{% for c in range(4) %}
        let q{{ c }} = q[row_start(min({{ plus('first_row + g * 4u', c) }}, last_row), first_head, batch) + d];
{% endfor %}
{% for c in range(4) %}
        queries[({{ plus('d * 4u', c) }}) * {{ groups }}u + g] = vec4f(q0[{{ c }}], q1[{{ c }}], q2[{{ c }}], q3[{{ c }}]);
{% endfor %}
    }
{% endmacro %}

{% macro fetch(name, source, start, loads, U, threads, declare) %}
{% for n in range(loads) %}
{% set i = "(%s)" % plus("lane", n * threads) if n else "lane" %}
        {{ "let " if declare }}{{ name }}{{ n }} = {{ source }}[base + {{ i }} % {{ U }}u
            + min({{ start }} + {{ i }} / {{ U }}u, end - 1u) * params.k_c];
{% endfor %}
{% endmacro %}

{% macro put(target, name, loads, keys, U, stride, threads) %}
{% for n in range(loads) %}
{% set i = "(%s)" % plus("lane", n * threads) if n else "lane" %}
{% set line = "%s[%s / %du * %du + %s %% %du] = vec4f(%s%d);" % (target, i, U, stride, i, U, name, n) %}
{% if (n + 1) * threads > keys * U %}
        if ({{ i }} < {{ keys * U }}u) {
            {{ line }}
        }
{% else %}
        {{ line }}
{% endif %}
{% endfor %}
{% endmacro %}

{% macro products(span, own, across, stride, groups) %}
{% for j in range(span) %}
            let k{{ j }} = tile[({{ plus('column', j * across) }}) * {{ stride }}u + u];
{% endfor %}
{% for c in range(4) %}{% for b in range(own) %}
            let q{{ c }}_{{ b }} = queries[({{ plus('u * 4u', c) }}) * {{ groups }}u + {{ plus('mine', b) }}];
{% for j in range(span) %}
            s{{ j }}_{{ b }} += q{{ c }}_{{ b }} * k{{ j }}[{{ c }}];
{% endfor %}
{% endfor %}{% endfor %}
{% endmacro %}

{% macro finish_scores(span, own, across, groups, causal, window, mask) %}
{% for b in range(own) %}
        var top{{ b }} = vec4f(LOWEST);
{% for j in range(span) %}
        {
            let key = start + {{ plus('column', j * across) }};
            let seen = (vec4u(key) < to{{ b }}){{ " & (vec4u(key) >= from%d)" % b if window }};
{% for c in range(4) %}
{% set s = "s%d_%d[%d]" % (j, b, c) %}
{% if mask == "none" %}
            {{ s }} = select(LOWEST, score({{ s }}, 0u, 0u, 0u, key), seen[{{ c }}]);
{% else %}
            if (seen[{{ c }}]) {
                {{ s }} = score({{ s }}, batch, head{{ b }}[{{ c }}], token{{ b }}[{{ c }}], key);
            } else {
                {{ s }} = LOWEST;
            }
{% endif %}
{% endfor %}
            top{{ b }} = max(top{{ b }}, s{{ j }}_{{ b }});
        }
{% endfor %}
        parts[column * {{ groups }}u + {{ plus('mine', b) }}] = top{{ b }};
{% endfor %}
{% endmacro %}

{% macro soften(span, own, across, groups, pitch) %}
{% for b in range(own) %}
        var new{{ b }} = peak{{ b }};
        for (var i = 0u; i < {{ across }}u; i++) {
            new{{ b }} = max(new{{ b }}, parts[i * {{ groups }}u + {{ plus('mine', b) }}]);
        }
        let shrink{{ b }} = exp(peak{{ b }} - new{{ b }});
        peak{{ b }} = new{{ b }};
        total{{ b }} *= shrink{{ b }};
{% for j in range(span) %}
        {
            let hidden = s{{ j }}_{{ b }} == vec4f(LOWEST);
            let w = exponential(s{{ j }}_{{ b }} - peak{{ b }});
            total{{ b }} += select(w, vec4f(0.0), hidden);
            weights[({{ plus('column', j * across) }}) * {{ pitch }}u + {{ plus('mine', b) }}]
                = select(w, vec4f(-1.0), hidden);
        }
{% endfor %}
{% endfor %}
{% endmacro %}

{% macro value_step(j, values, own, per, stride, pitch, guarded) %}
{% for n in range(per) %}
                let v{{ n }} = {{ values }}[{{ j }} * {{ stride }}u + unit{{ n }}];
{% endfor %}
{% for b in range(own) %}
                let w{{ b }} = weights[{{ j }} * {{ pitch }}u + {{ plus('mine', b) }}];
{% for c in range(4) %}
{% if guarded %}
                if (!(w{{ b }}[{{ c }}] == -1.0)) {
{% for n in range(per) %}
                    o{{ 4 * b + c }}_{{ n }} += w{{ b }}[{{ c }}] * v{{ n }};
{% endfor %}
                }
{% else %}
{% for n in range(per) %}
                o{{ 4 * b + c }}_{{ n }} += w{{ b }}[{{ c }}] * v{{ n }};
{% endfor %}
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}
