{#-
purpose: index of the greatest element of each row: greedy sampling on the GPU
formula: ids[m] = the least i with x[m, i] = max_j x[m, j], -1 if any x[m, j] is NaN
bindings:
  0 x    array<u32> [rows, width] (f32 bits), or array<vec2<u32>> [rows, width] (key, index) with source=parts  read
  1 ids  array<i32> [rows], or array<vec2<u32>> [rows, parts] with target=parts  read_write
params:
  rows   u32  rows of x
  width  u32  elements of a row of x
  span   u32  elements that one workgroup looks at
axes:
  source: values, parts
  target: parts, ids
requires: none
launch: a workgroup of 64 threads looks at `span` elements of a row; grid x counts spans, y and z rows (folded). Long rows take two
  dispatches: values to parts, parts to ids
accuracy: exact. Floats are compared as integers that sort alike, so no device may reorder NaN, infinities or -0
-#}
{% set result = "i32" if target == "ids" else "vec2<u32>" %}
@group(0) @binding(0) var<storage, read> x: array<{{ "u32" if source == "values" else "vec2<u32>" }}>;
@group(0) @binding(1) var<storage, read_write> ids: array<{{ result }}>;
struct Params {
    rows: u32,
    width: u32,
    span: u32,
}
@group(0) @binding(2) var<uniform> params: Params;

const NAN_KEY = 0xFFFFFFFFu;
var<workgroup> best: array<vec2<u32>, 64>;

{% if source == "values" %}
// An integer that sorts as the float of these bits does; NaN sorts above all.
fn sort_key(bits: u32) -> u32 {
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        return NAN_KEY;
    }
    return select(bits | 0x80000000u, ~bits, bits > 0x80000000u);  // -0 sorts as 0
}

{% endif %}
fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let row = group.y + group.z * groups.y;
    if (row >= params.rows) {
        return;
    }
    let start = group.x * params.span;
    let end = min(start + params.span, params.width);
    var own = vec2<u32>(0u, 0xFFFFFFFFu);
    for (var i = start + thread; i < end; i += 64u) {
{% if source == "values" %}
        own = better(own, vec2<u32>(sort_key(x[row * params.width + i]), i));
{% else %}
        own = better(own, x[row * params.width + i]);
{% endif %}
    }
    best[thread] = own;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half /= 2u) {
        if (thread < half) {
            best[thread] = better(best[thread], best[thread + half]);
        }
        workgroupBarrier();
    }
    if (thread == 0u) {
{% if target == "ids" %}
        ids[row] = select(i32(best[0].y), -1, best[0].x == NAN_KEY);
{% else %}
        ids[row * groups.x + group.x] = best[0];
{% endif %}
    }
}
