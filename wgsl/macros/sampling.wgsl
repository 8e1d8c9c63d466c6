{#- What the kernels of sampling share. `settings` is laid out by runtime_py/sampling_words.py.

    sort_key()             declares `fn sort_key(bits: u32) -> u32`: an integer that sorts as the float of these bits
    better()               declares `fn better(a, b)`: of two (key, index) the greater key, of equals the lower index
    score()                declares `fn score(i: u32) -> u32`: the float bits of logit i after the repetition penalty, and
                           `fn known() -> u32`: the ids that may be drawn; needs logits, settings, seen, params.rows, params.width
    weight()               declares `fn weight(bits: u32, best: f32) -> f32`: exp((score - best) / temperature)
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

{% macro score() %}
fn known() -> u32 {
    return select(min(settings[1], params.width), params.width, settings[1] == 0u);
}

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

{% macro weight() %}
// exp of its own, so that every adapter weighs alike: 2^n * e^r with |r| <= ln(2) / 2, to about 1e-7 of the value.
fn weight(bits: u32, best: f32) -> f32 {
    if (bits == 0xFF800000u) {
        return 0.0;  // -infinity forbids an id
    }
    let x = (bitcast<f32>(bits) - best) * bitcast<f32>(settings[6]);
    if (!(x >= -70.0)) {
        return 0.0;
    }
    let n = round(x * 1.44269504);
    let r = (x - n * 0.693145752) - n * 1.42860677e-6;  // ln(2) in two parts, the first with zeros at its end
    var sum = 1.98412698e-4 * r + 1.38888889e-3;  // Taylor: 1/7!, 1/6!, ...
    sum = sum * r + 8.33333333e-3;
    sum = sum * r + 4.16666667e-2;
    sum = sum * r + 0.166666667;
    sum = ((sum * r + 0.5) * r + 1.0) * r + 1.0;
    return min(1.0, sum * bitcast<f32>(u32(i32(n) + 127) << 23u));
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

{#- The passes of radix selection, 0 to 2 of top-k (counts) and 3 to 5 of top-p (masses): where their histograms lie in
    `bins`, and in which bin lies the need-th element, or unit of mass, from the top.

    amount(number, load)   declares `fn amount(bin: u32, digits: u32) -> f32`, what bin `bin` of pass `number` holds;
                           `digits` are those found before that pass; `load` reads a word, as "bins[%]"
    pick(threads)          declares `fn pick(thread, bins, digits, need, share)`, which leaves the bin in `picked.x` and what is
                           needed inside it in `picked.y`; `need` is absolute, `share` of the whole (0 for none)
-#}
{% set SIZES = [2048, 2048, 1024, 1024, 1024, 1024] %}
{% set SHIFTS = [21, 10, 0, 20, 10, 0] %}
{% set WORDS = [1, 1, 1, 3, 2, 1] %}
{% set STARTS = [0, 2048, 4096, 5120, 8192, 10240] %}

{% macro amount(number, load) %}
{% set start = STARTS[number] %}
{% macro word(offset) %}{{ load | replace("%", (start + offset) ~ "u + bin") }}{% endmacro %}
fn amount(bin: u32, digits: u32) -> f32 {
{% if number < 3 %}
    return f32({{ word(0) }});
{% else %}
    // All weights of a bin have one exponent: each is the least of the bin, plus its lower bits in units of the last place.
    let least = digits | (bin << {{ SHIFTS[number] }}u);
    let exponent = least >> 23u;
    if (exponent < 24u) {
        return 0.0;  // below exp(-70): these are zeros
    }
{% if WORDS[number] == 3 %}
    let rest = f32({{ word(1024) }}) * 1024.0 + f32({{ word(2048) }});
{% elif WORDS[number] == 2 %}
    let rest = f32({{ word(1024) }});
{% endif %}
    let whole = f32({{ word(0) }}) * bitcast<f32>(least);
    return whole{{ " + rest * bitcast<f32>((exponent - 23u) << 23u)" if WORDS[number] > 1 }};
{% endif %}
}
{% endmacro %}

{% macro pick(threads) %}
struct Picked {
    bin: u32,
    need: f32,
}
var<workgroup> picked: Picked;

fn pick(thread: u32, bins: u32, digits: u32, need: f32, share: f32) {
    let each = bins / {{ threads }}u;
    let top = bins - 1u - thread * each;  // thread 0 has the greatest bins
    var own = 0.0;
    for (var i = 0u; i < each; i++) {
        own += amount(top - i, digits);
    }
    let reached = sum_up_f32(thread, own);
    let total = lanes_f32[{{ threads - 1 }}];
    let wanted = min(total, select(need, share * total, share > 0.0));
    let chosen = first(thread, reached >= wanted);
    if (thread == chosen) {
        var sum = 0.0;
        if (thread > 0u) {
            sum = lanes_f32[thread - 1u];
        }
        for (var i = 0u; i < each && (i == 0u || sum < wanted); i++) {
            let more = amount(top - i, digits);
            if (more > 0.0) {
                picked = Picked(top - i, wanted - sum);
                sum += more;
            }
        }
    }
    workgroupBarrier();
}
{% endmacro %}
