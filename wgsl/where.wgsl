{#-
purpose: choose between two tensors by a condition, all three broadcast
formula: y[i] = cond[i] ? a[i] : b[i]
bindings:
  0 cond  array<u32>    any shape that broadcasts  read
  1 a     array<dtype>  any shape that broadcasts  read
  2 b     array<dtype>  any shape that broadcasts  read
  3 y     array<dtype>  [d0, d1, ...]  read_write
params:
  n     u32  elements of y
  d0..  u32  sizes of y, outermost first
  c0..  u32  strides of cond, elements
  a0..  u32  strides of a, elements
  b0..  u32  strides of b, elements
axes:
  dtype: f32, f16, i32, u32
  rank: 1..8
requires: none            (shader-f16 with dtype=f16)
launch: a workgroup of 256 threads computes 1024 elements; the grid of workgroups folds to x and y
accuracy: exact
-#}
{% import "macros/index.wgsl" as index %}
{% import "macros/dtype.wgsl" as type %}
{{ type.enable([dtype]) }}

struct Params {
    n: u32,
    {{ index.fields("d", rank) }}
    {{ index.fields("c", rank) }}
    {{ index.fields("a", rank) }}
    {{ index.fields("b", rank) }}
}

@group(0) @binding(0) var<storage, read> cond: array<u32>;
@group(0) @binding(1) var<storage, read> a: array<{{ dtype }}>;
@group(0) @binding(2) var<storage, read> b: array<{{ dtype }}>;
@group(0) @binding(3) var<storage, read_write> y: array<{{ dtype }}>;
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        {{ index.unravel(rank) | indent(4) }}
        let chosen = cond[{{ index.offset("c", rank) }}] != 0u;
        y[i] = select(b[{{ index.offset("b", rank) }}], a[{{ index.offset("a", rank) }}], chosen);
    }
}
