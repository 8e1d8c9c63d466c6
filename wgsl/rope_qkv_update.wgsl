{#-
purpose: split the merged projection of a layer: rotate q, rotate k into its cache, copy v into its cache
formula: q[b, s, h] = rope(qkv[b, s, h]); k_cache[b, position + s, h] = rope(qkv[b, s, Hq + h]);
         v_cache[b, position + s, h] = qkv[b, s, Hq + Hkv + h]
bindings:
  0 qkv       array<f32>    [B, S, Hq + 2 Hkv, D]  read
  1 inv_freq  array<f32>    [R / 2]  read
  2 q         array<f32>    [B, S, Hq, D]  read_write
  3 k_cache   array<cache>  [B, C, Hkv, D]  read_write
  4 v_cache   array<cache>  [B, C, Hkv, D]  read_write
params:
  n         u32  pairs: B * S * (Hq + 2 Hkv) * D / 2
  S         u32  tokens
  C         u32  slots of the cache
  Hq        u32  query heads
  Hkv       u32  key and value heads
  position  u32  slot of the first token
  scale     f32  magnitude factor of the rotation
axes:
  head_dim: int           # D, even
  rotary_dim: int         # R, even, at most D
  interleaved: bool
  cache: f32, f16
requires: none            (shader-f16 with cache=f16)
launch: a thread a pair, 64 threads a workgroup; the grid folds to x and y
accuracy: as rope; v is copied (rounded once with cache=f16)
-#}
{% import "macros/trig.wgsl" as trig %}
{% import "macros/rope.wgsl" as rope %}
{{ "enable f16;" if cache == "f16" }}

struct Params {
    n: u32,
    S: u32,
    C: u32,
    Hq: u32,
    Hkv: u32,
    position: u32,
    scale: f32,
}

@group(0) @binding(0) var<storage, read> qkv: array<f32>;
@group(0) @binding(1) var<storage, read> inv_freq: array<f32>;
@group(0) @binding(2) var<storage, read_write> q: array<f32>;
@group(0) @binding(3) var<storage, read_write> k_cache: array<{{ cache }}>;
@group(0) @binding(4) var<storage, read_write> v_cache: array<{{ cache }}>;
@group(0) @binding(5) var<uniform> params: Params;

{{ trig.rotation() }}
{{ rope.pair(head_dim, rotary_dim, interleaved) }}
{{ rope.rotate(rotary_dim) }}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let item = (group.x + group.y * groups.x) * 64u + lane;
    if (item >= params.n) {
        return;
    }
    let heads = params.Hq + 2u * params.Hkv;
    let i = item % {{ head_dim // 2 }}u;
    let row = item / {{ head_dim // 2 }}u;
    let head = row % heads;
    let token = row / heads;
    let slot = params.position + token % params.S;
    let two = pair(i);
    let source = row * {{ head_dim }}u + two;
    let v = vec2f(qkv[source.x], qkv[source.y]);
    if (head < params.Hq) {
        let at = (token * params.Hq + head) * {{ head_dim }}u + two;
        let rotated = rotate(i, slot, v);
        q[at.x] = rotated.x;
        q[at.y] = rotated.y;
        return;
    }
    if (slot >= params.C) {
        return;
    }
    let entry = (token / params.S * params.C + slot) * params.Hkv;
    if (head < params.Hq + params.Hkv) {
        let at = (entry + head - params.Hq) * {{ head_dim }}u + two;
        let rotated = rotate(i, slot, v);
        k_cache[at.x] = {{ cache }}(rotated.x);
        k_cache[at.y] = {{ cache }}(rotated.y);
    } else {
        let at = (entry + head - params.Hq - params.Hkv) * {{ head_dim }}u + two;
        v_cache[at.x] = {{ cache }}(v.x);
        v_cache[at.y] = {{ cache }}(v.y);
    }
}
