{#-
purpose: attention of few tokens, the context in splits that run side by side ("flash decoding")
formula: over the keys j of a split: m = max_j s_j, l = sum_j exp(s_j - m), o = sum_j exp(s_j - m) v_j
bindings:
  0 q      array<f32> or array<vec4<f32>>      [B, S, Hq, D] (strides in params)  read
  1 k      array<cache> or array<vec4<cache>>  [B, C, Hkv, D]  read
  2 v      as k                                [B, C, Hkv, D]  read
  3 mask   array<f32> or array<u32>            broadcast to [B, Hq, S, C] (absent with mask=none)  read
  4 sums   as q  [B * S * Hq, splits, D] un-normalised o; with partial=False the result y  read_write
  5 stats  array<vec2<f32>>  [B * S * Hq, splits] (m, l) (absent with partial=False)  read_write
params:
  (common)  see macros/attention.wgsl; strides of q, k, y count vec elements
  q_heads   u32  Hq
  rounds    u32  workgroups that share the query heads of a KV head
  chunk     u32  keys of a split
  splits    u32  splits of this step
axes:
  head_dim: int
  vec: 1, 4
  heads: 1..8             # query heads of a workgroup: one read of K and V serves them all
  threads: 4..256
  tile: 16..256      # keys between two barriers
  rows: 1..8           # keys that a thread works on at a time
  across: int             # threads side by side over the D of V
  cache: f32, f16
  mask: none, f32, u32
  causal: bool
  window: bool
  softcap: bool
  partial: bool
requires: none            (shader-f16 with cache=f16)
launch: grid (splits, Hkv * rounds, B * S); four threads share a key's product; threads / across slices of keys share V
accuracy: f32; the maximum is subtracted, so logits of any size are safe; keys that are not visible are never read
-#}
{% import "macros/attention.wgsl" as attention %}
{% import "macros/attention_split.wgsl" as part %}
{% set U = head_dim // vec %}
{% set T = "vec4<f32>" if vec == 4 else "f32" %}
{% set stored = "vec4<" ~ cache ~ ">" if vec == 4 else cache %}
{% set per = (U + across - 1) // across %}
{% set slices = threads // across %}
{% set parts = [[8, threads // heads] | min, 1] | max %}
{% set key_rows = threads // 4 %}
{% set pool = [tile * heads * 4, slices * heads * head_dim] | max %}
{% set at = 4 if mask != "none" else 3 %}
{{ "enable f16;" if cache == "f16" }}

struct Params {
    {{ attention.params() }}
    q_heads: u32,
    rounds: u32,
    chunk: u32,
    splits: u32,
}

@group(0) @binding(0) var<storage, read> q: array<{{ T }}>;
@group(0) @binding(1) var<storage, read> k: array<{{ stored }}>;
@group(0) @binding(2) var<storage, read> v: array<{{ stored }}>;
{% if mask != "none" %}
@group(0) @binding(3) var<storage, read> mask: array<{{ mask }}>;
{% endif %}
@group(0) @binding({{ at }}) var<storage, read_write> sums: array<{{ T }}>;
{% if partial %}
@group(0) @binding({{ at + 1 }}) var<storage, read_write> stats: array<vec2<f32>>;
{% endif %}
@group(0) @binding({{ at + 1 + partial }}) var<uniform> params: Params;

var<workgroup> queries: array<{{ T }}, {{ heads * U }}>;
var<workgroup> pool: array<f32, {{ pool }}>;        // parts of products, later parts of the output
var<workgroup> weights: array<f32, {{ heads * tile }}>;
var<workgroup> peaks: array<f32, {{ heads * ([parts, slices] | max) }}>;   // parts of maxima, later of l

{{ attention.visible(causal, window) }}
{{ attention.score(mask, softcap) }}
{{ attention.exponential() }}

@compute @workgroup_size({{ threads }})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let split = group.x;
    let kv_head = group.y / params.rounds;
    let first_head = group.y % params.rounds * {{ heads }}u;
    let batch = group.z / params.S;
    let token = group.z % params.S;
    let begin = max(first_key(token), split * params.chunk);
    let end = min(end_key(token), (split + 1u) * params.chunk);
    let base = batch * params.k_b + kv_head * params.k_h;

    // A workgroup past the last head of an uneven group works on that head again and writes the same.
    let last_head = params.group - 1u;
{% for g in range(heads) %}
    let head{{ g }} = kv_head * params.group + min(first_head + {{ g }}u, last_head);
{% endfor %}
    let q_start = batch * params.q_b + token * params.q_s;
{% for g in range(heads) %}
    for (var u = lane; u < {{ U }}u; u += {{ threads }}u) {
        queries[{{ g * U }}u + u] = q[q_start + head{{ g }} * params.q_h + u];
    }
{% endfor %}
{% for g in range(heads) %}
    var peak{{ g }} = LOWEST;
    var total{{ g }} = 0.0;
{% for n in range(per) %}
    var o{{ g }}_{{ n }} = {{ T }}(0.0);
{% endfor %}
{% endfor %}
    let quarter = lane % 4u;
    let column = lane % {{ across }}u;
    let slice = lane / {{ across }}u;
    workgroupBarrier();

    for (var start = begin; start < end; start += {{ tile }}u) {
        let count = min(end - start, {{ tile }}u);
        {{ part.products(U, heads, rows, key_rows, T, vec) }}
        {{ part.softmax(heads, threads, tile, parts, per, mask) | trim }}
{% if rows > 1 and mask == "none" %}
        let whole = select(0u, count - count % {{ rows }}u, slice < {{ slices }}u);
        {{ part.values(rows, "slice * %du" % rows, "whole", slices * rows, U, heads, tile, across, per, T, mask) }}
        let rest = count - count % {{ rows }}u + select(slice, count, slice >= {{ slices }}u);
{% else %}
        let rest = select(slice, count, slice >= {{ slices }}u);
{% endif %}
        {{ part.values(1, "rest", "count", slices, U, heads, tile, across, per, T, mask) }}
    }

    if (slice < {{ slices }}u) {
{% for g in range(heads) %}
        if (column == 0u) {
            peaks[{{ g * slices }}u + slice] = total{{ g }};
        }
{% for n in range(per) %}
        if (column + {{ n * across }}u < {{ U }}u) {
            let p = ((slice * {{ heads }}u + {{ g }}u) * {{ U }}u + column + {{ n * across }}u) * {{ vec }}u;
{% for c in range(vec) %}
            pool[p + {{ c }}u] = o{{ g }}_{{ n }}{{ "[%d]" % c if vec == 4 }};
{% endfor %}
        }
{% endfor %}
{% endfor %}
    }
    workgroupBarrier();
{% for g in range(heads) %}
    var l{{ g }} = 0.0;
    for (var i = 0u; i < {{ slices }}u; i++) {
        l{{ g }} += peaks[{{ g * slices }}u + i];
    }
{% if partial %}
    let row{{ g }} = (group.z * params.q_heads + head{{ g }}) * params.splits + split;
    if (lane == 0u) {
        stats[row{{ g }}] = vec2f(peak{{ g }}, l{{ g }});
    }
{% endif %}
    for (var u = lane; u < {{ U }}u; u += {{ threads }}u) {
        var o = {{ T }}(0.0);
        for (var i = 0u; i < {{ slices }}u; i++) {
            let p = ((i * {{ heads }}u + {{ g }}u) * {{ U }}u + u) * {{ vec }}u;
            o += {{ "vec4f(pool[p], pool[p + 1u], pool[p + 2u], pool[p + 3u])" if vec == 4 else "pool[p]" }};
        }
{% if partial %}
        sums[row{{ g }} * {{ U }}u + u] = o;
{% else %}
        let y = batch * params.y_b + token * params.y_s + head{{ g }} * params.y_h + u;
        sums[y] = select(o / l{{ g }}, {{ T }}(0.0), l{{ g }} == 0.0);
{% endif %}
    }
{% endfor %}
}
