struct Params {
    n: u32,
    S: u32,
    H: u32,
    position: u32,
    scale: f32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> inv_freq: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

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

fn pair(i: u32) -> vec2u {
    return vec2u(i, i + 32u);
}

fn turn(position: u32, frequency: f32, v: vec2f) -> vec2f {
    let angle = rotation(position, frequency) * params.scale;
    return vec2f(v.x * angle.y - v.y * angle.x, v.y * angle.y + v.x * angle.x);
}

fn rotate(i: u32, position: u32, v: vec2f) -> vec2f {
    if (i >= 32u) {
        return v;
    }
    return turn(position, inv_freq[i], v);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let item = (group.x + group.y * groups.x) * 64u + lane;
    if (item >= params.n) {
        return;
    }
    let i = item % 32u;
    let head = item / 32u;
    let token = head / params.H % params.S;
    let at = head * 64u + pair(i);
    let rotated = rotate(i, params.position + token, vec2f(x[at.x], x[at.y]));
    y[at.x] = rotated.x;
    y[at.y] = rotated.y;
}
