{#- Pairs of dimensions and their rotation.

    pair(head_dim, rotary_dim, interleaved)   declares `fn pair(i: u32) -> vec2u`: the two dimensions that thread i of a
                                              head owns; past the rotated ones, two neighbours that are only copied
    rotate(rotary_dim)   declares `fn rotate(i: u32, position: u32, v: vec2f) -> vec2f`; reads inv_freq, params.scale
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

{% macro rotate(rotary_dim) %}
fn rotate(i: u32, position: u32, v: vec2f) -> vec2f {
    if (i >= {{ rotary_dim // 2 }}u) {
        return v;
    }
    let turn = rotation(position, inv_freq[i]) * params.scale;
    return vec2f(v.x * turn.y - v.y * turn.x, v.y * turn.y + v.x * turn.x);
}
{% endmacro %}
