{#-
purpose: attention of few tokens on a GPU, the context in splits that run side by side ("flash decoding")
formula: over the keys j of a split: m = max_j s_j, l = sum_j exp(s_j - m), o = sum_j exp(s_j - m) v_j
bindings:
  0 q         array<vec4<f32>>    [B, S, Hq, D] (strides in params); to be rotated: qkv [B, 1, Hq + 2 Hkv, D]  read
  1 inv_freq  array<vec4<f32>>    [R / 2] (absent with rotary=none)  read
  2 k         array<vec4<cache>>  [B, C, Hkv, D]  read; read_write where q is rotated
  3 v         array<vec4<cache>>  [B, C, Hkv, D]  as k
  4 mask      array<f32> or array<u32>  broadcast to [B, Hq, S, C] (absent with mask=none)  read
  5 sums      array<vec4<f32>>  [B * S * Hq, splits, D] un-normalised o; with partial=False the result y  read_write
  6 stats     array<vec2<f32>>  [B * S * Hq, splits] (m, l) (absent with partial=False)  read_write
params:
  (common)  see macros/attention.wgsl; strides of q, k, y count vec4s
  q_heads   u32  Hq
  rounds    u32  workgroups that share the query heads of a KV head
  chunk     u32  keys of a split
  splits    u32  splits of this step
  magnitude f32  factor of the rotation (absent with rotary=none)
axes:
  head_dim: int           # a multiple of 4
  heads: 1..8             # query heads of a workgroup: one read of K and V serves them all
  threads: 32..256
  tile: 16..256           # keys whose K and V are in flight at a time
  cache: f32, f16
  mask: none, f32, u32
  causal: bool
  window: bool
  softcap: bool
  partial: bool
  rotary: none, half, interleaved   # for one token: does the work of wgsl/rope_qkv_update.wgsl as well
  rotary_dim: int         # R, a multiple of 8 as is D then; 0 with rotary=none
requires: none            (shader-f16 with cache=f16)
launch: grid (splits, Hkv * rounds, B * S); four threads share a key's product; slices of a tile's keys share V, each with
        its own maximum until the end. All loads of a tile are issued before the first is used: latency takes the time
        here, and a rotation hides behind it
accuracy: f32; the maximum is subtracted, so logits of any size are safe; keys that are not visible are never multiplied
-#}
{% import "macros/attention.wgsl" as attention %}
{% import "macros/attention_decode.wgsl" as part %}
{% import "macros/attention_rotary.wgsl" as rotation %}
{% import "macros/rope.wgsl" as rope %}
{% import "macros/trig.wgsl" as trig %}
{% set U = head_dim // 4 %}
{% set slices = [threads // U, tile] | min %}
{% set query_loads = (heads * U + threads - 1) // threads %}
{% set key_loads = (tile * 4 + threads - 1) // threads %}
{% set unit_loads = (U + 3) // 4 %}
{% set value_loads = (tile + slices - 1) // slices %}
{% set rotates = rotary != "none" %}
{% set rows = heads + rotates %}
{% set quads = rows * (U // 2) %}
{% set quad_loads = (quads + threads - 1) // threads %}
{% set access = "read_write" if rotates else "read" %}
{% set at = rotates + (4 if mask != "none" else 3) %}
{{ "enable f16;" if cache == "f16" }}

struct Params {
    {{ attention.params() }}
    q_heads: u32,
    rounds: u32,
    chunk: u32,
    splits: u32,
{% if rotates %}
    magnitude: f32,
{% endif %}
}

@group(0) @binding(0) var<storage, read> {{ "qkv" if rotates else "q" }}: array<vec4<f32>>;
{% if rotates %}
@group(0) @binding(1) var<storage, read> inv_freq: array<vec4<f32>>;
{% endif %}
@group(0) @binding({{ 1 + rotates }}) var<storage, {{ access }}> k: array<vec4<{{ cache }}>>;
@group(0) @binding({{ 2 + rotates }}) var<storage, {{ access }}> v: array<vec4<{{ cache }}>>;
{% if mask != "none" %}
@group(0) @binding({{ at - 1 }}) var<storage, read> mask: array<{{ mask }}>;
{% endif %}
@group(0) @binding({{ at }}) var<storage, read_write> sums: array<vec4<f32>>;
{% if partial %}
@group(0) @binding({{ at + 1 }}) var<storage, read_write> stats: array<vec2<f32>>;
{% endif %}
@group(0) @binding({{ at + 1 + partial }}) var<uniform> params: Params;

var<workgroup> queries: array<vec4<f32>, {{ rows * U }}>;{{ "   // the last row is the token's own K" if rotates }}
var<workgroup> quarters: array<f32, {{ tile * heads * 4 }}>;   // of products, [key][head][quarter]
var<workgroup> scores: array<f32, {{ heads * tile }}>;
var<workgroup> results: array<vec4<f32>, {{ slices * heads * U }}>;
var<workgroup> peaks: array<f32, {{ heads * slices }}>;
var<workgroup> totals: array<f32, {{ heads * slices }}>;

{{ attention.visible(causal, window) }}
{{ attention.score(mask, softcap) }}
{{ attention.exponential() }}
{% if rotates %}
{{ trig.rotation() }}
{{ rope.pair(U, rotary_dim // 4, rotary == "interleaved") }}
{{ rope.turn_four("params.magnitude", rotary == "interleaved") }}
{% endif %}

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
    let group_head = kv_head * params.group;
    let last_head = params.group - 1u;
    let q_start = batch * params.q_b + token * params.q_s;
    let quarter = lane % 4u;
    let column = lane % {{ U }}u;
    let slice = min(lane / {{ U }}u, {{ slices - 1 }}u);
{% if rotates %}
    // The row that this step writes is not read; at position 0 it is, for there is no other, and nothing comes of it.
    let last = max(min(end, params.position), 1u) - 1u;
    {{ rotation.load(quad_loads, quads, rotary_dim // 8, heads, U, threads) | trim }}
{% else %}
    let last = max(end, 1u) - 1u;
    {{ part.query(query_loads, heads, U, threads) | trim }}
{% endif %}
    {{ part.fetch("begin", key_loads, unit_loads, value_loads, U, slices, threads, true) | trim }}
{% if rotates %}
    {{ rotation.stage(quad_loads, quads, rotary_dim // 8, heads, U, threads, cache) | trim }}
{% else %}
    {{ part.stage_query(query_loads, heads, U, threads) | trim }}
{% endif %}
{% for g in range(heads) %}
    var peak{{ g }} = LOWEST;
    var total{{ g }} = 0.0;
    var o{{ g }} = vec4f(0.0);
{% endfor %}
    workgroupBarrier();

    for (var start = begin; start < end; start += {{ tile }}u) {
        let count = min(end - start, {{ tile }}u);
{% if rotates %}
        {{ rotation.fresh_k(key_loads, unit_loads, heads, U, tile, threads, cache) | trim }}
{% endif %}
        {{ part.products(key_loads, unit_loads, heads, U, tile, threads) | trim }}
        workgroupBarrier();
        {{ part.scores(heads, tile, threads) | trim }}
        workgroupBarrier();
{% if rotates %}
        {{ rotation.fresh_v(value_loads, slices, tile, cache) | trim }}
{% endif %}
        {{ part.values(value_loads, heads, slices, tile) | trim }}
        if (start + {{ tile }}u < end) {
            {% set next = "start + %du" % tile %}
            {{ part.fetch(next, key_loads, unit_loads, value_loads, U, slices, threads, false) | trim }}
        }
    }

    {{ part.join(heads, slices, U, threads, partial) | trim }}
}
