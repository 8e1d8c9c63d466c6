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
