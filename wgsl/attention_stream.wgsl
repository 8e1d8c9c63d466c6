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
  kv_heads  u32  Hkv
axes:
  head_dim: int
  cache: f32, f16
  mask: none, f32, u32
  causal: bool
  window: bool
  softcap: bool
requires: none            (shader-f16 with cache=f16)
launch: grid (tiles of 32 rows, Hkv, B); a row is a token and one of the query heads that share a KV head, so these share
        the tiles of K and V; 8 x 8 threads compute 4 rows by 4 columns each; tiles of keys that no row sees are skipped
accuracy: f32; a key that a row does not see is never multiplied
-#}
{% import "macros/attention.wgsl" as attention %}
{% set depth = 32 %}
{% set blocks = (head_dim + 31) // 32 %}
{% set tail = head_dim % 32 != 0 %}
{% set at = 4 if mask != "none" else 3 %}
{{ "enable f16;" if cache == "f16" }}

struct Params {
    {{ attention.params() }}
    kv_heads: u32,
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
var<workgroup> halves: array<f32, 64>;      // maxima, later sums, of half a line each
var<workgroup> shrink: array<f32, 32>;

{{ attention.visible(causal, window) }}
{{ attention.score(mask, softcap) }}
{{ attention.exponential() }}

{% macro accumulate(guarded, block) %}
            for (var j = 0u; j < keys; j++) {
{% for i in range(4) %}
                let w{{ i }} = weights[j * 33u + line + {{ i }}u];
{% endfor %}
{% for c in range(4) %}
                let v{{ c }} = right[j * 33u + column + {{ 8 * c }}u];
{% endfor %}
{% for i in range(4) %}
{% if guarded %}
                if (w{{ i }} != -1.0) {
                    o{{ i }}_{{ block }} += w{{ i }} * vec4f(v0, v1, v2, v3);
                }
{% else %}
                o{{ i }}_{{ block }} += w{{ i }} * vec4f(v0, v1, v2, v3);
{% endif %}
{% endfor %}
            }
{% endmacro %}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let first_row = group.x * 32u;
    let rows = params.S * params.group;
    let last_token = (min(first_row + 32u, rows) - 1u) / params.group;
    let first_token = min(first_row, rows - 1u) / params.group;
    let batch = group.z;
    let base = batch * params.k_b + group.y * params.k_h;
    let column = lane % 8u;
    let line = lane / 8u * 4u;

    // The line whose softmax this thread does (the lower or upper half of its keys).
    let my_row = min(first_row + lane % 32u, rows - 1u);
    let my_token = my_row / params.group;
    let my_head = group.y * params.group + my_row % params.group;
    let my_first = first_key(my_token);
    let my_end = end_key(my_token);
    let my_half = lane / 32u * 16u;
    var peak = LOWEST;
    var total = 0.0;

{% for i in range(4) %}{% for block in range(blocks) %}
    var o{{ i }}_{{ block }} = vec4f(0.0);
{% endfor %}{% endfor %}
    let end = end_key(last_token);
    let sure_end = end_key(first_token);
    let sure_first = first_key(last_token);
    for (var start = first_key(first_token) / 32u * 32u; start < end; start += 32u) {
        let keys = min(end - start, 32u);
{% for i in range(4) %}
        var product{{ i }} = vec4f(0.0);
{% endfor %}
        for (var d0 = 0u; d0 < {{ head_dim }}u; d0 += 32u) {
            for (var i = lane; i < 1024u; i += 64u) {
                let d = d0 + i % 32u;
                let row = min(first_row + i / 32u, rows - 1u);
                let row_q = batch * params.q_b + row / params.group * params.q_s
                    + (group.y * params.group + row % params.group) * params.q_h;
                let row_k = base + (start + min(i / 32u, keys - 1u)) * params.k_c;
{% if tail %}
                let inside = d < {{ head_dim }}u;
                let at = min(d, {{ head_dim - 1 }}u);
                left[i % 32u * 33u + i / 32u] = select(0.0, q[row_q + at], inside);
                right[i % 32u * 33u + i / 32u] = select(0.0, f32(k[row_k + at]), inside);
{% else %}
                left[i % 32u * 33u + i / 32u] = q[row_q + d];
                right[i % 32u * 33u + i / 32u] = f32(k[row_k + d]);
{% endif %}
            }
            workgroupBarrier();
            for (var d = 0u; d < 32u; d++) {
                let r = vec4f(right[d * 33u + column], right[d * 33u + column + 8u],
                              right[d * 33u + column + 16u], right[d * 33u + column + 24u]);
{% for i in range(4) %}
                product{{ i }} += left[d * 33u + line + {{ i }}u] * r;
{% endfor %}
            }
            workgroupBarrier();
        }
{% for i in range(4) %}{% for c in range(4) %}
        weights[(column + {{ 8 * c }}u) * 33u + line + {{ i }}u] = product{{ i }}[{{ c }}];
{% endfor %}{% endfor %}
        workgroupBarrier();

        var high = peak;
        for (var j = my_half; j < min(my_half + 16u, keys); j++) {
            let key = start + j;
            var s = LOWEST;
            if (key >= my_first && key < my_end) {
                s = score(weights[j * 33u + lane % 32u], batch, my_head, my_token, key);
            }
            weights[j * 33u + lane % 32u] = s;
            high = max(high, s);
        }
        halves[lane] = high;
        workgroupBarrier();
        high = max(halves[lane % 32u], halves[lane % 32u + 32u]);
        let factor = exp(peak - high);
        peak = high;
        total *= factor;
        if (lane < 32u) {
            shrink[lane] = factor;
        }
        for (var j = my_half; j < min(my_half + 16u, keys); j++) {
            let s = weights[j * 33u + lane % 32u];
            var w = -1.0;
            if (s != LOWEST) {
                w = exponential(s - high);
                total += w;
            }
            weights[j * 33u + lane % 32u] = w;
        }
        workgroupBarrier();
        let all_visible = {{ "false" if mask != "none" else "start >= sure_first && start + keys <= sure_end" }};
{% for block in range(blocks) %}
        for (var i = lane; i < keys * 32u; i += 64u) {
            let d = {{ block * 32 }}u + i % 32u;
{% if tail and block == blocks - 1 %}
            let value = f32(v[base + (start + i / 32u) * params.k_c + min(d, {{ head_dim - 1 }}u)]);
{% else %}
            let value = f32(v[base + (start + i / 32u) * params.k_c + d]);
{% endif %}
            right[i / 32u * 33u + i % 32u] = value;
        }
        workgroupBarrier();
{% for i in range(4) %}
        o{{ i }}_{{ block }} *= shrink[line + {{ i }}u];
{% endfor %}
        if (all_visible) {
            {{ accumulate(false, block) | trim }}
        } else {
            {{ accumulate(true, block) | trim }}
        }
        workgroupBarrier();
{% endfor %}
    }

    halves[lane] = total;
    workgroupBarrier();
{% for i in range(4) %}
    let row{{ i }} = first_row + line + {{ i }}u;
    if (row{{ i }} < rows) {
        let sum = halves[line + {{ i }}u] + halves[line + {{ i + 32 }}u];
        let output = batch * params.y_b + row{{ i }} / params.group * params.y_s
            + (group.y * params.group + row{{ i }} % params.group) * params.y_h + column;
{% for block in range(blocks) %}{% for c in range(4) %}
{% if tail and block == blocks - 1 %}
        if (column + {{ block * 32 + 8 * c }}u < {{ head_dim }}u) {
            y[output + {{ block * 32 + 8 * c }}u] = select(o{{ i }}_{{ block }}[{{ c }}] / sum, 0.0, sum == 0.0);
        }
{% else %}
        y[output + {{ block * 32 + 8 * c }}u] = select(o{{ i }}_{{ block }}[{{ c }}] / sum, 0.0, sum == 0.0);
{% endif %}
{% endfor %}{% endfor %}
    }
{% endfor %}
}
