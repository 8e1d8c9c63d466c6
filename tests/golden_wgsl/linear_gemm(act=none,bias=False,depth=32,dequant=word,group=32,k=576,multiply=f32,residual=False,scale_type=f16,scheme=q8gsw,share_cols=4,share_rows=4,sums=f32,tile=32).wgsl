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
const CHUNKS = 144u;
const ROW = 144u;  // from a row of the weight to the next
const SCALE_ROW = 9u;
const GROUP_CHUNKS = 8u;
const GROUPS = 18u;

const CHUNK = 4u;
alias Chunk = vec4<f32>;  // 4 values of a row
alias Sum = f32;
const TILE = 32u;
const DEPTH = 32u;
const THREADS = 64u;
const ROW_CHUNKS = 8u;
var<workgroup> x_tile: array<Chunk, 256>;
var<workgroup> w_tile: array<Chunk, 256>;

fn at(row: u32, c: u32) -> u32 {
    return row * ROW_CHUNKS + (c ^ (row % 8u * ROW_CHUNKS / 8u));
}

fn madd(sum: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

// Each signed byte moved to the top of its own word: 2^24 times the code.
fn low(word: u32) -> vec4<f32> {
    let bytes = vec4<u32>(word) * vec4<u32>(0x1000000u, 0x10000u, 0x100u, 1u);
    return vec4<f32>(bitcast<vec4<i32>>(bytes & vec4<u32>(0xFF000000u)));
}

alias Block = vec4<u32>;

fn fetch_block(row: u32, b: u32) -> Block {
    return codes[row * (ROW / 4u) + b];
}

fn scale_at(start: u32, g: u32) -> vec2<f32> {
    let pair = unpack2x16float(scales[start + (g >> 1u)]);
    let s = select(pair.x, pair.y, (g & 1u) == 1u);
    return vec2<f32>(s * 0x1p-24f, 0.0);
}

fn low_weight(word: u32, scale: vec2<f32>) -> vec4<f32> {
    return low(word) * scale.x;
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
    var w: array<Sum, 16>;
    for (var k = 0u; k < K; k += DEPTH) {
        for (var i = thread; i < TILE * ROW_CHUNKS; i += THREADS) {
            let m = min(row + i / ROW_CHUNKS, last_row);
            let first = k + 4u * (i % ROW_CHUNKS);
            x_tile[at(i / ROW_CHUNKS, i % ROW_CHUNKS)] = load_x(m, first);
        }
        {
            let n = thread / 2u;
            let first = 16u * (thread % 2u);
            let own = first / 4u;
            let c = (k + first) / CHUNK;
            {
                let w_row = min(col + n, params.cols - 1u);
                let block0 = fetch_block(w_row, c / 4u);
                let scale = scale_at(w_row * SCALE_ROW, c / GROUP_CHUNKS);
                w_tile[at(n, own)] = low_weight(block0[0], scale);
                w_tile[at(n, own + 1u)] = low_weight(block0[1], scale);
                w_tile[at(n, own + 2u)] = low_weight(block0[2], scale);
                w_tile[at(n, own + 3u)] = low_weight(block0[3], scale);
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
            let w1 = w_tile[w_at + 64u];
            let w2 = w_tile[w_at + 128u];
            let w3 = w_tile[w_at + 192u];
            w[0] = madd(w[0], x0, w0);
            w[4] = madd(w[4], x1, w0);
            w[8] = madd(w[8], x2, w0);
            w[12] = madd(w[12], x3, w0);
            w[1] = madd(w[1], x0, w1);
            w[5] = madd(w[5], x1, w1);
            w[9] = madd(w[9], x2, w1);
            w[13] = madd(w[13], x3, w1);
            w[2] = madd(w[2], x0, w2);
            w[6] = madd(w[6], x1, w2);
            w[10] = madd(w[10], x2, w2);
            w[14] = madd(w[14], x3, w2);
            w[3] = madd(w[3], x0, w3);
            w[7] = madd(w[7], x1, w3);
            w[11] = madd(w[11], x2, w3);
            w[15] = madd(w[15], x3, w3);
        }
        workgroupBarrier();
    }
    store(row + own_row, col + own_col, w[0]);
    store(row + own_row, col + own_col + 8u, w[1]);
    store(row + own_row, col + own_col + 16u, w[2]);
    store(row + own_row, col + own_col + 24u, w[3]);
    store(row + own_row + 8u, col + own_col, w[4]);
    store(row + own_row + 8u, col + own_col + 8u, w[5]);
    store(row + own_row + 8u, col + own_col + 16u, w[6]);
    store(row + own_row + 8u, col + own_col + 24u, w[7]);
    store(row + own_row + 16u, col + own_col, w[8]);
    store(row + own_row + 16u, col + own_col + 8u, w[9]);
    store(row + own_row + 16u, col + own_col + 16u, w[10]);
    store(row + own_row + 16u, col + own_col + 24u, w[11]);
    store(row + own_row + 24u, col + own_col, w[12]);
    store(row + own_row + 24u, col + own_col + 8u, w[13]);
    store(row + own_row + 24u, col + own_col + 16u, w[14]);
    store(row + own_row + 24u, col + own_col + 24u, w[15]);
}
