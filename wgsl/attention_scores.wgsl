{#-
purpose: the scores of the materialised route
formula: s[b, h, t, j] = q[b, t, h] . k[b, j, h / group] * scale, finished (soft cap, mask); LOWEST where not visible
bindings:
  0 q       array<f32>    [B, S, Hq, D] (strides in params)  read
  1 k       array<cache>  [B, C, Hkv, D]  read
  2 mask    array<f32> or array<u32>  broadcast to [B, Hq, S, C] (absent with mask=none)  read
  3 scores  array<f32>    [B, Hq, S, keys]  read_write
params:
  (common)  see macros/attention.wgsl; strides count elements
  n         u32  scores: B * Hq * S * keys
  q_heads   u32  Hq
  head_dim  u32  D
axes:
  cache: f32, f16
  mask: none, f32, u32
  causal: bool
  window: bool
  softcap: bool
requires: none            (shader-f16 with cache=f16)
launch: a thread a score, 64 threads a workgroup; the grid folds to x and y
accuracy: f32, in the order of D
-#}
{% import "macros/attention.wgsl" as attention %}
{% set at = 3 if mask != "none" else 2 %}
{{ "enable f16;" if cache == "f16" }}

struct Params {
    {{ attention.params() }}
    n: u32,
    q_heads: u32,
    head_dim: u32,
}

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<{{ cache }}>;
{% if mask != "none" %}
@group(0) @binding(2) var<storage, read> mask: array<{{ mask }}>;
{% endif %}
@group(0) @binding({{ at }}) var<storage, read_write> scores: array<f32>;
@group(0) @binding({{ at + 1 }}) var<uniform> params: Params;

{{ attention.visible(causal, window) }}
{{ attention.score(mask, softcap) }}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let item = (group.x + group.y * groups.x) * 64u + lane;
    if (item >= params.n) {
        return;
    }
    let key = item % params.keys;
    let row = item / params.keys;
    let token = row % params.S;
    let head = row / params.S % params.q_heads;
    let batch = row / params.S / params.q_heads;
    if (key < first_key(token) || key >= end_key(token)) {
        scores[item] = LOWEST;
        return;
    }
    let row_q = batch * params.q_b + token * params.q_s + head * params.q_h;
    let row_k = batch * params.k_b + key * params.k_c + head / params.group * params.k_h;
    var product = 0.0;
    for (var d = 0u; d < params.head_dim; d++) {
        product += q[row_q + d] * f32(k[row_k + d]);
    }
    scores[item] = score(product, batch, head, token, key);
}
