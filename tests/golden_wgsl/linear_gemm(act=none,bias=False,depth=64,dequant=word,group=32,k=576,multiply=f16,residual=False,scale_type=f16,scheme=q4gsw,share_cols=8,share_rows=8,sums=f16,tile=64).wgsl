enable f16;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> codes: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
struct Params {
    rows: i32,    // rows of x from the first one bound, may be <= 0 in a late window
    cols: u32,    // outputs of this window of the weight
    first: u32,   // the window's first output
    stride: u32,  // outputs of a whole row of y
}
@group(0) @binding(4) var<uniform> params: Params;

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
alias Sum = vec2<f16>;  // of even and of odd k
const TILE = 64u;
const DEPTH = 64u;
const THREADS = 64u;
const ROW_CHUNKS = 8u;
var<workgroup> x_tile: array<Chunk, 512>;
var<workgroup> w_tile: array<Chunk, 512>;

fn at(row: u32, c: u32) -> u32 {
    return row * ROW_CHUNKS + (c ^ (row % 8u * ROW_CHUNKS / 8u));
}

fn chunk(first: vec4<f32>, second: vec4<f32>) -> Chunk {
    return Chunk(bitcast<vec2<u32>>(vec4<f16>(first)), bitcast<vec2<u32>>(vec4<f16>(second)));
}

fn part(first: f32, second: f32) -> u32 {
    return bitcast<u32>(vec2<f16>(vec2<f32>(first, second)));
}

fn madd(sum: Sum, a: Chunk, b: Chunk) -> Sum {
    let low = fma(pair(a.y), pair(b.y), fma(pair(a.x), pair(b.x), sum));
    return fma(pair(a.w), pair(b.w), fma(pair(a.z), pair(b.z), low));
}

fn pair(word: u32) -> vec2<f16> {
    return bitcast<vec2<f16>>(word);
}

fn total(sum: Sum) -> f32 {
    return f32(sum.x) + f32(sum.y);
}

// Signed conversions where the sign bit is clear: unsigned ones cost three times as much on a CPU.
fn low(word: u32) -> vec4<f32> {
    return vec4<f32>(vec4<i32>(i32(word)) & vec4<i32>(0xF, 0xF00, 0xF0000, 0xF000000));
}

fn high(word: u32) -> vec4<f32> {
    let first = vec3<f32>(vec3<i32>(i32(word)) & vec3<i32>(0xF0, 0xF000, 0xF00000));
    return vec4<f32>(first, f32(word & 0xF0000000u));
}

alias Block = vec4<u32>;

