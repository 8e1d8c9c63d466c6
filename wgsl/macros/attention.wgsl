{#- What all attention kernels share: their parameters, which keys a token sees, how a score is finished.

    params()                       the fields of Params, in the order of `attention_routes.common_params`
    LOWEST                         the score of a key that is not visible; its weight, -1, is never multiplied.
                                   Both are tested by `!(s == LOWEST)`: WGSL's != is false for a NaN, which must stay
    visible(causal, window)        declares `first_key(token)` and `end_key(token)`: the keys of a token are
                                   first_key .. end_key - 1
    score(mask, softcap)           declares `fn score(dot: f32, batch, head, token, key) -> f32`
    exponential(T, bits)           declares `fn exponential(v: T) -> T`, exp that keeps a NaN; bits is T's u32 or vec4u
-#}
{% macro params() -%}
S: u32,          // query tokens
    keys: u32,       // keys that hold values
    position: u32,   // the key that belongs to token 0
    window: u32,     // keys that a token sees, itself included
    group: u32,      // query heads that share a KV head
    scale: f32,
    cap: f32,
    q_b: u32, q_s: u32, q_h: u32,
    k_b: u32, k_c: u32, k_h: u32,
    y_b: u32, y_s: u32, y_h: u32,
    m_b: u32, m_h: u32, m_s: u32, m_k: u32,
{%- endmacro %}

{% macro visible(causal, window) %}
const LOWEST = -3.4028234e38;

fn end_key(token: u32) -> u32 {
    return {{ "min(params.keys, params.position + token + 1u)" if causal else "params.keys" }};
}

fn first_key(token: u32) -> u32 {
{% if window %}
    let seen = params.position + token + 1u;
    return seen - min(seen, params.window);
{% else %}
    return 0u;
{% endif %}
}
{% endmacro %}

{% macro score(mask, softcap) %}
fn score(product: f32, batch: u32, head: u32, token: u32, key: u32) -> f32 {
    var result = product * params.scale;
{% if softcap %}
    // cap * tanh(result / cap), by way of exp: the builtin tanh may overflow
    result = params.cap * (1.0 - 2.0 / (exp(2.0 * result / params.cap) + 1.0));
{% endif %}
{% if mask == "f32" %}
    let bias = mask[batch * params.m_b + head * params.m_h + token * params.m_s + key * params.m_k];
    if (bias <= LOWEST) {
        return LOWEST;
    }
    result += bias;
{% elif mask == "u32" %}
    if (mask[batch * params.m_b + head * params.m_h + token * params.m_s + key * params.m_k] == 0u) {
        return LOWEST;
    }
{% endif %}
    return result;
}
{% endmacro %}

{% macro exponential(T="f32", bits="u32") %}
fn exponential(v: {{ T }}) -> {{ T }} {
    let nan = (bitcast<{{ bits }}>(v) & {{ bits }}(0x7fffffffu)) > {{ bits }}(0x7f800000u);
    return select(exp(v), v, nan);
}
{% endmacro %}
