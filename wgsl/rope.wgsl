{#-
purpose: rotary position embedding
formula: for pair i < R/2 at token s: angle = (position + s) * inv_freq[i];
         y_a = (x_a cos - x_b sin) * scale, y_b = (x_b cos + x_a sin) * scale; dimensions from R on are copied
bindings:
  0 x         array<f32>  [B, S, H, D]  read
  1 inv_freq  array<f32>  [R / 2]  read
  2 y         array<f32>  [B, S, H, D]  read_write
params:
  n         u32  pairs: B * S * H * D / 2
  S         u32  tokens
  H         u32  heads
  position  u32  position of the first token
  scale     f32  magnitude factor (YaRN), 1 otherwise
axes:
  head_dim: int           # D, even
  rotary_dim: int         # R, even, at most D
  interleaved: bool       # pairs (2i, 2i + 1); otherwise (i, i + R/2)
requires: none
launch: a thread a pair, 64 threads a workgroup; the grid folds to x and y
accuracy: the angle modulo a turn is exact to 2^-31 turns at any position, sine and cosine to 1e-7
-#}
{% import "macros/trig.wgsl" as trig %}
{% import "macros/rope.wgsl" as rope %}
struct Params {
    n: u32,
    S: u32,
    H: u32,
    position: u32,
    scale: f32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> inv_freq: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

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
    let i = item % {{ head_dim // 2 }}u;
    let head = item / {{ head_dim // 2 }}u;
    let token = head / params.H % params.S;
    let at = head * {{ head_dim }}u + pair(i);
    let rotated = rotate(i, params.position + token, vec2f(x[at.x], x[at.y]));
    y[at.x] = rotated.x;
    y[at.y] = rotated.y;
}
