{#-
purpose: RMS normalisation of each row
formula: y[m, e] = x[m, e] * rsqrt(mean_e(x[m, e]^2) + eps) * weight[e]
bindings:
  0 x       array<vec4<dtype>> or array<dtype>  [rows, width]  read
  1 weight  array<vec4<f32>> or array<f32>      [width] (absent with weight=False)  read
  2 y       as x  [rows, width]  read_write
params:
  rows   u32  rows
  units  u32  width / vec
  width  f32  elements of a row
  eps    f32  added to the mean square
axes:
  dtype: f32, f16
  vec: 1, 4
  threads: 64, 256
  weight: bool
requires: none            (shader-f16 with dtype=f16)
launch: one workgroup a row; the grid of rows folds to x and y. Rows never meet: a row has the same bits in any company
accuracy: f32 sum of squares in a fixed order (a thread's elements, then two levels over the threads)
-#}
{% import "macros/reduce.wgsl" as reduce %}
{% set S = "vec4<" ~ dtype ~ ">" if vec == 4 else dtype %}
{% set T = "vec4<f32>" if vec == 4 else "f32" %}
{{ "enable f16;" if dtype == "f16" }}

struct Params {
    rows: u32,
    units: u32,
    width: f32,
    eps: f32,
}

@group(0) @binding(0) var<storage, read> x: array<{{ S }}>;
{% if weight %}
@group(0) @binding(1) var<storage, read> weight: array<{{ T }}>;
{% endif %}
@group(0) @binding({{ 2 if weight else 1 }}) var<storage, read_write> y: array<{{ S }}>;
@group(0) @binding({{ 3 if weight else 2 }}) var<uniform> params: Params;

{{ reduce.workgroup_sum(threads) }}

@compute @workgroup_size({{ threads }})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let row = group.x + group.y * groups.x;
    if (row >= params.rows) {
        return;
    }
    let start = row * params.units;
    var squares = 0.0;
    for (var i = lane; i < params.units; i += {{ threads }}u) {
        let v = {{ T }}(x[start + i]);
        squares += {{ "dot(v, v)" if vec == 4 else "v * v" }};
    }
    let scale = inverseSqrt(workgroup_sum(lane, squares) / params.width + params.eps);
    for (var i = lane; i < params.units; i += {{ threads }}u) {
        let v = {{ T }}(x[start + i]) * scale{{ " * weight[i]" if weight }};
        y[start + i] = {{ S }}(v);
    }
}
