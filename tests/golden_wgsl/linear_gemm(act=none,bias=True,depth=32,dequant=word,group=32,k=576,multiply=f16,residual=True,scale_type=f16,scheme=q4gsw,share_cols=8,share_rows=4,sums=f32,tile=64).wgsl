enable f16;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
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

const CHUNK = 8u;
alias Chunk = vec4<u32>;  // 8 values of a row
alias Sum = f32;
const TILE = 64u;
const DEPTH = 32u;
const THREADS = 128u;
const ROW_CHUNKS = 4u;
var<workgroup> x_tile: array<Chunk, 256>;
var<workgroup> w_tile: array<Chunk, 256>;

fn at(row: u32, c: u32) -> u32 {
    return row * ROW_CHUNKS + (c ^ (row % 8u * ROW_CHUNKS / 8u));
}

fn chunk(first: vec4<f32>, second: vec4<f32>) -> Chunk {
    return Chunk(bitcast<vec2<u32>>(vec4<f16>(first)), bitcast<vec2<u32>>(vec4<f16>(second)));
}

fn part(first: f32, second: f32) -> u32 {
    return bitcast<u32>(vec2<f16>(vec2<f32>(first, second)));
}

fn madd(sum: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

fn four(halves: vec2<u32>) -> vec4<f32> {
    return vec4<f32>(bitcast<vec4<f16>>(halves));
}

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

fn low_weight(word: u32, scale: vec2<f32>) -> vec4<f32> {
    return (low(word) * LOW_UNIT - 8.0) * scale.x;
}

fn high_weight(word: u32, scale: vec2<f32>) -> vec4<f32> {
    return (high(word) * HIGH_UNIT - 8.0) * scale.x;
}

fn load_x(m: u32, i: u32) -> vec4<f32> {
    return select(vec4<f32>(), x[(m * K + min(i, K - 4u)) / 4u], i < K);
}

fn store(m: u32, n: u32, value: f32) {
    if (i32(m) >= params.rows || n >= params.cols) {
        return;
    }
    let i = m * params.stride + params.first + n;
    y[i] = value + bias[params.first + n] + residual[i];
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let row = group.z * TILE;
    let col = (group.x + group.y * groups.x) * TILE;
    let last_row = u32(max(params.rows, 1) - 1);
    let own_row = thread / 8u;  // and every 16th after it
    let own_col = thread % 8u;  // and every 8th after it
    var w: array<Sum, 32>;
    for (var k = 0u; k < K; k += DEPTH) {
        for (var i = thread; i < TILE * ROW_CHUNKS; i += THREADS) {
            let m = min(row + i / ROW_CHUNKS, last_row);
            let first = k + 8u * (i % ROW_CHUNKS);
            x_tile[at(i / ROW_CHUNKS, i % ROW_CHUNKS)] = chunk(load_x(m, first), load_x(m, first + 4u));
        }
        {
            let n = thread / 2u;
            let first = 16u * (thread % 2u);
            let own = first / 8u;
            let c = (k + first) / CHUNK;
            {
                let w_row = min(col + n, params.cols - 1u);
                let word0 = fetch(w_row * ROW, c);
                let word1 = fetch(w_row * ROW, c + 1u);
                let scale = scale_at(w_row * SCALE_ROW, c / GROUP_CHUNKS);
                w_tile[at(n, own)] = chunk(low_weight(word0, scale), high_weight(word0, scale));
                w_tile[at(n, own + 1u)] = chunk(low_weight(word1, scale), high_weight(word1, scale));
            }
        }
        workgroupBarrier();
        for (var c = 0u; c < ROW_CHUNKS; c++) {
            let x_at = at(own_row, c);
            let w_at = at(own_col, c);
            let x0 = x_tile[x_at];
            let x1 = x_tile[x_at + 64u];
            let x2 = x_tile[x_at + 128u];
            let x3 = x_tile[x_at + 192u];
            let w0 = w_tile[w_at];
            let w1 = w_tile[w_at + 32u];
            let w2 = w_tile[w_at + 64u];
            let w3 = w_tile[w_at + 96u];
            let w4 = w_tile[w_at + 128u];
            let w5 = w_tile[w_at + 160u];
            let w6 = w_tile[w_at + 192u];
            let w7 = w_tile[w_at + 224u];
            let x0_xy = four(x0.xy);
            let x1_xy = four(x1.xy);
            let x2_xy = four(x2.xy);
            let x3_xy = four(x3.xy);
            let w0_xy = four(w0.xy);
            w[0] = madd(w[0], x0_xy, w0_xy);
            w[8] = madd(w[8], x1_xy, w0_xy);
            w[16] = madd(w[16], x2_xy, w0_xy);
            w[24] = madd(w[24], x3_xy, w0_xy);
            let w1_xy = four(w1.xy);
            w[1] = madd(w[1], x0_xy, w1_xy);
            w[9] = madd(w[9], x1_xy, w1_xy);
            w[17] = madd(w[17], x2_xy, w1_xy);
            w[25] = madd(w[25], x3_xy, w1_xy);
            let w2_xy = four(w2.xy);
            w[2] = madd(w[2], x0_xy, w2_xy);
            w[10] = madd(w[10], x1_xy, w2_xy);
            w[18] = madd(w[18], x2_xy, w2_xy);
            w[26] = madd(w[26], x3_xy, w2_xy);
            let w3_xy = four(w3.xy);
            w[3] = madd(w[3], x0_xy, w3_xy);
            w[11] = madd(w[11], x1_xy, w3_xy);
            w[19] = madd(w[19], x2_xy, w3_xy);
            w[27] = madd(w[27], x3_xy, w3_xy);
            let w4_xy = four(w4.xy);
            w[4] = madd(w[4], x0_xy, w4_xy);
            w[12] = madd(w[12], x1_xy, w4_xy);
            w[20] = madd(w[20], x2_xy, w4_xy);
            w[28] = madd(w[28], x3_xy, w4_xy);
            let w5_xy = four(w5.xy);
            w[5] = madd(w[5], x0_xy, w5_xy);
            w[13] = madd(w[13], x1_xy, w5_xy);
            w[21] = madd(w[21], x2_xy, w5_xy);
            w[29] = madd(w[29], x3_xy, w5_xy);
            let w6_xy = four(w6.xy);
            w[6] = madd(w[6], x0_xy, w6_xy);
            w[14] = madd(w[14], x1_xy, w6_xy);
            w[22] = madd(w[22], x2_xy, w6_xy);
            w[30] = madd(w[30], x3_xy, w6_xy);
            let w7_xy = four(w7.xy);
            w[7] = madd(w[7], x0_xy, w7_xy);
            w[15] = madd(w[15], x1_xy, w7_xy);
            w[23] = madd(w[23], x2_xy, w7_xy);
            w[31] = madd(w[31], x3_xy, w7_xy);
            let x0_zw = four(x0.zw);
            let x1_zw = four(x1.zw);
            let x2_zw = four(x2.zw);
            let x3_zw = four(x3.zw);
            let w0_zw = four(w0.zw);
            w[0] = madd(w[0], x0_zw, w0_zw);
            w[8] = madd(w[8], x1_zw, w0_zw);
            w[16] = madd(w[16], x2_zw, w0_zw);
            w[24] = madd(w[24], x3_zw, w0_zw);
            let w1_zw = four(w1.zw);
            w[1] = madd(w[1], x0_zw, w1_zw);
            w[9] = madd(w[9], x1_zw, w1_zw);
            w[17] = madd(w[17], x2_zw, w1_zw);
            w[25] = madd(w[25], x3_zw, w1_zw);
            let w2_zw = four(w2.zw);
            w[2] = madd(w[2], x0_zw, w2_zw);
            w[10] = madd(w[10], x1_zw, w2_zw);
            w[18] = madd(w[18], x2_zw, w2_zw);
            w[26] = madd(w[26], x3_zw, w2_zw);
            let w3_zw = four(w3.zw);
            w[3] = madd(w[3], x0_zw, w3_zw);
            w[11] = madd(w[11], x1_zw, w3_zw);
            w[19] = madd(w[19], x2_zw, w3_zw);
            w[27] = madd(w[27], x3_zw, w3_zw);
            let w4_zw = four(w4.zw);
            w[4] = madd(w[4], x0_zw, w4_zw);
            w[12] = madd(w[12], x1_zw, w4_zw);
            w[20] = madd(w[20], x2_zw, w4_zw);
            w[28] = madd(w[28], x3_zw, w4_zw);
            let w5_zw = four(w5.zw);
            w[5] = madd(w[5], x0_zw, w5_zw);
            w[13] = madd(w[13], x1_zw, w5_zw);
            w[21] = madd(w[21], x2_zw, w5_zw);
            w[29] = madd(w[29], x3_zw, w5_zw);
            let w6_zw = four(w6.zw);
            w[6] = madd(w[6], x0_zw, w6_zw);
            w[14] = madd(w[14], x1_zw, w6_zw);
            w[22] = madd(w[22], x2_zw, w6_zw);
            w[30] = madd(w[30], x3_zw, w6_zw);
            let w7_zw = four(w7.zw);
            w[7] = madd(w[7], x0_zw, w7_zw);
            w[15] = madd(w[15], x1_zw, w7_zw);
            w[23] = madd(w[23], x2_zw, w7_zw);
            w[31] = madd(w[31], x3_zw, w7_zw);
        }
        workgroupBarrier();
    }
    store(row + own_row, col + own_col, w[0]);
    store(row + own_row, col + own_col + 8u, w[1]);
    store(row + own_row, col + own_col + 16u, w[2]);
    store(row + own_row, col + own_col + 24u, w[3]);
    store(row + own_row, col + own_col + 32u, w[4]);
    store(row + own_row, col + own_col + 40u, w[5]);
    store(row + own_row, col + own_col + 48u, w[6]);
    store(row + own_row, col + own_col + 56u, w[7]);
    store(row + own_row + 16u, col + own_col, w[8]);
    store(row + own_row + 16u, col + own_col + 8u, w[9]);
    store(row + own_row + 16u, col + own_col + 16u, w[10]);
    store(row + own_row + 16u, col + own_col + 24u, w[11]);
    store(row + own_row + 16u, col + own_col + 32u, w[12]);
    store(row + own_row + 16u, col + own_col + 40u, w[13]);
    store(row + own_row + 16u, col + own_col + 48u, w[14]);
    store(row + own_row + 16u, col + own_col + 56u, w[15]);
    store(row + own_row + 32u, col + own_col, w[16]);
    store(row + own_row + 32u, col + own_col + 8u, w[17]);
    store(row + own_row + 32u, col + own_col + 16u, w[18]);
    store(row + own_row + 32u, col + own_col + 24u, w[19]);
    store(row + own_row + 32u, col + own_col + 32u, w[20]);
    store(row + own_row + 32u, col + own_col + 40u, w[21]);
    store(row + own_row + 32u, col + own_col + 48u, w[22]);
    store(row + own_row + 32u, col + own_col + 56u, w[23]);
    store(row + own_row + 48u, col + own_col, w[24]);
    store(row + own_row + 48u, col + own_col + 8u, w[25]);
    store(row + own_row + 48u, col + own_col + 16u, w[26]);
    store(row + own_row + 48u, col + own_col + 24u, w[27]);
    store(row + own_row + 48u, col + own_col + 32u, w[28]);
    store(row + own_row + 48u, col + own_col + 40u, w[29]);
    store(row + own_row + 48u, col + own_col + 48u, w[30]);
    store(row + own_row + 48u, col + own_col + 56u, w[31]);
}
