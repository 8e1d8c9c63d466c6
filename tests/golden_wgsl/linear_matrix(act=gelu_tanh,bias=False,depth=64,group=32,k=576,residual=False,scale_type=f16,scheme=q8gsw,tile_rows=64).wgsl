enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> codes: array<u32>;
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
const CHUNKS = 144u;
const ROW = 144u;  // from a row of the weight to the next
const SCALE_ROW = 9u;
const GROUP_CHUNKS = 8u;
const GROUPS = 18u;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;
const DEPTH = 64u;
const CHUNK = 4u;
const LINE = 72u;  // from a line of a tile to the next: neighbours start in other banks
var<workgroup> x_tile: array<f16, 4608>;  // 64 rows of x
var<workgroup> w_tile: array<f16, 4608>;  // 64 rows of the weight

fn put_x(line: u32, d: u32, value: vec4<f16>) {
    let at = line * LINE + d;
    x_tile[at] = value[0];
    x_tile[at + 1u] = value[1];
    x_tile[at + 2u] = value[2];
    x_tile[at + 3u] = value[3];
}

fn put_w(line: u32, d: u32, value: vec4<f16>) {
    let at = line * LINE + d;
    w_tile[at] = value[0];
    w_tile[at + 1u] = value[1];
    w_tile[at + 2u] = value[2];
    w_tile[at + 3u] = value[3];
}

var<workgroup> piece: array<f32, 1024>;  // 16x16 sums of each subgroup

// Each signed byte moved to the top of its own word: 2^24 times the code.
fn low(word: u32) -> vec4<f32> {
    let bytes = vec4<u32>(word) * vec4<u32>(0x1000000u, 0x10000u, 0x100u, 1u);
    return vec4<f32>(bitcast<vec4<i32>>(bytes & vec4<u32>(0xFF000000u)));
}

fn low_weight(word: u32, scale: vec2<f32>) -> vec4<f32> {
    return low(word) * scale.x;
}

fn fetch(start: u32, c: u32) -> u32 {
    return codes[start + c];
}

fn scale_at(start: u32, g: u32) -> vec2<f32> {
    let pair = unpack2x16float(scales[start + (g >> 1u)]);
    let s = select(pair.x, pair.y, (g & 1u) == 1u);
    return vec2<f32>(s * 0x1p-24f, 0.0);
}

