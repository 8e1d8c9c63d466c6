{#-
purpose: sum, mean or maximum over some dimensions
formula: y[o] = reduce over r of x[sum_k o_k * o_k + sum_k r_k * r_k]
bindings:
  0 x  array<dtype>  any  read
  1 y  array<dtype>  [kept dimensions]  read_write
params:
  n        u32  elements of y
  width    u32  elements of x to one of y
  kept0..  u32  sizes of the kept dimensions, outermost first
  o0..     u32  their strides in x, elements
  gone0..  u32  sizes of the reduced dimensions
  r0..     u32  their strides in x, elements
axes:
  op: sum, mean, amax
  dtype: f32, f16, i32
  kept: 1..8
  gone: 1..8
requires: none            (shader-f16 with dtype=f16)
launch: one workgroup of 64 threads an element of y; the grid folds to x and y
accuracy: f32 (or i32) accumulation, a fixed order; a NaN gives NaN
-#}
{% import "macros/index.wgsl" as index %}
{% import "macros/dtype.wgsl" as type %}
{% import "macros/nan.wgsl" as nan %}
{% set T = type.compute(dtype) %}
{{ type.enable([dtype]) }}

struct Params {
    n: u32,
    width: u32,
    {{ index.fields("kept", kept) }}
    {{ index.fields("o", kept) }}
    {{ index.fields("gone", gone) }}
    {{ index.fields("r", gone) }}
}

@group(0) @binding(0) var<storage, read> x: array<{{ dtype }}>;
@group(0) @binding(1) var<storage, read_write> y: array<{{ dtype }}>;
@group(0) @binding(2) var<uniform> params: Params;

var<workgroup> parts: array<{{ T }}, 64>;

{% if op == "amax" and T == "f32" %}
{{ nan.is_nan() }}
{% endif %}
fn combine(a: {{ T }}, b: {{ T }}) -> {{ T }} {
{% if op != "amax" %}
    return a + b;
{% elif T == "f32" %}
    return select(max(a, b), a + b, is_nan(a) || is_nan(b));
{% else %}
    return max(a, b);
{% endif %}
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let output = group.x + group.y * groups.x;
    if (output >= params.n) {
        return;
    }
    {{ index.unravel(kept, "output", "o", "params.kept") | indent(0) }}
    let start = {{ index.offset("o", kept, "o") }};
    var total = {{ T }}({{ "0" if op != "amax" else "-3.4028234e38" if T == "f32" else "-2147483647 - 1" }});
    for (var i = lane; i < params.width; i += 64u) {
        {{ index.unravel(gone, "i", "r", "params.gone") | indent(4) }}
        let v = {{ type.load(dtype, "x[start + " ~ index.offset("r", gone, "r") ~ "]") }};
        total = combine(total, v);
    }
    parts[lane] = total;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half /= 2u) {
        if (lane < half) {
            parts[lane] = combine(parts[lane], parts[lane + half]);
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
{% set value = "parts[0] / f32(params.width)" if op == "mean" else "parts[0]" %}
        y[output] = {{ type.store(dtype, value) }};
    }
}
