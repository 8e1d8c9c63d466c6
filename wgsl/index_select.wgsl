{#-
purpose: gather slices of a dimension by index
formula: y[o, j, r] = x[o, ids[j], r]
bindings:
  0 x    array<dtype>  [outer, size, inner]  read
  1 ids  array<i32>    [count]  read
  2 y    array<dtype>  [outer, count, inner]  read_write
params:
  n      u32  elements of y
  size   u32  length of the indexed dimension of x
  count  u32  indices
  inner  u32  elements after the indexed dimension
  nan    u32  the bits of a NaN (WGSL has no literal for it)
axes:
  dtype: f32, i32, u32
requires: none
launch: a workgroup of 256 threads writes 1024 elements; the grid of workgroups folds to x and y
accuracy: exact; an index outside the dimension gives NaN (f32) or 0, never a neighbour's value
-#}
struct Params {
    n: u32,
    size: u32,
    count: u32,
    inner: u32,
    nan: u32,
}

@group(0) @binding(0) var<storage, read> x: array<{{ dtype }}>;
@group(0) @binding(1) var<storage, read> ids: array<i32>;
@group(0) @binding(2) var<storage, read_write> y: array<{{ dtype }}>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        let slice = i / params.inner;
        let id = ids[slice % params.count];
        let known = id >= 0 && id < i32(params.size);
        let row = slice / params.count * params.size + u32(select(0, id, known));
        let v = x[row * params.inner + i % params.inner];
        y[i] = select({{ "bitcast<f32>(params.nan)" if dtype == "f32" else dtype ~ "(0)" }}, v, known);
    }
}
