enable subgroups;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> codes: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(3) var<storage, read> norm_weight: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
struct Params {
    rows: i32,    // rows of x from the first one bound, may be <= 0 in a late window
    cols: u32,    // outputs of this window of the weight
    first: u32,   // the window's first output
    stride: u32,  // outputs of a whole row of y
}
@group(0) @binding(5) var<uniform> params: Params;

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

fn quad_sum(value: f32) -> f32 {
    let pair = value + quadSwapX(value);
    return pair + quadSwapY(pair);
}

fn quad_values(value: f32) -> vec4<f32> {
    return vec4<f32>(quadBroadcast(value, 0u), quadBroadcast(value, 1u),
                     quadBroadcast(value, 2u), quadBroadcast(value, 3u));
}

fn load_x(start: u32, i: u32) -> f32 {
    return select(0.0, x[start + min(i, K - 1u)], i < K);
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
    let n4 = n0 + params.cols;
    let n5 = n1 + params.cols;
    let n6 = n2 + params.cols;
    let n7 = n3 + params.cols;
    let w_row0 = n0 * ROW;
    let s_row0 = n0 * SCALE_ROW;
    let w_row1 = n1 * ROW;
    let s_row1 = n1 * SCALE_ROW;
    let w_row2 = n2 * ROW;
    let s_row2 = n2 * SCALE_ROW;
    let w_row3 = n3 * ROW;
    let s_row3 = n3 * SCALE_ROW;
    let w_row4 = n4 * ROW;
    let s_row4 = n4 * SCALE_ROW;
    let w_row5 = n5 * ROW;
    let s_row5 = n5 * SCALE_ROW;
    let w_row6 = n6 * ROW;
    let s_row6 = n6 * SCALE_ROW;
    let w_row7 = n7 * ROW;
    let s_row7 = n7 * SCALE_ROW;

    var acc0_0 = 0.0;
    var acc0_1 = 0.0;
    var acc0_2 = 0.0;
    var acc0_3 = 0.0;
    var acc0_4 = 0.0;
    var acc0_5 = 0.0;
    var acc0_6 = 0.0;
    var acc0_7 = 0.0;
    var squares0 = 0.0;
    for (var g = 0u; g < GROUPS; g++) {
        var sum0 = 0.0;
        var part0_0 = 0.0;
        var part0_1 = 0.0;
        var part0_2 = 0.0;
        var part0_3 = 0.0;
        var part0_4 = 0.0;
        var part0_5 = 0.0;
        var part0_6 = 0.0;
        var part0_7 = 0.0;
        for (var c = g * GROUP_CHUNKS; c < min((g + 1u) * GROUP_CHUNKS, CHUNKS); c++) {
            let i = 4u * c + lane;
            let weight_low = norm_weight[min(i, K - 1u)];
            var own0_low = load_x(0u, i);
            squares0 += own0_low * own0_low;
            own0_low *= weight_low;
            sum0 += own0_low;
            let x0_low = quad_values(own0_low);
            let w0 = fetch(w_row0, c);
            part0_0 += dot(low(w0), x0_low);
            let w1 = fetch(w_row1, c);
            part0_1 += dot(low(w1), x0_low);
            let w2 = fetch(w_row2, c);
            part0_2 += dot(low(w2), x0_low);
            let w3 = fetch(w_row3, c);
            part0_3 += dot(low(w3), x0_low);
            let w4 = fetch(w_row4, c);
            part0_4 += dot(low(w4), x0_low);
            let w5 = fetch(w_row5, c);
            part0_5 += dot(low(w5), x0_low);
            let w6 = fetch(w_row6, c);
            part0_6 += dot(low(w6), x0_low);
            let w7 = fetch(w_row7, c);
            part0_7 += dot(low(w7), x0_low);
        }
        let total0 = quad_sum(sum0);
        let s0 = scale_at(s_row0, g);
        acc0_0 += s0.x * part0_0 + s0.y * total0;
        let s1 = scale_at(s_row1, g);
        acc0_1 += s1.x * part0_1 + s1.y * total0;
        let s2 = scale_at(s_row2, g);
        acc0_2 += s2.x * part0_2 + s2.y * total0;
        let s3 = scale_at(s_row3, g);
        acc0_3 += s3.x * part0_3 + s3.y * total0;
        let s4 = scale_at(s_row4, g);
        acc0_4 += s4.x * part0_4 + s4.y * total0;
        let s5 = scale_at(s_row5, g);
        acc0_5 += s5.x * part0_5 + s5.y * total0;
        let s6 = scale_at(s_row6, g);
        acc0_6 += s6.x * part0_6 + s6.y * total0;
        let s7 = scale_at(s_row7, g);
        acc0_7 += s7.x * part0_7 + s7.y * total0;
    }
    let scale0 = inverseSqrt(quad_sum(squares0) / f32(K) + 1e-05f);
    store(0u, col, acc0_0 * scale0, acc0_4 * scale0);
    store(0u, col + 4u, acc0_1 * scale0, acc0_5 * scale0);
    store(0u, col + 8u, acc0_2 * scale0, acc0_6 * scale0);
    store(0u, col + 12u, acc0_3 * scale0, acc0_7 * scale0);
}
