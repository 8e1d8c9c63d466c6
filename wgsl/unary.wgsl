{#-
purpose: a function of each element
formula: y[i] = op(x[i])
bindings:
  0 x  array<dtype>  [n]  read
  1 y  array<dtype>, u32 for logical_not  [n]  read_write
params:
  n  u32  elements
axes:
  op: neg, exp, log, sqrt, rsqrt, sin, cos, abs, tanh, sigmoid, silu, gelu, gelu_tanh, relu, reciprocal, square, logical_not
  dtype: f32, f16, i32, u32
requires: none            (shader-f16 with dtype=f16)
launch: a workgroup of 256 threads computes 1024 elements; the grid of workgroups folds to x and y
accuracy: WGSL's builtins in f32; sin and cos reduce to [-pi, pi] first; erf is off by at most 1.5e-7 (Abramowitz and Stegun 7.1.26)
-#}
{% import "macros/dtype.wgsl" as type %}
{% import "macros/trig.wgsl" as trig %}
{% import "macros/nan.wgsl" as nan %}
{% set T = type.compute(dtype) %}
{% set guarded = "select(apply(v), v, is_nan(v))" if T == "f32" else "apply(v)" %}
{% set R = "u32" if op == "logical_not" else T %}
{{ type.enable([dtype]) }}

struct Params {
    n: u32,
}

@group(0) @binding(0) var<storage, read> x: array<{{ dtype }}>;
@group(0) @binding(1) var<storage, read_write> y: array<{{ "u32" if op == "logical_not" else dtype }}>;
@group(0) @binding(2) var<uniform> params: Params;

{% if op in ("tanh", "gelu_tanh") %}
fn hyperbolic_tangent(v: f32) -> f32 {
    // The builtin may overflow to NaN beyond +-44; past +-10 the result is +-1 to the last bit.
    return tanh(clamp(v, -10.0, 10.0));
}
{% elif op == "gelu" %}
fn erf(v: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.3275911 * abs(v));
    let poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    return sign(v) * (1.0 - poly * exp(-v * v));
}
{% elif op in ("sin", "cos") %}
{{ trig.sine_cosine() }}
{% endif %}

{% if op == "log" %}
{{ nan.make_nan() }}
{% endif %}
{% if R == "f32" %}
{{ nan.is_nan() }}
{% endif %}
fn apply(v: {{ T }}) -> {{ R }} {
{% if op == "neg" %}
    return -v;
{% elif op == "log" %}
    // Zero, infinity and negative numbers by rule: SwiftShader has -88.0, 88.7 and 0 for them.
    let finite = select(log(v), v, v > 3.4028234e38);
    return select(select(finite, -1.0 / abs(v), v == 0.0), make_nan(v), v < 0.0);
{% elif op in ("exp", "sqrt", "abs") %}
    return {{ op }}(v);
{% elif op == "rsqrt" %}
    return inverseSqrt(v);
{% elif op == "sin" %}
    return sine_cosine(v).x;
{% elif op == "cos" %}
    return sine_cosine(v).y;
{% elif op == "tanh" %}
    return hyperbolic_tangent(v);
{% elif op == "sigmoid" %}
    return 1.0 / (1.0 + exp(-v));
{% elif op == "silu" %}
    return v / (1.0 + exp(-v));
{% elif op == "gelu" %}
    return 0.5 * v * (1.0 + erf(v * 0.70710678));
{% elif op == "gelu_tanh" %}
    return 0.5 * v * (1.0 + hyperbolic_tangent(0.79788456 * (v + 0.044715 * v * v * v)));
{% elif op == "relu" %}
    return select(v, {{ "0.0" if T == "f32" else "0" }}, v < {{ "0.0" if T == "f32" else "0" }});
{% elif op == "reciprocal" %}
    return 1.0 / v;
{% elif op == "square" %}
    return v * v;
{% else %}
    return select(0u, 1u, v == {{ "0.0" if T == "f32" else T ~ "(0)" }});
{% endif %}
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        let v = {{ type.load(dtype, "x[i]") }};
        y[i] = {{ "apply(v)" if op == "logical_not" else type.store(dtype, guarded) }};
    }
}
