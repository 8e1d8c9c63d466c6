{#- Sampling on an adapter that is a CPU (few=True): few threads, each with four ids a turn, which lie `threads` apart.

    over(threads)       runs the caller's body for all `id: vec4<u32>` of the workgroup's part; those past the row as well
    scan(draws, threads)    the turns of sample_scan: leaves the best in `own`, and the keys in `scores`
    tally(number, above)    a turn of sample_bins: adds what has the digits of `found` to the histogram
    load(), store()     declare `fn load(id) -> vec4<u32>` and `fn store(id, value)`: four elements of `scores`
    sort_keys()         declares `fn sort_keys(bits: vec4<u32>) -> vec4<u32>`: sampling.sort_key of four
    bits_of()           declares `fn bits_of(key: vec4<u32>) -> vec4<u32>`: its inverse, for all but NaN
    penalised()         declares `fn penalised(bits: vec4<u32>, id: vec4<u32>) -> vec4<u32>`: the repetition penalty of sampling.score

SwiftShader goes through an `if` that no thread takes, but not through a loop: hence loops of at most one turn.
-#}
{% macro over(threads) %}
    for (var i = group.x * params.span + thread; i < (group.x + 1u) * params.span; i += {{ 4 * threads }}u) {
        let id = vec4<u32>(i, i + {{ threads }}u, i + {{ 2 * threads }}u, i + {{ 3 * threads }}u);
{{ caller() }}    }
{% endmacro %}

{% macro scan(draws, threads) %}
    let base = (params.rows - 1u) * params.width;
    let has_penalty = (settings[0] & PENALTY) != 0u;
    var top = vec4<u32>(0u);
    var at = vec4<u32>(0xFFFFFFFFu);
{% for penalty in (False, True) %}
    if ({{ "" if penalty else "!" }}has_penalty) {
{% call over(threads) %}
        var bits = vec4<u32>(logits[base + id.x], logits[base + id.y], logits[base + id.z], logits[base + id.w]);
{% if penalty %}
        bits = penalised(bits, id);
{% endif %}
        let key = sort_keys(select(vec4<u32>(0xFF800000u), bits, id < vec4<u32>(end)));
        at = select(at, id, key > top);
        top = max(top, key);
{% if draws %}
        store(id, key);
{% endif %}
{% endcall %}
    }
{% endfor %}
    for (var j = 0u; j < 4u; j++) {
        own = better(own, vec2<u32>(top[j], at[j]));
    }
{% endmacro %}

{% macro tally(number, above) %}
        var value = load(id);
{% if number == 3 %}
        let is_kept = value >= vec4<u32>(found.z);
        var weights = vec4<u32>(0u);
        for (var once = any(is_kept); once; once = false) {
            weights = bitcast<vec4<u32>>(weight(bits_of(value), best));
        }
        value = select(vec4<u32>(0u), weights, is_kept);
        store(id, value);
        let hit = (value != vec4<u32>(0u)) & vec4<bool>(counts_mass);
{% elif above < 31 %}
        let hit = (value >> vec4<u32>({{ above }}u)) == vec4<u32>(found.x >> {{ above }}u);
{% else %}
        let hit = vec4<bool>(true);
{% endif %}
        for (var once = any(hit); once; once = false) {
{% for c in "xyzw" %}
            if (hit.{{ c }}) {
                add(value.{{ c }});
            }
{% endfor %}
        }
{% endmacro %}

{% macro load() %}
fn load(id: vec4<u32>) -> vec4<u32> {
    return vec4<u32>(scores[id.x], scores[id.y], scores[id.z], scores[id.w]);
}
{% endmacro %}

{% macro store() %}
fn store(id: vec4<u32>, value: vec4<u32>) {
    scores[id.x] = value.x;
    scores[id.y] = value.y;
    scores[id.z] = value.z;
    scores[id.w] = value.w;
}
{% endmacro %}

{% macro sort_keys() %}
fn sort_keys(bits: vec4<u32>) -> vec4<u32> {
    let key = select(bits | vec4<u32>(0x80000000u), ~bits, bits > vec4<u32>(0x80000000u));
    return select(key, vec4<u32>(0xFFFFFFFFu), (bits & vec4<u32>(0x7FFFFFFFu)) > vec4<u32>(0x7F800000u));
}
{% endmacro %}

{% macro bits_of() %}
fn bits_of(key: vec4<u32>) -> vec4<u32> {
    return select(~key, key & vec4<u32>(0x7FFFFFFFu), key >= vec4<u32>(0x80000000u));
}
{% endmacro %}

{% macro penalised() %}
fn penalised(bits: vec4<u32>, id: vec4<u32>) -> vec4<u32> {
    let words = vec4<u32>(seen[id.x / 32u], seen[id.y / 32u], seen[id.z / 32u], seen[id.w / 32u]);
    let is_seen = ((words >> (id % vec4<u32>(32u))) & vec4<u32>(1u)) == vec4<u32>(1u);
    let is_finite = (bits & vec4<u32>(0x7FFFFFFFu)) < vec4<u32>(0x7F800000u);
    let x = bitcast<vec4<f32>>(bits);
    let penalty = bitcast<f32>(settings[5]);
    let changed = bitcast<vec4<u32>>(select(x * penalty, x / penalty, x > vec4<f32>(0.0)));
    return select(bits, changed, is_seen & is_finite);
}
{% endmacro %}
