{#-
purpose: attention of many tokens without S x C scores ("flash attention")
formula: y[r] = sum_j softmax_j(q[r] . k[j] * scale) v[j], tile of keys after tile of keys, with running maximum and sum
bindings:
  0 q     array<f32>    [B, S, Hq, D] (strides in params)  read
  1 k     array<cache>  [B, C, Hkv, D]  read
  2 v     array<cache>  [B, C, Hkv, D]  read
  3 mask  array<f32> or array<u32>  broadcast to [B, Hq, S, C] (absent with mask=none)  read
  4 y     array<f32>    [B, S, Hq, D] (strides in params)  read_write
params:
  (common)  see macros/attention.wgsl; strides count elements
axes:
  head_dim: int
  rows: 1, 2, 4, 8        # rows of a thread; 32 / rows threads below each other
  columns: 4, 8           # keys, later dimensions, of a thread; 32 / columns threads side by side
  cache: f32, f16
  mask: none, f32, u32
  causal: bool
  window: bool
  softcap: bool
requires: none            (shader-f16 with cache=f16)
launch: grid (tiles of 32 rows, Hkv, B); a row is a token and one of the query heads that share a KV head, so these
        share the tiles of K and V; D goes through workgroup memory 32 at a time; tiles that no row sees are skipped
accuracy: f32; a key that a row does not see is never multiplied
-#}
{% import "macros/attention.wgsl" as attention %}
{% import "macros/attention_stream.wgsl" as part %}
{% set blocks = (head_dim + 31) // 32 %}
{% set across = 32 // columns %}
{% set threads = across * 32 // rows %}
{% set lanes = threads // 32 %}
{% set at = 4 if mask != "none" else 3 %}
{{ "enable f16;" if cache == "f16" }}

struct Params {
    {{ attention.params() }}
}

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<{{ cache }}>;
@group(0) @binding(2) var<storage, read> v: array<{{ cache }}>;
{% if mask != "none" %}
@group(0) @binding(3) var<storage, read> mask: array<{{ mask }}>;
{% endif %}
@group(0) @binding({{ at }}) var<storage, read_write> y: array<f32>;
@group(0) @binding({{ at + 1 }}) var<uniform> params: Params;

// 33 words a line: neighbouring lines start in different banks.
var<workgroup> left: array<f32, 1056>;      // Q, [d][row]
var<workgroup> right: array<f32, 1056>;     // K, [d][key], then V, [key][d]
var<workgroup> weights: array<f32, 1056>;   // [key][row]
var<workgroup> row_q: array<u32, 32>;       // where a row of Q starts
var<workgroup> peaks: array<f32, 32>;
var<workgroup> totals: array<f32, 32>;
var<workgroup> shrink: array<f32, 32>;

{{ attention.visible(causal, window) }}
{{ attention.score(mask, softcap) }}
{{ attention.exponential() }}

{% if lanes > 1 %}
var<workgroup> slice_peak: array<f32, {{ 32 * lanes }}>;
var<workgroup> slice_sum: array<f32, {{ 32 * lanes }}>;
{% else %}
// Scores of one row against the tile's keys become weights; -1 marks a key that the row does not see.
fn soften(row: u32, batch: u32, head: u32, token: u32, start: u32, keys: u32) {
    let first = first_key(token);
    let end = end_key(token);
    let before = peaks[row];
    var peak = before;
    for (var j = 0u; j < keys; j++) {
        var s = LOWEST;
        if (start + j >= first && start + j < end) {
            s = score(weights[j * 33u + row], batch, head, token, start + j);
        }
        weights[j * 33u + row] = s;
        peak = max(peak, s);
    }
    let factor = exp(before - peak);
    var total = totals[row] * factor;
    for (var j = 0u; j < keys; j++) {
        let s = weights[j * 33u + row];
        var w = -1.0;
        if (!(s == LOWEST)) {
            w = exponential(s - peak);
            total += w;
        }
        weights[j * 33u + row] = w;
    }
    peaks[row] = peak;
    totals[row] = total;
    shrink[row] = factor;
}
{% endif %}

@compute @workgroup_size({{ threads }})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let first_row = group.x * 32u;
    let rows = params.S * params.group;
    let first_head = group.y * params.group;
    let batch = group.z;
    let base = batch * params.k_b + group.y * params.k_h;
    let first_token = first_row / params.group;
    let last_token = (min(first_row + 32u, rows) - 1u) / params.group;
    let column = lane % {{ across }}u;
    let line = lane / {{ across }}u * {{ rows }}u;
    for (var i = lane; i < 32u; i += {{ threads }}u) {
        let row = min(first_row + i, rows - 1u);
        row_q[i] = batch * params.q_b + row / params.group * params.q_s
            + (first_head + row % params.group) * params.q_h;
        peaks[i] = LOWEST;
        totals[i] = 0.0;
    }
{% for i in range(rows) %}{% for n in range(blocks * columns // 4) %}
    var o{{ i }}_{{ n }} = vec4f(0.0);
{% endfor %}{% endfor %}
    workgroupBarrier();

    let end = end_key(last_token);
    for (var start = first_key(first_token) / 32u * 32u; start < end; start += 32u) {
        let keys = min(end - start, 32u);
{% for i in range(rows) %}{% for n in range(columns // 4) %}
        var product{{ i }}_{{ n }} = vec4f(0.0);
{% endfor %}{% endfor %}
        for (var d0 = 0u; d0 < {{ head_dim }}u; d0 += 32u) {
            {{ part.stage_products(threads, head_dim) | trim }}
            workgroupBarrier();
            for (var d = 0u; d < {{ [head_dim, 32] | min }}u; d++) {
                {{ part.product_step(rows, columns, across) | trim }}
            }
            workgroupBarrier();
        }
        {{ part.store_products(rows, columns, across) | trim }}
        workgroupBarrier();
{% if lanes > 1 %}
        {{ part.soften_together(lanes) | trim }}
{% else %}
        for (var i = lane; i < 32u; i += {{ threads }}u) {
            let row = min(first_row + i, rows - 1u);
            soften(i, batch, first_head + row % params.group, row / params.group, start, keys);
        }
{% endif %}
        workgroupBarrier();
{% if mask == "none" %}
        let all_visible = start >= first_key(last_token) && start + keys <= end_key(first_token);
{% endif %}
{% for block in range(blocks) %}
        {{ part.stage_values(threads, block, head_dim) | trim }}
        workgroupBarrier();
        {{ part.rescale(rows, columns, block) | trim }}
{% if mask == "none" %}
        if (all_visible) {
            {{ part.value_steps(rows, columns, across, block, false) | trim }}
        } else {
            {{ part.value_steps(rows, columns, across, block, true) | trim }}
        }
{% else %}
        {{ part.value_steps(rows, columns, across, block, true) | trim }}
{% endif %}
        workgroupBarrier();
{% endfor %}
    }
{% for i in range(rows) %}
    if (first_row + line + {{ i }}u < rows) {
        let row = first_row + line + {{ i }}u;
        let start = batch * params.y_b + row / params.group * params.y_s
            + (first_head + row % params.group) * params.y_h + column;
        let total = totals[line + {{ i }}u];
        {{ part.store_row(i, columns, across, head_dim) | trim }}
    }
{% endfor %}
}
