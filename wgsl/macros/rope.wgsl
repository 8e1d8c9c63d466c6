{#- Pairs of dimensions and their rotation.

    pair(head_dim, rotary_dim, interleaved)   declares `fn pair(i: u32) -> vec2u`: the two dimensions that thread i of a
                                              head owns; past the rotated ones, two neighbours that are only copied
    turn(magnitude)      declares `fn turn(position: u32, frequency: f32, v: vec2f) -> vec2f`; needs trig.rotation()
    rotate(rotary_dim)   declares `turn` and `fn rotate(i: u32, position: u32, v: vec2f) -> vec2f`; reads inv_freq,
                         params.scale
    turn_four(magnitude, interleaved)   declares `turn` and `fn turn_four(position: u32, frequencies: vec4f, v: mat2x4f)
                         -> mat2x4f`: four pairs at once, that lie in two vec4s as `pair` of vec4s says
-#}
{% macro pair(head_dim, rotary_dim, interleaved) %}
fn pair(i: u32) -> vec2u {
{% if interleaved %}
    return vec2u(2u * i, 2u * i + 1u);
{% elif rotary_dim == head_dim %}
    return vec2u(i, i + {{ head_dim // 2 }}u);
{% else %}
    let rotated = i < {{ rotary_dim // 2 }}u;
    return select(vec2u(2u * i, 2u * i + 1u), vec2u(i, i + {{ rotary_dim // 2 }}u), rotated);
{% endif %}
}
{% endmacro %}

{% macro turn(magnitude) %}
fn turn(position: u32, frequency: f32, v: vec2f) -> vec2f {
    let angle = rotation(position, frequency) * {{ magnitude }};
    return vec2f(v.x * angle.y - v.y * angle.x, v.y * angle.y + v.x * angle.x);
}
{% endmacro %}

{% macro rotate(rotary_dim) %}
{{ turn("params.scale") }}
fn rotate(i: u32, position: u32, v: vec2f) -> vec2f {
    if (i >= {{ rotary_dim // 2 }}u) {
        return v;
    }
    return turn(position, inv_freq[i], v);
}
{% endmacro %}

{% macro turn_four(magnitude, interleaved) %}
{{ turn(magnitude) }}
fn turn_four(position: u32, frequencies: vec4f, v: mat2x4f) -> mat2x4f {
{% if interleaved %}
    return mat2x4f(
        vec4f(turn(position, frequencies.x, v[0].xy), turn(position, frequencies.y, v[0].zw)),
        vec4f(turn(position, frequencies.z, v[1].xy), turn(position, frequencies.w, v[1].zw)),
    );
{% else %}
    return transpose(mat4x2f(
        turn(position, frequencies.x, vec2f(v[0].x, v[1].x)),
        turn(position, frequencies.y, vec2f(v[0].y, v[1].y)),
        turn(position, frequencies.z, vec2f(v[0].z, v[1].z)),
        turn(position, frequencies.w, vec2f(v[0].w, v[1].w)),
    ));
{% endif %}
}
{% endmacro %}
