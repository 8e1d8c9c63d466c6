{#-
purpose: copy elements from one strided layout to another, converting the type
formula: y[y_start + sum_k i_k * y_k] = dst(x[x_start + sum_k i_k * x_k]) for every index i of [d0, d1, ...]
bindings:
  0 x  array<src>  any  read
  1 y  array<dst>  any  read_write
params:
  n        u32  elements to copy
  x_start  u32  first element read
  y_start  u32  first element written
  d0..     u32  sizes, outermost first
  x0..     u32  strides of x, elements (0 = repeated)
  y0..     u32  strides of y, elements
axes:
  src: f32, f16, i32, u32
  dst: f32, f16, i32, u32
  rank: 1..8
requires: none            (shader-f16 with f16)
launch: a workgroup of 256 threads copies 1024 elements; the grid of workgroups folds to x and y
accuracy: exact; a conversion to u32 is truth (0 or 1), float to integer truncates
-#}
{% import "macros/index.wgsl" as index %}
{% import "macros/dtype.wgsl" as type %}
{{ type.enable([src, dst]) }}

struct Params {
    n: u32,
    x_start: u32,
    y_start: u32,
    {{ index.fields("d", rank) }}
    {{ index.fields("x", rank) }}
    {{ index.fields("y", rank) }}
}

@group(0) @binding(0) var<storage, read> x: array<{{ src }}>;
@group(0) @binding(1) var<storage, read_write> y: array<{{ dst }}>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        {{ index.unravel(rank) | indent(4) }}
        let v = x[params.x_start + {{ index.offset("x", rank) }}];
        y[params.y_start + {{ index.offset("y", rank) }}] = {{ type.convert(src, dst, "v") }};
    }
}
