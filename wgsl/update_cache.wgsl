{#-
purpose: write the tokens of a step into a cache
formula: cache[b, position + s, r] = value[b, s, r]
bindings:
  0 value  array<value_dtype>  [B, S, H * D]  read
  1 cache  array<cache>        [B, C, H * D]  read_write
params:
  n         u32  elements of value
  S         u32  tokens
  C         u32  slots of the cache
  row       u32  H * D
  position  u32  slot of the first token
axes:
  value_dtype: f32, f16
  cache: f32, f16
requires: none            (shader-f16 with f16)
launch: a workgroup of 256 threads copies 1024 elements; the grid folds to x and y
accuracy: exact (rounded once from f32 to f16); a slot past the cache is not written
-#}
{{ "enable f16;" if "f16" in (value_dtype, cache) }}

struct Params {
    n: u32,
    S: u32,
    C: u32,
    row: u32,
    position: u32,
}

@group(0) @binding(0) var<storage, read> value: array<{{ value_dtype }}>;
@group(0) @binding(1) var<storage, read_write> cache: array<{{ cache }}>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        let token = i / params.row;
        let slot = params.position + token % params.S;
        if (slot < params.C) {
            let at = (token / params.S * params.C + slot) * params.row + i % params.row;
            cache[at] = {{ cache }}(value[i]);
        }
    }
}