fn fetch_block(row: u32, b: u32) -> Block {
    return codes[row * (ROW / 4u) + b];
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
    y[i] = value;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let row = group.z * TILE;
    let col = (group.x + group.y * groups.x) * TILE;
    let last_row = u32(max(params.rows, 1) - 1);
    let own_row = thread / 8u;  // and every 8th after it
    let own_col = thread % 8u;  // and every 8th after it
    var w: array<Sum, 64>;
    for (var k = 0u; k < K; k += DEPTH) {
        for (var i = thread; i < TILE * ROW_CHUNKS; i += THREADS) {
            let m = min(row + i / ROW_CHUNKS, last_row);
            let first = k + 8u * (i % ROW_CHUNKS);
            x_tile[at(i / ROW_CHUNKS, i % ROW_CHUNKS)] = chunk(load_x(m, first), load_x(m, first + 4u));
        }
        {
            let n = thread / 1u;
            let first = 64u * (thread % 1u);
            let own = first / 8u;
            let c = (k + first) / CHUNK;
            {
                let w_row = min(col + n, params.cols - 1u);
                let block0 = fetch_block(w_row, c / 4u);
                let block1 = fetch_block(w_row, c / 4u + 1u);
                let scale0 = scale_at(w_row * SCALE_ROW, c / GROUP_CHUNKS);
                let scale1 = scale_at(w_row * SCALE_ROW, (c + 1u) / GROUP_CHUNKS);
                let scale2 = scale_at(w_row * SCALE_ROW, (c + 2u) / GROUP_CHUNKS);
                let scale3 = scale_at(w_row * SCALE_ROW, (c + 3u) / GROUP_CHUNKS);
                let scale4 = scale_at(w_row * SCALE_ROW, (c + 4u) / GROUP_CHUNKS);
                let scale5 = scale_at(w_row * SCALE_ROW, (c + 5u) / GROUP_CHUNKS);
                let scale6 = scale_at(w_row * SCALE_ROW, (c + 6u) / GROUP_CHUNKS);
                let scale7 = scale_at(w_row * SCALE_ROW, (c + 7u) / GROUP_CHUNKS);
                w_tile[at(n, own)] = chunk(low_weight(block0[0], scale0), high_weight(block0[0], scale0));
                w_tile[at(n, own + 1u)] = chunk(low_weight(block0[1], scale1), high_weight(block0[1], scale1));
                w_tile[at(n, own + 2u)] = chunk(low_weight(block0[2], scale2), high_weight(block0[2], scale2));
                w_tile[at(n, own + 3u)] = chunk(low_weight(block0[3], scale3), high_weight(block0[3], scale3));
                w_tile[at(n, own + 4u)] = chunk(low_weight(block1[0], scale4), high_weight(block1[0], scale4));
                w_tile[at(n, own + 5u)] = chunk(low_weight(block1[1], scale5), high_weight(block1[1], scale5));
                w_tile[at(n, own + 6u)] = chunk(low_weight(block1[2], scale6), high_weight(block1[2], scale6));
                w_tile[at(n, own + 7u)] = chunk(low_weight(block1[3], scale7), high_weight(block1[3], scale7));
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
            let x4 = x_tile[x_at + 256u];
            let x5 = x_tile[x_at + 320u];
            let x6 = x_tile[x_at + 384u];
            let x7 = x_tile[x_at + 448u];
            let w0 = w_tile[w_at];
            let w1 = w_tile[w_at + 64u];
            let w2 = w_tile[w_at + 128u];
            let w3 = w_tile[w_at + 192u];
            let w4 = w_tile[w_at + 256u];
            let w5 = w_tile[w_at + 320u];
            let w6 = w_tile[w_at + 384u];
            let w7 = w_tile[w_at + 448u];
            w[0] = madd(w[0], x0, w0);
            w[8] = madd(w[8], x1, w0);
            w[16] = madd(w[16], x2, w0);
            w[24] = madd(w[24], x3, w0);
            w[32] = madd(w[32], x4, w0);
            w[40] = madd(w[40], x5, w0);
            w[48] = madd(w[48], x6, w0);
            w[56] = madd(w[56], x7, w0);
            w[1] = madd(w[1], x0, w1);
            w[9] = madd(w[9], x1, w1);
            w[17] = madd(w[17], x2, w1);
            w[25] = madd(w[25], x3, w1);
            w[33] = madd(w[33], x4, w1);
            w[41] = madd(w[41], x5, w1);
            w[49] = madd(w[49], x6, w1);
            w[57] = madd(w[57], x7, w1);
            w[2] = madd(w[2], x0, w2);
            w[10] = madd(w[10], x1, w2);
            w[18] = madd(w[18], x2, w2);
            w[26] = madd(w[26], x3, w2);
            w[34] = madd(w[34], x4, w2);
            w[42] = madd(w[42], x5, w2);
            w[50] = madd(w[50], x6, w2);
            w[58] = madd(w[58], x7, w2);
            w[3] = madd(w[3], x0, w3);
            w[11] = madd(w[11], x1, w3);
            w[19] = madd(w[19], x2, w3);
            w[27] = madd(w[27], x3, w3);
            w[35] = madd(w[35], x4, w3);
            w[43] = madd(w[43], x5, w3);
            w[51] = madd(w[51], x6, w3);
            w[59] = madd(w[59], x7, w3);
            w[4] = madd(w[4], x0, w4);
            w[12] = madd(w[12], x1, w4);
            w[20] = madd(w[20], x2, w4);
            w[28] = madd(w[28], x3, w4);
            w[36] = madd(w[36], x4, w4);
            w[44] = madd(w[44], x5, w4);
            w[52] = madd(w[52], x6, w4);
            w[60] = madd(w[60], x7, w4);
            w[5] = madd(w[5], x0, w5);
            w[13] = madd(w[13], x1, w5);
            w[21] = madd(w[21], x2, w5);
            w[29] = madd(w[29], x3, w5);
            w[37] = madd(w[37], x4, w5);
            w[45] = madd(w[45], x5, w5);
            w[53] = madd(w[53], x6, w5);
            w[61] = madd(w[61], x7, w5);
            w[6] = madd(w[6], x0, w6);
            w[14] = madd(w[14], x1, w6);
            w[22] = madd(w[22], x2, w6);
            w[30] = madd(w[30], x3, w6);
            w[38] = madd(w[38], x4, w6);
            w[46] = madd(w[46], x5, w6);
            w[54] = madd(w[54], x6, w6);
            w[62] = madd(w[62], x7, w6);
            w[7] = madd(w[7], x0, w7);
            w[15] = madd(w[15], x1, w7);
            w[23] = madd(w[23], x2, w7);
            w[31] = madd(w[31], x3, w7);
            w[39] = madd(w[39], x4, w7);
            w[47] = madd(w[47], x5, w7);
            w[55] = madd(w[55], x6, w7);
            w[63] = madd(w[63], x7, w7);
        }
        workgroupBarrier();
    }
    store(row + own_row, col + own_col, total(w[0]));
    store(row + own_row, col + own_col + 8u, total(w[1]));
    store(row + own_row, col + own_col + 16u, total(w[2]));
    store(row + own_row, col + own_col + 24u, total(w[3]));
    store(row + own_row, col + own_col + 32u, total(w[4]));
    store(row + own_row, col + own_col + 40u, total(w[5]));
    store(row + own_row, col + own_col + 48u, total(w[6]));
    store(row + own_row, col + own_col + 56u, total(w[7]));
    store(row + own_row + 8u, col + own_col, total(w[8]));
    store(row + own_row + 8u, col + own_col + 8u, total(w[9]));
    store(row + own_row + 8u, col + own_col + 16u, total(w[10]));
    store(row + own_row + 8u, col + own_col + 24u, total(w[11]));
    store(row + own_row + 8u, col + own_col + 32u, total(w[12]));
    store(row + own_row + 8u, col + own_col + 40u, total(w[13]));
    store(row + own_row + 8u, col + own_col + 48u, total(w[14]));
    store(row + own_row + 8u, col + own_col + 56u, total(w[15]));
    store(row + own_row + 16u, col + own_col, total(w[16]));
    store(row + own_row + 16u, col + own_col + 8u, total(w[17]));
    store(row + own_row + 16u, col + own_col + 16u, total(w[18]));
    store(row + own_row + 16u, col + own_col + 24u, total(w[19]));
    store(row + own_row + 16u, col + own_col + 32u, total(w[20]));
    store(row + own_row + 16u, col + own_col + 40u, total(w[21]));
    store(row + own_row + 16u, col + own_col + 48u, total(w[22]));
    store(row + own_row + 16u, col + own_col + 56u, total(w[23]));
    store(row + own_row + 24u, col + own_col, total(w[24]));
    store(row + own_row + 24u, col + own_col + 8u, total(w[25]));
    store(row + own_row + 24u, col + own_col + 16u, total(w[26]));
    store(row + own_row + 24u, col + own_col + 24u, total(w[27]));
    store(row + own_row + 24u, col + own_col + 32u, total(w[28]));
    store(row + own_row + 24u, col + own_col + 40u, total(w[29]));
    store(row + own_row + 24u, col + own_col + 48u, total(w[30]));
    store(row + own_row + 24u, col + own_col + 56u, total(w[31]));
    store(row + own_row + 32u, col + own_col, total(w[32]));
    store(row + own_row + 32u, col + own_col + 8u, total(w[33]));
    store(row + own_row + 32u, col + own_col + 16u, total(w[34]));
    store(row + own_row + 32u, col + own_col + 24u, total(w[35]));
    store(row + own_row + 32u, col + own_col + 32u, total(w[36]));
    store(row + own_row + 32u, col + own_col + 40u, total(w[37]));
    store(row + own_row + 32u, col + own_col + 48u, total(w[38]));
    store(row + own_row + 32u, col + own_col + 56u, total(w[39]));
    store(row + own_row + 40u, col + own_col, total(w[40]));
    store(row + own_row + 40u, col + own_col + 8u, total(w[41]));
    store(row + own_row + 40u, col + own_col + 16u, total(w[42]));
    store(row + own_row + 40u, col + own_col + 24u, total(w[43]));
    store(row + own_row + 40u, col + own_col + 32u, total(w[44]));
    store(row + own_row + 40u, col + own_col + 40u, total(w[45]));
    store(row + own_row + 40u, col + own_col + 48u, total(w[46]));
    store(row + own_row + 40u, col + own_col + 56u, total(w[47]));
    store(row + own_row + 48u, col + own_col, total(w[48]));
    store(row + own_row + 48u, col + own_col + 8u, total(w[49]));
    store(row + own_row + 48u, col + own_col + 16u, total(w[50]));
    store(row + own_row + 48u, col + own_col + 24u, total(w[51]));
    store(row + own_row + 48u, col + own_col + 32u, total(w[52]));
    store(row + own_row + 48u, col + own_col + 40u, total(w[53]));
    store(row + own_row + 48u, col + own_col + 48u, total(w[54]));
    store(row + own_row + 48u, col + own_col + 56u, total(w[55]));
    store(row + own_row + 56u, col + own_col, total(w[56]));
    store(row + own_row + 56u, col + own_col + 8u, total(w[57]));
    store(row + own_row + 56u, col + own_col + 16u, total(w[58]));
    store(row + own_row + 56u, col + own_col + 24u, total(w[59]));
    store(row + own_row + 56u, col + own_col + 32u, total(w[60]));
    store(row + own_row + 56u, col + own_col + 40u, total(w[61]));
    store(row + own_row + 56u, col + own_col + 48u, total(w[62]));
    store(row + own_row + 56u, col + own_col + 56u, total(w[63]));
}
