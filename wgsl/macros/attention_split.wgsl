{#- The parts of attention_split's loop over tiles of keys; `count` keys from `start` on.

    products(...)   four threads share a key: each writes its quarter of the products of all heads to `pool`
    softmax(...)    scores, their maximum, and the weights exp(score - maximum) in `weights`; -1 marks an invisible key
    values(...)     adds weight times V to the sums o<head>_<unit> of this thread
-#}
{% macro products(U, heads, rows, key_rows, T, vec) -%}
for (var r = lane / 4u; r < count; r += {{ key_rows * rows }}u) {
{% for j in range(rows) %}
            let at{{ j }} = base + (start + min(r + {{ j * key_rows }}u, count - 1u)) * params.k_c;
{% endfor %}
{% for g in range(heads) %}{% for j in range(rows) %}
            var s{{ g }}_{{ j }} = 0.0;
{% endfor %}{% endfor %}
            for (var u = quarter; u < {{ U }}u; u += 4u) {
{% for j in range(rows) %}
                let k{{ j }} = {{ T }}(k[at{{ j }} + u]);
{% endfor %}
{% for g in range(heads) %}
                let q{{ g }} = queries[{{ g * U }}u + u];
{% for j in range(rows) %}
                s{{ g }}_{{ j }} += {{ "dot(q%d, k%d)" % (g, j) if vec == 4 else "q%d * k%d" % (g, j) }};
{% endfor %}
{% endfor %}
            }
{% for j in range(rows) %}
            if (r + {{ j * key_rows }}u < count) {
                let p = (r + {{ j * key_rows }}u) * {{ heads * 4 }}u + quarter;
{% for g in range(heads) %}
                pool[p + {{ g * 4 }}u] = s{{ g }}_{{ j }};
{% endfor %}
            }
{% endfor %}
        }
        workgroupBarrier();
{%- endmacro %}

{% macro softmax(heads, threads, tile, parts, per, mask) -%}
{% for g in range(heads) %}
        for (var i = lane; i < count; i += {{ threads }}u) {
            let p = i * {{ heads * 4 }}u + {{ g * 4 }}u;
            let product = (pool[p] + pool[p + 1u]) + (pool[p + 2u] + pool[p + 3u]);
            weights[{{ g * tile }}u + i] = score(product, batch, head{{ g }}, token, start + i);
        }
{% endfor %}
        workgroupBarrier();
        for (var p = lane; p < {{ heads * parts }}u; p += {{ threads }}u) {
            var peak = LOWEST;
            for (var i = p % {{ parts }}u; i < count; i += {{ parts }}u) {
                peak = max(peak, weights[p / {{ parts }}u * {{ tile }}u + i]);
            }
            peaks[p] = peak;
        }
        workgroupBarrier();
{% for g in range(heads) %}
        var new{{ g }} = peak{{ g }};
        for (var i = 0u; i < {{ parts }}u; i++) {
            new{{ g }} = max(new{{ g }}, peaks[{{ g * parts }}u + i]);
        }
        let shrink{{ g }} = exp(peak{{ g }} - new{{ g }});
        peak{{ g }} = new{{ g }};
        total{{ g }} *= shrink{{ g }};
{% for n in range(per) %}
        o{{ g }}_{{ n }} *= shrink{{ g }};
{% endfor %}
        for (var i = lane; i < count; i += {{ threads }}u) {
            let s = weights[{{ g * tile }}u + i];
{% if mask == "none" %}
            weights[{{ g * tile }}u + i] = exponential(s - peak{{ g }});
{% else %}
            weights[{{ g * tile }}u + i] = select(exponential(s - peak{{ g }}), -1.0, s == LOWEST);
{% endif %}
        }
{% endfor %}
        workgroupBarrier();
{%- endmacro %}

{% macro values(keys, first, end, step, U, heads, tile, across, per, T, mask) -%}
for (var i = {{ first }}; i < {{ end }}; i += {{ step }}u) {
            let row = base + (start + i) * params.k_c + column;
{% for g in range(heads) %}{% for j in range(keys) %}
            let w{{ g }}_{{ j }} = weights[i + {{ g * tile + j }}u];
{% endfor %}{% endfor %}
{% if mask == "none" %}
{% for g in range(heads) %}
            total{{ g }} += {% for j in range(keys) %}{{ " + " if j }}w{{ g }}_{{ j }}{% endfor %};
{% endfor %}
{% endif %}
{% for n in range(per) %}
{% set unit = n * across ~ "u" if U % across == 0 or n < per - 1 else
    "select(0u, %du, column < %du)" % (n * across, U - n * across) %}
{% for j in range(keys) %}
            let v{{ n }}_{{ j }} = {{ T }}(v[row + {{ unit }}{{ " + %du * params.k_c" % j if j }}]);
{% endfor %}
{% if mask == "none" %}
{% for g in range(heads) %}
            o{{ g }}_{{ n }} += {% for j in range(keys) %}
{{- " + " if j }}w{{ g }}_{{ j }} * v{{ n }}_{{ j }}{% endfor %};
{% endfor %}
{% endif %}
{% endfor %}
{% if mask != "none" %}
{% for g in range(heads) %}
            if (!(w{{ g }}_0 == -1.0)) {
                total{{ g }} += w{{ g }}_0;
{% for n in range(per) %}
                o{{ g }}_{{ n }} += w{{ g }}_0 * v{{ n }}_0;
{% endfor %}
            }
{% endfor %}
{% endif %}
        }
{%- endmacro %}
