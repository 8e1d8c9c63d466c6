{#- NaN, tested and made by its bits. WGSL lets a device drop NaNs, and some do: Tint compiles `x != x` to an ordered
    comparison (false for a NaN), and SwiftShader's exp(NaN) is infinity and its log(-1) is 0 (Chromium 156).

    is_nan()     declares `fn is_nan(v: f32) -> bool`
    make_nan()   declares `fn make_nan(v: f32) -> f32`: a NaN, whatever v is
-#}
{% macro is_nan() %}
fn is_nan(v: f32) -> bool {
    return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u;
}
{% endmacro %}

{% macro make_nan() %}
fn make_nan(v: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(v) | 0x7fc00000u);
}
{% endmacro %}
