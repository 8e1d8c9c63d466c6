{#- The parts of attention_stream's loop over tiles of 32 keys. A thread owns `rows` lines from `line` on and the columns
    column, column + across, ...; threads side by side read side by side.

    stage_products, stage_values    bring 32 x 32 of Q and K, or of V, into workgroup memory
    product_step, store_products    one d of Q K^T; the products to `weights`
    soften_together                 scores become weights, a row shared by `lanes` threads; -1 marks an unseen key
    rescale, value_steps            the sums o<row>_<n> shrink to the new maximum, then gain weight times V;
                                    `guarded` skips the keys that a row does not see
    store_row                       a row of the result
-#}
{% macro stage_products(threads, head_dim) %}
for (var i = lane; i < 1024u; i += {{ threads }}u) {
                let d = d0 + i % 32u;
                let to = i % 32u * 33u + i / 32u;
                let row_k = base + (start + min(i / 32u, keys - 1u)) * params.k_c;
{% if head_dim % 32 %}
                let at = min(d, {{ head_dim - 1 }}u);
                left[to] = select(0.0, q[row_q[i / 32u] + at], d < {{ head_dim }}u);
                right[to] = select(0.0, f32(k[row_k + at]), d < {{ head_dim }}u);
{% else %}
                left[to] = q[row_q[i / 32u] + d];
                right[to] = f32(k[row_k + d]);
{% endif %}
            }
{% endmacro %}

{% macro product_step(rows, columns, across) %}
{% for n in range(columns // 4) %}
                let r{{ n }} = vec4f({% for c in range(4) %}
{{- ", " if c }}right[d * 33u + column + {{ (4 * n + c) * across }}u]{% endfor %});
{% endfor %}
{% for i in range(rows) %}
                let l{{ i }} = left[d * 33u + line + {{ i }}u];
{% for n in range(columns // 4) %}
                product{{ i }}_{{ n }} += l{{ i }} * r{{ n }};
{% endfor %}
{% endfor %}
{% endmacro %}

{% macro store_products(rows, columns, across) %}
{% for i in range(rows) %}{% for c in range(columns) %}
        weights[(column + {{ c * across }}u) * 33u + line + {{ i }}u] = product{{ i }}_{{ c // 4 }}[{{ c % 4 }}];
{% endfor %}{% endfor %}
{% endmacro %}

{% macro soften_together(lanes) %}
let own = lane % 32u;
        let slice = lane / 32u;
        let own_row = min(first_row + own, rows - 1u);
        let token = own_row / params.group;
        let seen_from = first_key(token);
        let seen_to = end_key(token);
        let before = peaks[own];
        var peak = LOWEST;
        for (var j = slice; j < keys; j += {{ lanes }}u) {
            var s = LOWEST;
            if (start + j >= seen_from && start + j < seen_to) {
                s = score(weights[j * 33u + own], batch, first_head + own_row % params.group, token, start + j);
            }
            weights[j * 33u + own] = s;
            peak = max(peak, s);
        }
        slice_peak[lane] = peak;
        workgroupBarrier();
        peak = before;
        for (var i = own; i < {{ 32 * lanes }}u; i += 32u) {
            peak = max(peak, slice_peak[i]);
        }
        var sum = 0.0;
        for (var j = slice; j < keys; j += {{ lanes }}u) {
            let s = weights[j * 33u + own];
            var w = -1.0;
            if (!(s == LOWEST)) {
                w = exponential(s - peak);
                sum += w;
            }
            weights[j * 33u + own] = w;
        }
        slice_sum[lane] = sum;
        workgroupBarrier();
        if (slice == 0u) {
            let factor = exp(before - peak);
            var total = totals[own] * factor;
            for (var i = own; i < {{ 32 * lanes }}u; i += 32u) {
                total += slice_sum[i];
            }
            peaks[own] = peak;
            totals[own] = total;
            shrink[own] = factor;
        }
{% endmacro %}

{% macro stage_values(threads, block, head_dim) %}
for (var i = lane; i < keys * 32u; i += {{ threads }}u) {
{% if head_dim < 32 * (block + 1) %}
            let d = min({{ block * 32 }}u + i % 32u, {{ head_dim - 1 }}u);
{% else %}
            let d = {{ block * 32 }}u + i % 32u;
{% endif %}
            right[i / 32u * 33u + i % 32u] = f32(v[base + (start + i / 32u) * params.k_c + d]);
        }
{% endmacro %}

{% macro rescale(rows, columns, block) %}
{% for i in range(rows) %}{% for n in range(columns // 4) %}
        o{{ i }}_{{ block * (columns // 4) + n }} *= shrink[line + {{ i }}u];
{% endfor %}{% endfor %}
{% endmacro %}

{% macro value_steps(rows, columns, across, block, guarded) %}
for (var j = 0u; j < keys; j++) {
{% for n in range(columns // 4) %}
                let v{{ n }} = vec4f({% for c in range(4) %}
{{- ", " if c }}right[j * 33u + column + {{ (4 * n + c) * across }}u]{% endfor %});
{% endfor %}
{% for i in range(rows) %}
                let w{{ i }} = weights[j * 33u + line + {{ i }}u];
{% if guarded %}
                if (!(w{{ i }} == -1.0)) {
{% for n in range(columns // 4) %}
                    o{{ i }}_{{ block * (columns // 4) + n }} += w{{ i }} * v{{ n }};
{% endfor %}
                }
{% else %}
{% for n in range(columns // 4) %}
                o{{ i }}_{{ block * (columns // 4) + n }} += w{{ i }} * v{{ n }};
{% endfor %}
{% endif %}
{% endfor %}
            }
{% endmacro %}

{% macro store_row(i, columns, across, head_dim) %}
{% for block in range((head_dim + 31) // 32) %}{% for c in range(columns) %}
{% set value = "o%d_%d[%d] / total" % (i, block * (columns // 4) + c // 4, c % 4) %}
{% set d = 32 * block + c * across %}
{% if d + across > head_dim %}
        if (column + {{ d }}u < {{ head_dim }}u) {
            y[start + {{ d }}u] = select({{ value }}, 0.0, total == 0.0);
        }
{% else %}
        y[start + {{ d }}u] = select({{ value }}, 0.0, total == 0.0);
{% endif %}
{% endfor %}{% endfor %}
{% endmacro %}
