{#-
purpose: softmax of each row, safe for logits of any size
formula: y[m, e] = exp(x[m, e] - max_m) / sum_e exp(x[m, e] - max_m)
bindings:
  0 x  array<dtype>  [rows, width]  read
  1 y  array<dtype>  [rows, width]  read_write
params:
  rows   u32  rows
  width  u32  elements of a row
axes:
  dtype: f32, f16
  threads: 64, 256
requires: none            (shader-f16 with dtype=f16)
launch: one workgroup a row; the grid of rows folds to x and y
accuracy: f32, the maximum subtracted first; a row of -inf gives NaN, as torch has it, and a NaN makes its row NaN
-#}
{% import "macros/reduce.wgsl" as reduce %}
{% import "macros/dtype.wgsl" as type %}
{% import "macros/nan.wgsl" as nan %}
{{ type.enable([dtype]) }}

struct Params {
    rows: u32,
    width: u32,
}

@group(0) @binding(0) var<storage, read> x: array<{{ dtype }}>;
@group(0) @binding(1) var<storage, read_write> y: array<{{ dtype }}>;
@group(0) @binding(2) var<uniform> params: Params;

{{ reduce.workgroup_sum(threads) }}
{{ reduce.workgroup_max(threads) }}
{{ nan.is_nan() }}
fn exponential(v: f32) -> f32 {
    return select(exp(v), v, is_nan(v));
}

@compute @workgroup_size({{ threads }})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let row = group.x + group.y * groups.x;
    if (row >= params.rows) {
        return;
    }
    let start = row * params.width;
    var peak = -3.4028234e38;
    for (var i = lane; i < params.width; i += {{ threads }}u) {
        peak = max(peak, {{ type.load(dtype, "x[start + i]") }});
    }
    peak = workgroup_max(lane, peak);
    var sum = 0.0;
    for (var i = lane; i < params.width; i += {{ threads }}u) {
        sum += exponential({{ type.load(dtype, "x[start + i]") }} - peak);
    }
    sum = workgroup_sum(lane, sum);
    for (var i = lane; i < params.width; i += {{ threads }}u) {
        let v = exponential({{ type.load(dtype, "x[start + i]") }} - peak) / sum;
        y[start + i] = {{ type.store(dtype, "v") }};
    }
}
