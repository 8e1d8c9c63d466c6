enable subgroups;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> codes: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
struct Params {
    rows: i32,    // rows of x from the first one bound, may be <= 0 in a late window
    cols: u32,    // outputs of this window of the weight
    first: u32,   // the window's first output
    stride: u32,  // outputs of a whole row of y
}
@group(0) @binding(4) var<uniform> params: Params;

const K = 77u;
const CHUNKS = 20u;
const ROW = 20u;  // from a row of the weight to the next
const SCALE_ROW = 14u;
const GROUP_CHUNKS = 3u;
const GROUPS = 7u;

// Each signed byte moved to the top of its own word: 2^24 times the code.
fn low(word: u32) -> vec4<f32> {
    let bytes = vec4<u32>(word) * vec4<u32>(0x1000000u, 0x10000u, 0x100u, 1u);
    return vec4<f32>(bitcast<vec4<i32>>(bytes & vec4<u32>(0xFF000000u)));
}

fn fetch(start: u32, c: u32) -> u32 {
    return codes[start + c];
}

fn scale_at(start: u32, g: u32) -> vec2<f32> {
    let i = start + 2u * g;
    let s = vec2<f32>(scales[i], scales[i + 1u]);
    return s * vec2<f32>(0x1p-24f, 1.0);
}

fn activate(gate: f32) -> f32 {
    let inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate);
    return 0.5 * gate * (1.0 + tanh(clamp(inner, -15.0, 15.0)));  // 1 in f32 beyond
}

fn store(m: u32, n: u32, value: f32, up: f32) {
    if (i32(m) >= params.rows || n >= params.cols) {
        return;
    }
    let i = m * params.stride + params.first + n;
    y[i] = activate(value) * up;
}

fn quad_values(value: f32) -> vec4<f32> {
    return vec4<f32>(value, quadSwapX(value), quadSwapY(value), quadSwapDiagonal(value));
}

fn load_x(start: u32, i: u32) -> vec4<f32> {
    let at = start + i;
    let end = start + K - 1u;
    let value = vec4<f32>(x[min(at, end)], x[min(at + 1u, end)],
                          x[min(at + 2u, end)], x[min(at + 3u, end)]);
    return select(vec4<f32>(), value, vec4<u32>(i) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(K));
}

@compute @workgroup_size(4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(subgroup_invocation_id) id: u32) {
    let lane = id & 3u;
    let row = group.z * 4u + lane;
    let col = (group.x + group.y * groups.x) * 8u;
    let last_row = u32(max(params.rows, 1) - 1);
    let x_row0 = min(row, last_row) * K;
    let n0 = min(col + lane, params.cols - 1u);
    let n1 = min(col + lane + 4u, params.cols - 1u);
    let n2 = n0 + params.cols;
    let n3 = n1 + params.cols;
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
    for (var g = 0u; g < GROUPS; g++) {
        var sum0 = 0.0;
        var part0_0 = vec4<f32>();
        var part0_1 = vec4<f32>();
        var part0_2 = vec4<f32>();
        var part0_3 = vec4<f32>();
        for (var c = g * GROUP_CHUNKS; c < min((g + 1u) * GROUP_CHUNKS, CHUNKS); c++) {
            var x0_low = load_x(x_row0, 4u * c);
            sum0 += dot(x0_low, vec4<f32>(1.0));
            let w0 = fetch(w_row0, c);
            let low0_0 = low(w0);
            let low0_1 = low(quadSwapX(w0));
            let low0_2 = low(quadSwapY(w0));
            let low0_3 = low(quadSwapDiagonal(w0));
            part0_0 += vec4<f32>(
                dot(low0_0, x0_low),
                dot(low0_1, x0_low),
                dot(low0_2, x0_low),
                dot(low0_3, x0_low));
            let w1 = fetch(w_row1, c);
            let low1_0 = low(w1);
            let low1_1 = low(quadSwapX(w1));
            let low1_2 = low(quadSwapY(w1));
            let low1_3 = low(quadSwapDiagonal(w1));
            part0_1 += vec4<f32>(
                dot(low1_0, x0_low),
                dot(low1_1, x0_low),
                dot(low1_2, x0_low),
                dot(low1_3, x0_low));
            let w2 = fetch(w_row2, c);
            let low2_0 = low(w2);
            let low2_1 = low(quadSwapX(w2));
            let low2_2 = low(quadSwapY(w2));
            let low2_3 = low(quadSwapDiagonal(w2));
            part0_2 += vec4<f32>(
                dot(low2_0, x0_low),
                dot(low2_1, x0_low),
                dot(low2_2, x0_low),
                dot(low2_3, x0_low));
            let w3 = fetch(w_row3, c);
            let low3_0 = low(w3);
            let low3_1 = low(quadSwapX(w3));
            let low3_2 = low(quadSwapY(w3));
            let low3_3 = low(quadSwapDiagonal(w3));
            part0_3 += vec4<f32>(
                dot(low3_0, x0_low),
                dot(low3_1, x0_low),
                dot(low3_2, x0_low),
                dot(low3_3, x0_low));
        }
        let s0 = scale_at(s_row0, g);
        let scale0 = quad_values(s0.x);
        let offset0 = quad_values(s0.y);
        acc0_0 += scale0 * part0_0 + offset0 * sum0;
        let s1 = scale_at(s_row1, g);
        let scale1 = quad_values(s1.x);
        let offset1 = quad_values(s1.y);
        acc0_1 += scale1 * part0_1 + offset1 * sum0;
        let s2 = scale_at(s_row2, g);
        let scale2 = quad_values(s2.x);
        let offset2 = quad_values(s2.y);
        acc0_2 += scale2 * part0_2 + offset2 * sum0;
        let s3 = scale_at(s_row3, g);
        let scale3 = quad_values(s3.x);
        let offset3 = quad_values(s3.y);
        acc0_3 += scale3 * part0_3 + offset3 * sum0;
    }
    store(row, col + lane, acc0_0[0], acc0_2[0]);
    store(row, col + (lane ^ 1u), acc0_0[1], acc0_2[1]);
    store(row, col + (lane ^ 2u), acc0_0[2], acc0_2[2]);
    store(row, col + (lane ^ 3u), acc0_0[3], acc0_2[3]);
    store(row, col + 4u + lane, acc0_1[0], acc0_3[0]);
    store(row, col + 4u + (lane ^ 1u), acc0_1[1], acc0_3[1]);
    store(row, col + 4u + (lane ^ 2u), acc0_1[2], acc0_3[2]);
    store(row, col + 4u + (lane ^ 3u), acc0_1[3], acc0_3[3]);
}
