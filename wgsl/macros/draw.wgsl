{#- The draw itself, for sample_draw.

    philox()            declares `fn uniform_at(position: u32) -> f32`, runtime_py/philox.py's `uniform` under the seed in `settings`
    draw(few, threads)  declares `fn draw(thread: u32, top: u32) -> u32`, the id that u picks; for the whole workgroup
-#}
{% macro philox() %}
fn high_product(a: u32, b: u32) -> u32 {
    let low = (a & 0xFFFFu) * (b & 0xFFFFu);
    let cross = (a >> 16u) * (b & 0xFFFFu) + (low >> 16u);
    let other = (a & 0xFFFFu) * (b >> 16u) + (cross & 0xFFFFu);
    return (a >> 16u) * (b >> 16u) + (cross >> 16u) + (other >> 16u);
}

fn uniform_at(position: u32) -> f32 {
    var c = vec4<u32>(position, 0u, 0u, 0u);
    var key = vec2<u32>(settings[7], settings[8]);
    for (var round = 0u; round < 10u; round++) {
        c = vec4<u32>(high_product(0xCD9E8D57u, c.z) ^ c.y ^ key.x, 0xCD9E8D57u * c.z,
                      high_product(0xD2511F53u, c.x) ^ c.w ^ key.y, 0xD2511F53u * c.x);
        key += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
    }
    return (f32(c.x >> 9u) + 0.5) * 0x1p-23f;
}
{% endmacro %}

{% macro draw(few, threads) %}
var<workgroup> drawn: u32;

// The first thread that holds mass and passes the draw; by rounding none may pass: then the last that holds mass.
fn first_or_last(thread: u32, holds: bool, passes: bool) -> u32 {
    let last = {{ threads - 1 }}u - min({{ threads - 1 }}u, first({{ threads - 1 }}u - thread, holds));
    return min(last, first(thread, holds && passes));
}

// What the ids of a part weigh whose sums are `part`, where `before` equals of the edge stand below them.
fn mass_of(part: vec4<u32>, before: u32) -> f32 {
    let equals = min(part.y, part.w - min(part.w, before));
    return bitcast<f32>(part.x) + f32(equals) * bitcast<f32>(part.z);
}

fn draw(thread: u32, top: u32) -> u32 {
    var part = vec4<u32>(0u);
    if (thread < params.parts) {
        part = sums[thread];
    }
    let equals_before = sum_up_u32(thread, part.y) - part.y;
    let own = mass_of(part, equals_before);
    let reached = sum_up_f32(thread, own);
    let target_mass = uniform_at(params.position) * lanes_f32[{{ threads - 1 }}];
    let chosen = first_or_last(thread, own > 0.0, reached > target_mass);
    var below = 0.0;
    if (chosen > 0u) {
        below = lanes_f32[chosen - 1u];
    }
    var equals = 0u;
    if (chosen > 0u) {
        equals = lanes_u32[chosen - 1u];
    }
    workgroupBarrier();
    return draw_in(thread, chosen, top, target_mass - below, equals);
}

// The id of part `chosen` at which the mass passes `wanted`; `equals` of the edge stand in the parts before.
fn draw_in(thread: u32, chosen: u32, top: u32, wanted: f32, equals: u32) -> u32 {
    let best = bitcast<f32>(select(~top, top & 0x7FFFFFFFu, top >= 0x80000000u));
    let edge = sums[chosen].z;
    let kept = sums[chosen].w;
    let end = {{ "(chosen + 1u) * params.span" if few else "min((chosen + 1u) * params.span, known())" }};
    let each = (params.span + {{ threads - 1 }}u) / {{ threads }}u;
    let first_id = min(chosen * params.span + thread * each, end);
    let last_id = min(first_id + each, end);
    var mass = 0.0;
    var count = 0u;
    for (var i = first_id; i < last_id; i++) {
        let w = kept_weight(i, best);
        mass += select(0.0, w, bitcast<u32>(w) > edge);
        count += select(0u, 1u, bitcast<u32>(w) == edge);
    }
    let before = equals + sum_up_u32(thread, count) - count;
    let own = mass_of(vec4<u32>(bitcast<u32>(mass), count, edge, kept), before);
    let reached = sum_up_f32(thread, own);
    let chosen_thread = first_or_last(thread, own > 0.0, reached > wanted);
    if (thread == chosen_thread) {
        var sum = reached - own;
        var place = before;
        var found = false;
        for (var i = first_id; i < last_id; i++) {
            let w = kept_weight(i, best);
            let is_edge = bitcast<u32>(w) == edge;
            if (w > 0.0 && (bitcast<u32>(w) > edge || (is_edge && place < kept)) && (!found || sum <= wanted)) {
                sum += w;
                drawn = i;
                found = true;
            }
            place += select(0u, 1u, is_edge);
        }
    }
    workgroupBarrier();
    return drawn;
}

// The weight of id i, 0 if it is not among the k largest.
fn kept_weight(i: u32, best: f32) -> f32 {
{% if few %}
    return bitcast<f32>(scores[i]);
{% else %}
    let bits = score(i);
    if (sort_key(bits) < state[3].z) {
        return 0.0;
    }
    return weight(bits, best);
{% endif %}
}
{% endmacro %}
