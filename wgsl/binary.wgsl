{#-
purpose: an operation on two tensors (broadcast) or on a tensor and a number
formula: y[i] = a[i] op b[i]; with scalar, b is params.scalar; with reverse, y = scalar op a
bindings:
  0 a  array<dtype>  any shape that broadcasts  read
  1 b  array<dtype>  any shape that broadcasts (absent with scalar)  read
  2 y  array<dtype>, u32 for comparisons  [d0, d1, ...]  read_write
params:
  n       u32    elements of y
  d0..    u32    sizes of y, outermost first
  a0..    u32    strides of a, elements (0 = repeated)
  b0..    u32    strides of b, elements (absent with scalar)
  scalar  dtype  the number (only with scalar)
axes:
  op: add, sub, mul, div, maximum, minimum, pow, eq, ne, lt, le, gt, ge
  dtype: f32, f16, i32, u32
  rank: 1..8
  scalar: bool
  reverse: bool
requires: none            (shader-f16 with dtype=f16)
launch: a workgroup of 256 threads computes 1024 elements; the grid of workgroups folds to x and y
accuracy: one f32 operation; f16 is computed in f32; pow is exp2(y * log2|x|) with the sign of integer powers
-#}
{% import "macros/index.wgsl" as index %}
{% import "macros/dtype.wgsl" as type %}
{% import "macros/nan.wgsl" as nan %}
{% set T = type.compute(dtype) %}
{% set floating = T == "f32" %}
{% set compare = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="} %}
{% set infix = {"add": "+", "sub": "-", "mul": "*", "div": "/"} %}
{{ type.enable([dtype]) }}

struct Params {
    n: u32,
    {{ index.fields("d", rank) }}
    {{ index.fields("a", rank) }}
{% if scalar %}
    scalar: {{ T }},
{% else %}
    {{ index.fields("b", rank) }}
{% endif %}
}

@group(0) @binding(0) var<storage, read> a: array<{{ dtype }}>;
{% if not scalar %}
@group(0) @binding(1) var<storage, read> b: array<{{ dtype }}>;
{% endif %}
@group(0) @binding({{ 1 if scalar else 2 }}) var<storage, read_write> y: array<{{ "u32" if op in compare else dtype }}>;
@group(0) @binding({{ 2 if scalar else 3 }}) var<uniform> params: Params;

{% if floating and op in ("pow", "maximum", "minimum") %}
{{ nan.is_nan() }}
{% endif %}
{% if op == "pow" %}
{{ nan.make_nan() }}
fn power(base: f32, exponent: f32) -> f32 {
    if (exponent == 0.0) { return 1.0; }
    if (is_nan(base) || is_nan(exponent)) { return base + exponent; }
    if (base == 0.0) { return select(0.0, 1.0 / base, exponent < 0.0); }
    let size = exp2(exponent * log2(abs(base)));
    if (base > 0.0) { return size; }
    // A negative base has a real power only where the exponent is an integer; NaN elsewhere.
    let odd = abs(exponent - 2.0 * floor(exponent * 0.5)) == 1.0;
    let signed = select(size, -size, odd);
    return select(make_nan(base), signed, exponent == floor(exponent));
}
{% endif %}

fn apply(left: {{ T }}, right: {{ T }}) -> {{ "u32" if op in compare else T }} {
{% if op in compare %}
    return select(0u, 1u, {{ "!(left == right)" if op == "ne" else "left " ~ compare[op] ~ " right" }});
{% elif op == "pow" %}
    return power(left, right);
{% elif op in infix %}
    return left {{ infix[op] }} right;
{% elif floating %}
    // min() and max() may drop a NaN; a sum keeps it.
    let nan = is_nan(left) || is_nan(right);
    return select({{ {"maximum": "max", "minimum": "min"}[op] }}(left, right), left + right, nan);
{% else %}
    return {{ {"maximum": "max", "minimum": "min"}[op] }}(left, right);
{% endif %}
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        {{ index.unravel(rank) | indent(4) }}
        let left = {{ type.load(dtype, "a[" ~ index.offset("a", rank) ~ "]") }};
{% if scalar %}
        let right = params.scalar;
{% else %}
        let right = {{ type.load(dtype, "b[" ~ index.offset("b", rank) ~ "]") }};
{% endif %}
{% set value = "apply(right, left)" if reverse else "apply(left, right)" %}
        y[i] = {{ value if op in compare else type.store(dtype, value) }};
    }
}
