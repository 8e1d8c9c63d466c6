{#-
purpose: the weighted sum of the materialised route
formula: y[b, t, h, d] = sum_j w[b, h, t, j] v[b, j, h / group, d] over the visible j
bindings:
  0 weights  array<f32>    [B, Hq, S, keys], -1 where not visible  read
  1 v        array<cache>  [B, C, Hkv, D]  read
  2 y        array<f32>    [B, S, Hq, D] (strides in params)  read_write
params:
  (common)  see macros/attention.wgsl; strides count elements
  n         u32  elements of y
  q_heads   u32  Hq
  head_dim  u32  D
axes:
  cache: f32, f16
  causal: bool
  window: bool
requires: none            (shader-f16 with cache=f16)
launch: a thread an element of y, 64 threads a workgroup; the grid folds to x and y
accuracy: f32, in the order of the keys; a key that is not visible is never multiplied
-#}
{% import "macros/attention.wgsl" as attention %}
{{ "enable f16;" if cache == "f16" }}

struct Params {
    {{ attention.params() }}
    n: u32,
    q_heads: u32,
    head_dim: u32,
}

@group(0) @binding(0) var<storage, read> weights: array<f32>;
@group(0) @binding(1) var<storage, read> v: array<{{ cache }}>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

{{ attention.visible(causal, window) }}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let item = (group.x + group.y * groups.x) * 64u + lane;
    if (item >= params.n) {
        return;
    }
    let d = item % params.head_dim;
    let row = item / params.head_dim;
    let token = row % params.S;
    let head = row / params.S % params.q_heads;
    let batch = row / params.S / params.q_heads;
    let start = batch * params.k_b + head / params.group * params.k_h + d;
    var o = 0.0;
    for (var j = first_key(token); j < end_key(token); j++) {
        let w = weights[row * params.keys + j];
        if (!(w == -1.0)) {
            o += w * f32(v[start + j * params.k_c]);
        }
    }
    y[batch * params.y_b + token * params.y_s + head * params.y_h + d] = o;
}
