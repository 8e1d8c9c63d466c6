{#-
purpose: a constant or an arithmetic sequence
formula: y[i] = start + i * step
bindings:
  0 y  array<dtype>  [n]  read_write
params:
  n      u32    elements
  start  dtype  (f32 for f16)
  step   dtype  (f32 for f16); 0 for a constant
axes:
  dtype: f32, f16, i32, u32
requires: none            (shader-f16 with dtype=f16)
launch: a workgroup of 256 threads writes 1024 elements; the grid of workgroups folds to x and y
accuracy: exact for integers below 2^24
-#}
{% import "macros/dtype.wgsl" as type %}
{% set T = type.compute(dtype) %}
{{ type.enable([dtype]) }}

struct Params {
    n: u32,
    start: {{ T }},
    step: {{ T }},
}

@group(0) @binding(0) var<storage, read_write> y: array<{{ dtype }}>;
@group(0) @binding(1) var<uniform> params: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        y[i] = {{ type.store(dtype, "params.start + " ~ T ~ "(i) * params.step") }};
    }
}
