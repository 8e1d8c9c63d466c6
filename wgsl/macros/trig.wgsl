{#- Sine and cosine that are right on every device (WGSL asks only 2^-11 of the builtins, and only in [-pi, pi]).

    quadrants()      declares `fn from_quadrant(r: f32, quadrant: u32) -> vec2f`: (sin, cos) of r + quadrant * pi/2,
                     |r| <= pi/4, to about 1e-7 (the minimax polynomials of Cephes' sinf and cosf)
    sine_cosine()    declares `fn sine_cosine(v: f32) -> vec2f`, the argument reduced in three parts of pi/2
    rotation()       declares `fn rotation(position: u32, frequency: f32) -> vec2f`: (sin, cos) of the exact product.
                     frequency / 2 pi becomes a fixed-point fraction of a turn by integer arithmetic, so the product
                     with the position wraps to the angle modulo a turn: the error stays below 2^-31 turns at any
                     position, where an f32 angle is off by up to 5e-4 radians at position 8192
-#}
{% macro quadrants() %}
fn from_quadrant(r: f32, quadrant: u32) -> vec2f {
    let z = r * r;
    let s = r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
    let c = 1.0 - 0.5 * z + z * z * (4.166664568e-2 + z * (-1.388731625e-3 + z * 2.443315712e-5));
    let swapped = select(vec2f(s, c), vec2f(c, s), (quadrant & 1u) == 1u);
    return vec2f(
        select(swapped.x, -swapped.x, (quadrant & 2u) == 2u),
        select(swapped.y, -swapped.y, ((quadrant + 1u) & 2u) == 2u),
    );
}
{% endmacro %}

{% macro sine_cosine() %}
{{ quadrants() }}
fn sine_cosine(v: f32) -> vec2f {
    let turns = round(v * 0.63661977);
    let r = ((v - turns * 1.5703125) - turns * 4.837512969970703e-4) - turns * 7.549789954891886e-8;
    return from_quadrant(r, bitcast<u32>(i32(turns)) & 3u);
}
{% endmacro %}

{% macro rotation() %}
{{ quadrants() }}
fn multiply_wide(a: u32, b: u32) -> vec2u {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let mid = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let cross = (a & 0xffffu) * (b >> 16u) + (mid & 0xffffu);
    return vec2u((cross << 16u) | (low & 0xffffu), (a >> 16u) * (b >> 16u) + (mid >> 16u) + (cross >> 16u));
}

fn bits_from(words: array<u32, 3>, shift: u32) -> u32 {
    let word = shift / 32u;
    let bit = shift % 32u;
    var low = 0u;
    var high = 0u;
    if (word < 3u) {
        low = words[word] >> bit;
    }
    if (word < 2u && bit > 0u) {
        high = words[word + 1u] << (32u - bit);
    }
    return high | low;
}

// frequency / 2 pi modulo 1 as 64 bits of fixed point (x the upper half): frequency = mantissa * 2^(exponent - 150),
// 1 / 2 pi = 0x28BE60DB9391054A / 2^64.
fn turn_fraction(frequency: f32) -> vec2u {
    let bits = bitcast<u32>(frequency);
    let exponent = (bits >> 23u) & 0xffu;
    let mantissa = (bits & 0x7fffffu) | 0x800000u;
    let low = multiply_wide(mantissa, 0x9391054Au);
    let high = multiply_wide(mantissa, 0x28BE60DBu);
    let middle = low.y + high.x;
    let words = array<u32, 3>(low.x, middle, high.y + select(0u, 1u, middle < low.y));
    let shift = 182u - min(exponent, 150u);
    return vec2u(bits_from(words, shift), bits_from(words, shift - 32u));
}

fn rotation(position: u32, frequency: f32) -> vec2f {
    let fraction = turn_fraction(frequency);
    let turns = position * fraction.x + multiply_wide(position, fraction.y).y;
    let quadrant = (turns + 0x20000000u) >> 30u;
    let rest = bitcast<i32>(turns - (quadrant << 30u));
    return from_quadrant(f32(rest) * 1.4629180792671596e-9, quadrant);
}
{% endmacro %}
