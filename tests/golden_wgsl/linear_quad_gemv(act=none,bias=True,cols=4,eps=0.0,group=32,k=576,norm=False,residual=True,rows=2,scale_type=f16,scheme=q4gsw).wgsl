enable subgroups;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> codes: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read> residual: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
struct Params {
    rows: i32,    // rows of x from the first one bound, may be <= 0 in a late window
    cols: u32,    // outputs of this window of the weight
    first: u32,   // the window's first output
    stride: u32,  // outputs of a whole row of y
}
@group(0) @binding(6) var<uniform> params: Params;

const K = 576u;
const CHUNKS = 72u;
const ROW = 72u;  // from a row of the weight to the next
const SCALE_ROW = 9u;
const GROUP_CHUNKS = 4u;
const GROUPS = 18u;
// What a masked code has to be multiplied by: 16^-position.
const LOW_UNIT = vec4<f32>(0x1p0f, 0x1p-8f, 0x1p-16f, 0x1p-24f);
const HIGH_UNIT = vec4<f32>(0x1p-4f, 0x1p-12f, 0x1p-20f, 0x1p-28f);

// Signed conversions where the sign bit is clear: unsigned ones cost three times as much on a CPU.
fn low(word: u32) -> vec4<f32> {
    return vec4<f32>(vec4<i32>(i32(word)) & vec4<i32>(0xF, 0xF00, 0xF0000, 0xF000000));
}

fn high(word: u32) -> vec4<f32> {
    let first = vec3<f32>(vec3<i32>(i32(word)) & vec3<i32>(0xF0, 0xF000, 0xF00000));
    return vec4<f32>(first, f32(word & 0xF0000000u));
}

fn fetch(start: u32, c: u32) -> u32 {
    return codes[start + c];
}

fn scale_at(start: u32, g: u32) -> vec2<f32> {
    let pair = unpack2x16float(scales[start + (g >> 1u)]);
    let s = select(pair.x, pair.y, (g & 1u) == 1u);
    return vec2<f32>(s, -8.0 * s);
}

fn store(m: u32, n: u32, value: f32) {
    if (i32(m) >= params.rows || n >= params.cols) {
        return;
    }
    let i = m * params.stride + params.first + n;
    y[i] = value + bias[params.first + n] + residual[i];
}

fn quad_sum(value: f32) -> f32 {
    let pair = value + quadSwapX(value);
    return pair + quadSwapY(pair);
}

fn quad_values(value: f32) -> vec4<f32> {
    return vec4<f32>(quadBroadcast(value, 0u), quadBroadcast(value, 1u),
                     quadBroadcast(value, 2u), quadBroadcast(value, 3u));
}

fn load_x(start: u32, i: u32) -> f32 {
    return x[start + i];
}

@compute @workgroup_size(4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(subgroup_invocation_id) id: u32) {
    let lane = id & 3u;
    let col = (group.x + group.y * groups.x) * 16u + lane;
    let last = params.cols - 1u;
    let n0 = min(col, last);
    let n1 = min(col + 4u, last);
    let n2 = min(col + 8u, last);
    let n3 = min(col + 12u, last);
    let w_row0 = n0 * ROW;
    let s_row0 = n0 * SCALE_ROW;
    let w_row1 = n1 * ROW;
    let s_row1 = n1 * SCALE_ROW;
    let w_row2 = n2 * ROW;
    let s_row2 = n2 * SCALE_ROW;
    let w_row3 = n3 * ROW;
    let s_row3 = n3 * SCALE_ROW;

    let last_row = u32(max(params.rows, 1) - 1);
    let x_row1 = min(1u, last_row) * K;
    let low_unit = 1.0 / f32(1u << (8u * lane));
    let high_unit = 0.0625 * low_unit;
    var acc0_0 = 0.0;
    var acc0_1 = 0.0;
    var acc0_2 = 0.0;
    var acc0_3 = 0.0;
    var acc1_0 = 0.0;
    var acc1_1 = 0.0;
    var acc1_2 = 0.0;
    var acc1_3 = 0.0;
    for (var g = 0u; g < GROUPS; g++) {
        var sum0 = 0.0;
        var part0_0 = 0.0;
        var part0_1 = 0.0;
        var part0_2 = 0.0;
        var part0_3 = 0.0;
        var sum1 = 0.0;
        var part1_0 = 0.0;
        var part1_1 = 0.0;
        var part1_2 = 0.0;
        var part1_3 = 0.0;
        for (var c = g * GROUP_CHUNKS; c < (g + 1u) * GROUP_CHUNKS; c++) {
            let i = 8u * c + lane;
            var own0_low = load_x(0u, i);
            sum0 += own0_low;
            let x0_low = quad_values(own0_low * low_unit);
            var own1_low = load_x(x_row1, i);
            sum1 += own1_low;
            let x1_low = quad_values(own1_low * low_unit);
            var own0_high = load_x(0u, i + 4u);
            sum0 += own0_high;
            let x0_high = quad_values(own0_high * high_unit);
            var own1_high = load_x(x_row1, i + 4u);
            sum1 += own1_high;
            let x1_high = quad_values(own1_high * high_unit);
            let w0 = fetch(w_row0, c);
            let low0 = low(w0);
            let high0 = high(w0);
            part0_0 += dot(low0, x0_low) + dot(high0, x0_high);
            part1_0 += dot(low0, x1_low) + dot(high0, x1_high);
            let w1 = fetch(w_row1, c);
            let low1 = low(w1);
            let high1 = high(w1);
            part0_1 += dot(low1, x0_low) + dot(high1, x0_high);
            part1_1 += dot(low1, x1_low) + dot(high1, x1_high);
            let w2 = fetch(w_row2, c);
            let low2 = low(w2);
            let high2 = high(w2);
            part0_2 += dot(low2, x0_low) + dot(high2, x0_high);
            part1_2 += dot(low2, x1_low) + dot(high2, x1_high);
            let w3 = fetch(w_row3, c);
            let low3 = low(w3);
            let high3 = high(w3);
            part0_3 += dot(low3, x0_low) + dot(high3, x0_high);
            part1_3 += dot(low3, x1_low) + dot(high3, x1_high);
        }
        let total0 = quad_sum(sum0);
        let total1 = quad_sum(sum1);
        let s0 = scale_at(s_row0, g);
        acc0_0 += s0.x * part0_0 + s0.y * total0;
        acc1_0 += s0.x * part1_0 + s0.y * total1;
        let s1 = scale_at(s_row1, g);
        acc0_1 += s1.x * part0_1 + s1.y * total0;
        acc1_1 += s1.x * part1_1 + s1.y * total1;
        let s2 = scale_at(s_row2, g);
        acc0_2 += s2.x * part0_2 + s2.y * total0;
        acc1_2 += s2.x * part1_2 + s2.y * total1;
        let s3 = scale_at(s_row3, g);
        acc0_3 += s3.x * part0_3 + s3.y * total0;
        acc1_3 += s3.x * part1_3 + s3.y * total1;
    }
    store(0u, col, acc0_0);
    store(0u, col + 4u, acc0_1);
    store(0u, col + 8u, acc0_2);
    store(0u, col + 12u, acc0_3);
    store(1u, col, acc1_0);
    store(1u, col + 4u, acc1_1);
    store(1u, col + 8u, acc1_2);
    store(1u, col + 12u, acc1_3);
}
