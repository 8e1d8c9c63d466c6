{#-
purpose: the softmax of the materialised route
formula: w[r, j] = exp(s[r, j] - max_r) / sum_j exp(s[r, j] - max_r); -1 where the key is not visible
bindings:
  0 scores   array<f32>  [rows, keys]  read
  1 weights  array<f32>  [rows, keys]  read_write
params:
  rows  u32  B * Hq * S
  keys  u32  keys
axes: none
requires: none
launch: a workgroup of 64 threads a row; the grid of rows folds to x and y
accuracy: f32, the maximum subtracted first; a NaN makes its row NaN
-#}
{% import "macros/attention.wgsl" as attention %}
{% import "macros/reduce.wgsl" as reduce %}
struct Params {
    rows: u32,
    keys: u32,
}

const LOWEST = -3.4028234e38;

@group(0) @binding(0) var<storage, read> scores: array<f32>;
@group(0) @binding(1) var<storage, read_write> weights: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

{{ reduce.workgroup_sum(64) }}
{{ reduce.workgroup_max(64) }}
{{ attention.exponential() }}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let row = group.x + group.y * groups.x;
    if (row >= params.rows) {
        return;
    }
    let start = row * params.keys;
    var peak = LOWEST;
    for (var j = lane; j < params.keys; j += 64u) {
        peak = max(peak, scores[start + j]);
    }
    peak = workgroup_max(lane, peak);
    var total = 0.0;
    for (var j = lane; j < params.keys; j += 64u) {
        let s = scores[start + j];
        if (!(s == LOWEST)) {
            total += exponential(s - peak);
        }
    }
    total = workgroup_sum(lane, total);
    for (var j = lane; j < params.keys; j += 64u) {
        let s = scores[start + j];
        weights[start + j] = select(exponential(s - peak) / total, -1.0, s == LOWEST);
    }
}
