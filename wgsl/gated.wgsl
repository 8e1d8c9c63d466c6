{#-
purpose: the activation of a gated MLP over a row that holds gate and up side by side
formula: y[m, f] = act(h[m, f]) * h[m, width + f]
bindings:
  0 h  array<f32>  [rows, 2 * width]  read
  1 y  array<f32>  [rows, width]      read_write
params:
  n      u32  elements of y
  width  u32  outputs of a row
axes:
  act: silu, gelu_tanh
requires: none
launch: a thread an element; the grid folds over y
accuracy: f32
-#}
{% import "macros/linear.wgsl" as linear with context %}
@group(0) @binding(0) var<storage, read> h: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
struct Params {
    n: u32,
    width: u32,
}
@group(0) @binding(2) var<uniform> params: Params;

{{ linear.activate() }}
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let i = (group.x + group.y * groups.x) * 256u + thread;
    if (i >= params.n) {
        return;
    }
    let gate = i + i / params.width * params.width;
    y[i] = activate(h[gate]) * h[gate + params.width];
}
