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

fn quad_values(value: f32) -> vec4<f32> {
    return vec4<f32>(value, quadSwapX(value), quadSwapY(value), quadSwapDiagonal(value));
}

fn load_x(start: u32, i: u32) -> vec4<f32> {
    let at = start + i;
    return vec4<f32>(x[at], x[at + 1u], x[at + 2u], x[at + 3u]);
}

@compute @workgroup_size(4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(subgroup_invocation_id) id: u32) {
    let lane = id & 3u;
    let row = group.z * 8u + lane;
    let col = (group.x + group.y * groups.x) * 16u;
    let last_row = u32(max(params.rows, 1) - 1);
    let x_row0 = min(row, last_row) * K;
    let x_row1 = min(row + 4u, last_row) * K;
    let n0 = min(col + lane, params.cols - 1u);
    let n1 = min(col + lane + 4u, params.cols - 1u);
    let n2 = min(col + lane + 8u, params.cols - 1u);
    let n3 = min(col + lane + 12u, params.cols - 1u);
    let w_row0 = n0 * ROW;
    let s_row0 = n0 * SCALE_ROW;
    let w_row1 = n1 * ROW;
    let s_row1 = n1 * SCALE_ROW;
    let w_row2 = n2 * ROW;
    let s_row2 = n2 * SCALE_ROW;
    let w_row3 = n3 * ROW;
    let s_row3 = n3 * SCALE_ROW;

    var acc0_0 = vec4<f32>();
    var acc0_1 = vec4<f32>();
    var acc0_2 = vec4<f32>();
    var acc0_3 = vec4<f32>();
    var acc1_0 = vec4<f32>();
    var acc1_1 = vec4<f32>();
    var acc1_2 = vec4<f32>();
    var acc1_3 = vec4<f32>();
    for (var g = 0u; g < GROUPS; g++) {
        var sum0 = 0.0;
        var part0_0 = vec4<f32>();
        var part0_1 = vec4<f32>();
        var part0_2 = vec4<f32>();
        var part0_3 = vec4<f32>();
        var sum1 = 0.0;
        var part1_0 = vec4<f32>();
        var part1_1 = vec4<f32>();
        var part1_2 = vec4<f32>();
        var part1_3 = vec4<f32>();
        for (var c = g * GROUP_CHUNKS; c < (g + 1u) * GROUP_CHUNKS; c++) {
            var x0_low = load_x(x_row0, 8u * c);
            sum0 += dot(x0_low, vec4<f32>(1.0));
            x0_low *= LOW_UNIT;
            var x0_high = load_x(x_row0, 8u * c + 4u);
            sum0 += dot(x0_high, vec4<f32>(1.0));
            x0_high *= HIGH_UNIT;
            var x1_low = load_x(x_row1, 8u * c);
            sum1 += dot(x1_low, vec4<f32>(1.0));
            x1_low *= LOW_UNIT;
            var x1_high = load_x(x_row1, 8u * c + 4u);
            sum1 += dot(x1_high, vec4<f32>(1.0));
            x1_high *= HIGH_UNIT;
            let w0 = fetch(w_row0, c);
            let low0_0 = low(w0);
            let high0_0 = high(w0);
            let low0_1 = low(quadSwapX(w0));
            let high0_1 = high(quadSwapX(w0));
            let low0_2 = low(quadSwapY(w0));
            let high0_2 = high(quadSwapY(w0));
            let low0_3 = low(quadSwapDiagonal(w0));
            let high0_3 = high(quadSwapDiagonal(w0));
            part0_0 += vec4<f32>(
                dot(low0_0, x0_low) + dot(high0_0, x0_high),
                dot(low0_1, x0_low) + dot(high0_1, x0_high),
                dot(low0_2, x0_low) + dot(high0_2, x0_high),
                dot(low0_3, x0_low) + dot(high0_3, x0_high));
            part1_0 += vec4<f32>(
                dot(low0_0, x1_low) + dot(high0_0, x1_high),
                dot(low0_1, x1_low) + dot(high0_1, x1_high),
                dot(low0_2, x1_low) + dot(high0_2, x1_high),
                dot(low0_3, x1_low) + dot(high0_3, x1_high));
            let w1 = fetch(w_row1, c);
            let low1_0 = low(w1);
            let high1_0 = high(w1);
            let low1_1 = low(quadSwapX(w1));
            let high1_1 = high(quadSwapX(w1));
            let low1_2 = low(quadSwapY(w1));
            let high1_2 = high(quadSwapY(w1));
            let low1_3 = low(quadSwapDiagonal(w1));
            let high1_3 = high(quadSwapDiagonal(w1));
            part0_1 += vec4<f32>(
                dot(low1_0, x0_low) + dot(high1_0, x0_high),
                dot(low1_1, x0_low) + dot(high1_1, x0_high),
                dot(low1_2, x0_low) + dot(high1_2, x0_high),
                dot(low1_3, x0_low) + dot(high1_3, x0_high));
            part1_1 += vec4<f32>(
                dot(low1_0, x1_low) + dot(high1_0, x1_high),
                dot(low1_1, x1_low) + dot(high1_1, x1_high),
                dot(low1_2, x1_low) + dot(high1_2, x1_high),
                dot(low1_3, x1_low) + dot(high1_3, x1_high));
            let w2 = fetch(w_row2, c);
            let low2_0 = low(w2);
            let high2_0 = high(w2);
            let low2_1 = low(quadSwapX(w2));
            let high2_1 = high(quadSwapX(w2));
            let low2_2 = low(quadSwapY(w2));
            let high2_2 = high(quadSwapY(w2));
            let low2_3 = low(quadSwapDiagonal(w2));
            let high2_3 = high(quadSwapDiagonal(w2));
            part0_2 += vec4<f32>(
                dot(low2_0, x0_low) + dot(high2_0, x0_high),
                dot(low2_1, x0_low) + dot(high2_1, x0_high),
                dot(low2_2, x0_low) + dot(high2_2, x0_high),
                dot(low2_3, x0_low) + dot(high2_3, x0_high));
            part1_2 += vec4<f32>(
                dot(low2_0, x1_low) + dot(high2_0, x1_high),
                dot(low2_1, x1_low) + dot(high2_1, x1_high),
                dot(low2_2, x1_low) + dot(high2_2, x1_high),
                dot(low2_3, x1_low) + dot(high2_3, x1_high));
            let w3 = fetch(w_row3, c);
            let low3_0 = low(w3);
            let high3_0 = high(w3);
            let low3_1 = low(quadSwapX(w3));
            let high3_1 = high(quadSwapX(w3));
            let low3_2 = low(quadSwapY(w3));
            let high3_2 = high(quadSwapY(w3));
            let low3_3 = low(quadSwapDiagonal(w3));
            let high3_3 = high(quadSwapDiagonal(w3));
            part0_3 += vec4<f32>(
                dot(low3_0, x0_low) + dot(high3_0, x0_high),
                dot(low3_1, x0_low) + dot(high3_1, x0_high),
                dot(low3_2, x0_low) + dot(high3_2, x0_high),
                dot(low3_3, x0_low) + dot(high3_3, x0_high));
            part1_3 += vec4<f32>(
                dot(low3_0, x1_low) + dot(high3_0, x1_high),
                dot(low3_1, x1_low) + dot(high3_1, x1_high),
                dot(low3_2, x1_low) + dot(high3_2, x1_high),
                dot(low3_3, x1_low) + dot(high3_3, x1_high));
        }
        let s0 = scale_at(s_row0, g);
        let scale0 = quad_values(s0.x);
        let offset0 = quad_values(s0.y);
        acc0_0 += scale0 * part0_0 + offset0 * sum0;
        acc1_0 += scale0 * part1_0 + offset0 * sum1;
        let s1 = scale_at(s_row1, g);
        let scale1 = quad_values(s1.x);
        let offset1 = quad_values(s1.y);
        acc0_1 += scale1 * part0_1 + offset1 * sum0;
        acc1_1 += scale1 * part1_1 + offset1 * sum1;
        let s2 = scale_at(s_row2, g);
        let scale2 = quad_values(s2.x);
        let offset2 = quad_values(s2.y);
        acc0_2 += scale2 * part0_2 + offset2 * sum0;
        acc1_2 += scale2 * part1_2 + offset2 * sum1;
        let s3 = scale_at(s_row3, g);
        let scale3 = quad_values(s3.x);
        let offset3 = quad_values(s3.y);
        acc0_3 += scale3 * part0_3 + offset3 * sum0;
        acc1_3 += scale3 * part1_3 + offset3 * sum1;
    }
    store(row, col + lane, acc0_0[0]);
    store(row, col + (lane ^ 1u), acc0_0[1]);
    store(row, col + (lane ^ 2u), acc0_0[2]);
    store(row, col + (lane ^ 3u), acc0_0[3]);
    store(row, col + 4u + lane, acc0_1[0]);
    store(row, col + 4u + (lane ^ 1u), acc0_1[1]);
    store(row, col + 4u + (lane ^ 2u), acc0_1[2]);
    store(row, col + 4u + (lane ^ 3u), acc0_1[3]);
    store(row, col + 8u + lane, acc0_2[0]);
    store(row, col + 8u + (lane ^ 1u), acc0_2[1]);
    store(row, col + 8u + (lane ^ 2u), acc0_2[2]);
    store(row, col + 8u + (lane ^ 3u), acc0_2[3]);
    store(row, col + 12u + lane, acc0_3[0]);
    store(row, col + 12u + (lane ^ 1u), acc0_3[1]);
    store(row, col + 12u + (lane ^ 2u), acc0_3[2]);
    store(row, col + 12u + (lane ^ 3u), acc0_3[3]);
    store(row + 4u, col + lane, acc1_0[0]);
    store(row + 4u, col + (lane ^ 1u), acc1_0[1]);
    store(row + 4u, col + (lane ^ 2u), acc1_0[2]);
    store(row + 4u, col + (lane ^ 3u), acc1_0[3]);
    store(row + 4u, col + 4u + lane, acc1_1[0]);
    store(row + 4u, col + 4u + (lane ^ 1u), acc1_1[1]);
    store(row + 4u, col + 4u + (lane ^ 2u), acc1_1[2]);
    store(row + 4u, col + 4u + (lane ^ 3u), acc1_1[3]);
    store(row + 4u, col + 8u + lane, acc1_2[0]);
    store(row + 4u, col + 8u + (lane ^ 1u), acc1_2[1]);
    store(row + 4u, col + 8u + (lane ^ 2u), acc1_2[2]);
    store(row + 4u, col + 8u + (lane ^ 3u), acc1_2[3]);
    store(row + 4u, col + 12u + lane, acc1_3[0]);
    store(row + 4u, col + 12u + (lane ^ 1u), acc1_3[1]);
    store(row + 4u, col + 12u + (lane ^ 2u), acc1_3[2]);
    store(row + 4u, col + 12u + (lane ^ 3u), acc1_3[3]);
}