fn load_x(m: u32, i: u32) -> vec4<f32> {
    return x[(m * K + i) / 4u];
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

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let row = group.z * 64u;
    let col = (group.x + group.y * groups.x) * 32u;
    let last_row = u32(max(params.rows, 1) - 1);
    let team = thread / 32u;
    let lane = thread % 32u;
    let own_row = 32u * (team / 2u);
    let own_col = 16u * (team % 2u);
    var sums00: Sums;
    var sums01: Sums;
    var sums10: Sums;
    var sums11: Sums;
    let x_line = thread / 16u;
    let x_d = 4u * (thread % 16u);
    let w_line = thread / 16u;
    let w_d = CHUNK * (thread % 16u);
    let x_row0 = min(row + x_line, last_row);
    var x0: vec4<f32>;
    let x_row1 = min(row + x_line + 8u, last_row);
    var x1: vec4<f32>;
    let x_row2 = min(row + x_line + 16u, last_row);
    var x2: vec4<f32>;
    let x_row3 = min(row + x_line + 24u, last_row);
    var x3: vec4<f32>;
    let x_row4 = min(row + x_line + 32u, last_row);
    var x4: vec4<f32>;
    let x_row5 = min(row + x_line + 40u, last_row);
    var x5: vec4<f32>;
    let x_row6 = min(row + x_line + 48u, last_row);
    var x6: vec4<f32>;
    let x_row7 = min(row + x_line + 56u, last_row);
    var x7: vec4<f32>;
    let w_row0 = min(col + w_line, params.cols - 1u);  // of gate
    var word0: u32;
    var scale0: vec2<f32>;
    let w_row1 = min(col + w_line + 8u, params.cols - 1u);  // of gate
    var word1: u32;
    var scale1: vec2<f32>;
    let w_row2 = min(col + w_line + 16u, params.cols - 1u);  // of gate
    var word2: u32;
    var scale2: vec2<f32>;
    let w_row3 = min(col + w_line + 24u, params.cols - 1u);  // of gate
    var word3: u32;
    var scale3: vec2<f32>;
    let w_row4 = min(col + w_line, params.cols - 1u) + params.cols;  // of up
    var word4: u32;
    var scale4: vec2<f32>;
    let w_row5 = min(col + w_line + 8u, params.cols - 1u) + params.cols;  // of up
    var word5: u32;
    var scale5: vec2<f32>;
    let w_row6 = min(col + w_line + 16u, params.cols - 1u) + params.cols;  // of up
    var word6: u32;
    var scale6: vec2<f32>;
    let w_row7 = min(col + w_line + 24u, params.cols - 1u) + params.cols;  // of up
    var word7: u32;
    var scale7: vec2<f32>;

    {
        let from_k = min(0u, K - DEPTH);
        let c = (from_k + w_d) / CHUNK;
        x0 = load_x(x_row0, from_k + x_d);
        x1 = load_x(x_row1, from_k + x_d);
        x2 = load_x(x_row2, from_k + x_d);
        x3 = load_x(x_row3, from_k + x_d);
        x4 = load_x(x_row4, from_k + x_d);
        x5 = load_x(x_row5, from_k + x_d);
        x6 = load_x(x_row6, from_k + x_d);
        x7 = load_x(x_row7, from_k + x_d);
        word0 = fetch(w_row0 * ROW, c);
        scale0 = scale_at(w_row0 * SCALE_ROW, c / GROUP_CHUNKS);
        word1 = fetch(w_row1 * ROW, c);
        scale1 = scale_at(w_row1 * SCALE_ROW, c / GROUP_CHUNKS);
        word2 = fetch(w_row2 * ROW, c);
        scale2 = scale_at(w_row2 * SCALE_ROW, c / GROUP_CHUNKS);
        word3 = fetch(w_row3 * ROW, c);
        scale3 = scale_at(w_row3 * SCALE_ROW, c / GROUP_CHUNKS);
        word4 = fetch(w_row4 * ROW, c);
        scale4 = scale_at(w_row4 * SCALE_ROW, c / GROUP_CHUNKS);
        word5 = fetch(w_row5 * ROW, c);
        scale5 = scale_at(w_row5 * SCALE_ROW, c / GROUP_CHUNKS);
        word6 = fetch(w_row6 * ROW, c);
        scale6 = scale_at(w_row6 * SCALE_ROW, c / GROUP_CHUNKS);
        word7 = fetch(w_row7 * ROW, c);
        scale7 = scale_at(w_row7 * SCALE_ROW, c / GROUP_CHUNKS);
    }
    for (var k = 0u; k < K; k += DEPTH) {
        put_x(x_line, x_d, vec4<f16>(x0));
        put_x(x_line + 8u, x_d, vec4<f16>(x1));
        put_x(x_line + 16u, x_d, vec4<f16>(x2));
        put_x(x_line + 24u, x_d, vec4<f16>(x3));
        put_x(x_line + 32u, x_d, vec4<f16>(x4));
        put_x(x_line + 40u, x_d, vec4<f16>(x5));
        put_x(x_line + 48u, x_d, vec4<f16>(x6));
        put_x(x_line + 56u, x_d, vec4<f16>(x7));
        put_w(w_line, w_d, vec4<f16>(low_weight(word0, scale0)));
        put_w(w_line + 8u, w_d, vec4<f16>(low_weight(word1, scale1)));
        put_w(w_line + 16u, w_d, vec4<f16>(low_weight(word2, scale2)));
        put_w(w_line + 24u, w_d, vec4<f16>(low_weight(word3, scale3)));
        put_w(w_line + 32u, w_d, vec4<f16>(low_weight(word4, scale4)));
        put_w(w_line + 40u, w_d, vec4<f16>(low_weight(word5, scale5)));
        put_w(w_line + 48u, w_d, vec4<f16>(low_weight(word6, scale6)));
        put_w(w_line + 56u, w_d, vec4<f16>(low_weight(word7, scale7)));

        workgroupBarrier();
        {
            let from_k = min(k + DEPTH, K - DEPTH);
            let c = (from_k + w_d) / CHUNK;
            x0 = load_x(x_row0, from_k + x_d);
            x1 = load_x(x_row1, from_k + x_d);
            x2 = load_x(x_row2, from_k + x_d);
            x3 = load_x(x_row3, from_k + x_d);
            x4 = load_x(x_row4, from_k + x_d);
            x5 = load_x(x_row5, from_k + x_d);
            x6 = load_x(x_row6, from_k + x_d);
            x7 = load_x(x_row7, from_k + x_d);
            word0 = fetch(w_row0 * ROW, c);
            scale0 = scale_at(w_row0 * SCALE_ROW, c / GROUP_CHUNKS);
            word1 = fetch(w_row1 * ROW, c);
            scale1 = scale_at(w_row1 * SCALE_ROW, c / GROUP_CHUNKS);
            word2 = fetch(w_row2 * ROW, c);
            scale2 = scale_at(w_row2 * SCALE_ROW, c / GROUP_CHUNKS);
            word3 = fetch(w_row3 * ROW, c);
            scale3 = scale_at(w_row3 * SCALE_ROW, c / GROUP_CHUNKS);
            word4 = fetch(w_row4 * ROW, c);
            scale4 = scale_at(w_row4 * SCALE_ROW, c / GROUP_CHUNKS);
            word5 = fetch(w_row5 * ROW, c);
            scale5 = scale_at(w_row5 * SCALE_ROW, c / GROUP_CHUNKS);
            word6 = fetch(w_row6 * ROW, c);
            scale6 = scale_at(w_row6 * SCALE_ROW, c / GROUP_CHUNKS);
            word7 = fetch(w_row7 * ROW, c);
            scale7 = scale_at(w_row7 * SCALE_ROW, c / GROUP_CHUNKS);
        }
        let x_at = own_row * LINE;
        let w_at = own_col * LINE;
        {
            let a0 = subgroupMatrixLoad<Left, row_major>(&x_tile, x_at + 0u * LINE + 0u, LINE);
            let a1 = subgroupMatrixLoad<Left, row_major>(&x_tile, x_at + 16u * LINE + 0u, LINE);
            let b0 = subgroupMatrixLoad<Right, col_major>(&w_tile, w_at + 0u * LINE + 0u, LINE);
            let b1 = subgroupMatrixLoad<Right, col_major>(&w_tile, w_at + 32u * LINE + 0u, LINE);
            sums00 = subgroupMatrixMultiplyAccumulate(a0, b0, sums00);
            sums01 = subgroupMatrixMultiplyAccumulate(a0, b1, sums01);
            sums10 = subgroupMatrixMultiplyAccumulate(a1, b0, sums10);
            sums11 = subgroupMatrixMultiplyAccumulate(a1, b1, sums11);
        }
        {
            let a0 = subgroupMatrixLoad<Left, row_major>(&x_tile, x_at + 0u * LINE + 16u, LINE);
            let a1 = subgroupMatrixLoad<Left, row_major>(&x_tile, x_at + 16u * LINE + 16u, LINE);
            let b0 = subgroupMatrixLoad<Right, col_major>(&w_tile, w_at + 0u * LINE + 16u, LINE);
            let b1 = subgroupMatrixLoad<Right, col_major>(&w_tile, w_at + 32u * LINE + 16u, LINE);
            sums00 = subgroupMatrixMultiplyAccumulate(a0, b0, sums00);
            sums01 = subgroupMatrixMultiplyAccumulate(a0, b1, sums01);
            sums10 = subgroupMatrixMultiplyAccumulate(a1, b0, sums10);
            sums11 = subgroupMatrixMultiplyAccumulate(a1, b1, sums11);
        }
        {
            let a0 = subgroupMatrixLoad<Left, row_major>(&x_tile, x_at + 0u * LINE + 32u, LINE);
            let a1 = subgroupMatrixLoad<Left, row_major>(&x_tile, x_at + 16u * LINE + 32u, LINE);
            let b0 = subgroupMatrixLoad<Right, col_major>(&w_tile, w_at + 0u * LINE + 32u, LINE);
            let b1 = subgroupMatrixLoad<Right, col_major>(&w_tile, w_at + 32u * LINE + 32u, LINE);
            sums00 = subgroupMatrixMultiplyAccumulate(a0, b0, sums00);
            sums01 = subgroupMatrixMultiplyAccumulate(a0, b1, sums01);
            sums10 = subgroupMatrixMultiplyAccumulate(a1, b0, sums10);
            sums11 = subgroupMatrixMultiplyAccumulate(a1, b1, sums11);
        }
        {
            let a0 = subgroupMatrixLoad<Left, row_major>(&x_tile, x_at + 0u * LINE + 48u, LINE);
            let a1 = subgroupMatrixLoad<Left, row_major>(&x_tile, x_at + 16u * LINE + 48u, LINE);
            let b0 = subgroupMatrixLoad<Right, col_major>(&w_tile, w_at + 0u * LINE + 48u, LINE);
            let b1 = subgroupMatrixLoad<Right, col_major>(&w_tile, w_at + 32u * LINE + 48u, LINE);
            sums00 = subgroupMatrixMultiplyAccumulate(a0, b0, sums00);
            sums01 = subgroupMatrixMultiplyAccumulate(a0, b1, sums01);
            sums10 = subgroupMatrixMultiplyAccumulate(a1, b0, sums10);
            sums11 = subgroupMatrixMultiplyAccumulate(a1, b1, sums11);
        }
        workgroupBarrier();
    }
    var gate: array<f32, 8>;
    subgroupMatrixStore<row_major>(&piece, 256u * team, sums00, 16u);
    workgroupBarrier();
    for (var e = 0u; e < 8u; e++) {
        let at = lane + 32u * e;
        let sum = piece[256u * team + at];
        gate[e] = sum;
    }
    workgroupBarrier();
    subgroupMatrixStore<row_major>(&piece, 256u * team, sums01, 16u);
    workgroupBarrier();
    for (var e = 0u; e < 8u; e++) {
        let at = lane + 32u * e;
        let sum = piece[256u * team + at];
        store(row + own_row + 0u + at / 16u, col + own_col + 0u + at % 16u, gate[e], sum);
    }
    workgroupBarrier();
    subgroupMatrixStore<row_major>(&piece, 256u * team, sums10, 16u);
    workgroupBarrier();
    for (var e = 0u; e < 8u; e++) {
        let at = lane + 32u * e;
        let sum = piece[256u * team + at];
        gate[e] = sum;
    }
    workgroupBarrier();
    subgroupMatrixStore<row_major>(&piece, 256u * team, sums11, 16u);
    workgroupBarrier();
    for (var e = 0u; e < 8u; e++) {
        let at = lane + 32u * e;
        let sum = piece[256u * team + at];
        store(row + own_row + 16u + at / 16u, col + own_col + 0u + at % 16u, gate[e], sum);
    }
    workgroupBarrier();
}
