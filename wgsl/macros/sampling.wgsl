{#- What the kernels of sampling share. `settings` is laid out by runtime_py/sampling_words.py.

    row(few, access)       declares what ids are read from, and `settings`: bindings 0 to 2, with few=True 0 and 1
    sort_key()             declares `fn sort_key(bits: u32) -> u32`: an integer that sorts as the float of these bits
    better()               declares `fn better(a, b)`: of two (key, index) the greater key, of equals the lower index
    known()                declares `fn known() -> u32`: the ids that may be drawn; needs settings, params.width
    score()                declares `fn score(i: u32) -> u32`: the float bits of logit i after the repetition penalty; needs
                           logits, settings, seen, params.rows, params.width
    weight(few)            declares `fn weight(bits: u32, best: f32) -> f32`: exp((score - best) / temperature); with few=True
                           of four: vec4<u32> to vec4<f32>
    best_score(threads)    declares `fn best_score(thread: u32) -> f32` over `parts`, for the whole workgroup
    sums(type, threads)    declares `fn sum_up_<type>(thread: u32, value: <type>) -> <type>`: the sum over threads 0 to
                           `thread`, added in an order that is always the same
    first(threads)         declares `fn first(thread: u32, is_one: bool) -> u32`: the first thread with `is_one`, NONE without
-#}
{% macro flags() %}
const PENALTY = 1u;
const DRAW = 2u;
const TOP_K = 4u;
const TOP_P = 8u;
const ALL = 0xFFFFFFFFu;
{% endmacro %}

{% macro row(few, access) %}
{% if few %}
@group(0) @binding(0) var<storage, {{ access }}> scores: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<u32>;
{% else %}
@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<u32>;
@group(0) @binding(2) var<storage, read> seen: array<u32>;
{% endif %}
{% endmacro %}

{% macro sort_key() %}
// An integer that sorts as the float of these bits does; NaN sorts above all, -0 as 0.
fn sort_key(bits: u32) -> u32 {
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        return 0xFFFFFFFFu;
    }
    return select(bits | 0x80000000u, ~bits, bits > 0x80000000u);
}
{% endmacro %}

{% macro better() %}
fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}
{% endmacro %}

{% macro known() %}
fn known() -> u32 {
    return select(min(settings[1], params.width), params.width, settings[1] == 0u);
}
{% endmacro %}

{% macro score() %}
fn score(i: u32) -> u32 {
    let bits = logits[(params.rows - 1u) * params.width + i];
    let is_seen = (settings[0] & PENALTY) != 0u && ((seen[i / 32u] >> (i % 32u)) & 1u) == 1u;
    if (!is_seen || (bits & 0x7FFFFFFFu) >= 0x7F800000u) {
        return bits;
    }
    let x = bitcast<f32>(bits);
    let penalty = bitcast<f32>(settings[5]);
    return bitcast<u32>(select(x * penalty, x / penalty, x > 0.0));
}
{% endmacro %}

{% macro weight(few) %}
{% set f32, u32, i32 = ("vec4<f32>", "vec4<u32>", "vec4<i32>") if few else ("f32", "u32", "i32") %}
// exp of its own, so that every adapter weighs alike: 2^n * e^r with |r| <= ln(2) / 2, to about 1e-7 of the value.
fn weight(bits: {{ u32 }}, best: f32) -> {{ f32 }} {
    let x = (bitcast<{{ f32 }}>(bits) - best) * bitcast<f32>(settings[6]);
    let n = round(x * 1.44269504);
    let r = (x - n * 0.693145752) - n * 1.42860677e-6;  // ln(2) in two parts, the first with zeros at its end
    var sum = 1.98412698e-4 * r + 1.38888889e-3;  // Taylor: 1/7!, 1/6!, ...
    sum = sum * r + 8.33333333e-3;
    sum = sum * r + 4.16666667e-2;
    sum = sum * r + 0.166666667;
    sum = ((sum * r + 0.5) * r + 1.0) * r + 1.0;
    let w = min({{ f32 }}(1.0), sum * bitcast<{{ f32 }}>({{ u32 }}({{ i32 }}(n) + 127) << {{ u32 }}(23u)));
    return select({{ f32 }}(0.0), w, (x >= {{ f32 }}(-70.0)) & (bits != {{ u32 }}(0xFF800000u)));  // -infinity forbids an id
}
{% endmacro %}

{% macro best_score(threads) %}
var<workgroup> top_key: atomic<u32>;

fn best_score(thread: u32) -> f32 {
    var own = 0u;
    for (var i = thread; i < params.parts; i += {{ threads }}u) {
        own = max(own, parts[i].x);
    }
    atomicMax(&top_key, own);
    workgroupBarrier();
    let found = atomicLoad(&top_key);
    return bitcast<f32>(select(~found, found & 0x7FFFFFFFu, found >= 0x80000000u));
}
{% endmacro %}

{% macro sums(type, threads) %}
var<workgroup> lanes_{{ type }}: array<{{ type }}, {{ threads }}>;

fn sum_up_{{ type }}(thread: u32, value: {{ type }}) -> {{ type }} {
    var sum = value;
    for (var step = 1u; step < {{ threads }}u; step *= 2u) {
        lanes_{{ type }}[thread] = sum;
        workgroupBarrier();
        if (thread >= step) {
            sum = lanes_{{ type }}[thread - step] + sum;
        }
        workgroupBarrier();
    }
    lanes_{{ type }}[thread] = sum;
    workgroupBarrier();
    return sum;
}
{% endmacro %}

{% macro first() %}
const NONE = 0xFFFFFFFFu;
var<workgroup> first_one: atomic<u32>;

fn first(thread: u32, is_one: bool) -> u32 {
    if (thread == 0u) {
        atomicStore(&first_one, NONE);
    }
    workgroupBarrier();
    if (is_one) {
        atomicMin(&first_one, thread);
    }
    workgroupBarrier();
    let found = atomicLoad(&first_one);
    workgroupBarrier();
    return found;
}
{% endmacro %}
