enable f16;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
struct Params {
    rows: i32,    // rows of x from the first one bound, may be <= 0 in a late window
    cols: u32,    // outputs of this window of the weight
    first: u32,   // the window's first output
    stride: u32,  // outputs of a whole row of y
}
@group(0) @binding(3) var<uniform> params: Params;

const K = 63u;
const CHUNKS = 16u;
const ROW = 63u;  // from a row of the weight to the next

const CHUNK = 4u;
alias Chunk = vec4<u32>;  // 8 values of a row
alias Sum = f32;
const TILE = 32u;
const DEPTH = 32u;
const THREADS = 64u;
const ROW_CHUNKS = 4u;
var<workgroup> x_tile: array<Chunk, 128>;
var<workgroup> w_tile: array<Chunk, 128>;

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

fn low(chunk: vec4<f32>) -> vec4<f32> {
    return chunk;
}

alias Block = array<vec4<f32>, 4>;

fn fetch_chunk(row: u32, c: u32) -> vec4<f32> {
    let first = row * K;
    let i = vec4<u32>(4u * c) + vec4<u32>(0u, 1u, 2u, 3u);
    let at = vec4<u32>(first) + min(i, vec4<u32>(K - 1u));
    return vec4<f32>(weight[at.x], weight[at.y], weight[at.z], weight[at.w]);
}

fn fetch_block(row: u32, b: u32) -> Block {
    return Block(fetch_chunk(row, 4u * b), fetch_chunk(row, 4u * b + 1u),
                 fetch_chunk(row, 4u * b + 2u), fetch_chunk(row, 4u * b + 3u));
}

fn load_x(m: u32, i: u32) -> vec4<f32> {
    let e = vec4<u32>(i) + vec4<u32>(0u, 1u, 2u, 3u);
    let at = vec4<u32>(m * K) + min(e, vec4<u32>(K - 1u));
    let value = vec4<f32>(x[at.x], x[at.y], x[at.z], x[at.w]);
    return select(vec4<f32>(), value, e < vec4<u32>(K));
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
                let block0 = fetch_block(w_row, min(c / 4u, 3u));
                w_tile[at(n, own)] = chunk(block0[0], block0[1]);
                w_tile[at(n, own + 1u)] = chunk(block0[2], block0[3]);
            }
        }
        workgroupBarrier();
        for (var c = 0u; c < ROW_CHUNKS; c++) {
            let x_at = at(own_row, c);
            let w_at = at(own_col, c);
            let x0 = x_tile[x_at];
            let x1 = x_tile[x_at + 32u];
            let x2 = x_tile[x_at + 64u];
            let x3 = x_tile[x_at + 96u];
            let w0 = w_tile[w_at];
            let w1 = w_tile[w_at + 32u];
            let w2 = w_tile[w_at + 64u];
            let w3 = w_tile[w_at + 96u];
            let x0_xy = four(x0.xy);
            let x1_xy = four(x1.xy);
            let x2_xy = four(x2.xy);
            let x3_xy = four(x3.xy);
            let w0_xy = four(w0.xy);
            w[0] = madd(w[0], x0_xy, w0_xy);
            w[4] = madd(w[4], x1_xy, w0_xy);
            w[8] = madd(w[8], x2_xy, w0_xy);
            w[12] = madd(w[12], x3_xy, w0_xy);
            let w1_xy = four(w1.xy);
            w[1] = madd(w[1], x0_xy, w1_xy);
            w[5] = madd(w[5], x1_xy, w1_xy);
            w[9] = madd(w[9], x2_xy, w1_xy);
            w[13] = madd(w[13], x3_xy, w1_xy);
            let w2_xy = four(w2.xy);
            w[2] = madd(w[2], x0_xy, w2_xy);
            w[6] = madd(w[6], x1_xy, w2_xy);
            w[10] = madd(w[10], x2_xy, w2_xy);
            w[14] = madd(w[14], x3_xy, w2_xy);
            let w3_xy = four(w3.xy);
            w[3] = madd(w[3], x0_xy, w3_xy);
            w[7] = madd(w[7], x1_xy, w3_xy);
            w[11] = madd(w[11], x2_xy, w3_xy);
            w[15] = madd(w[15], x3_xy, w3_xy);
            let x0_zw = four(x0.zw);
            let x1_zw = four(x1.zw);
            let x2_zw = four(x2.zw);
            let x3_zw = four(x3.zw);
            let w0_zw = four(w0.zw);
            w[0] = madd(w[0], x0_zw, w0_zw);
            w[4] = madd(w[4], x1_zw, w0_zw);
            w[8] = madd(w[8], x2_zw, w0_zw);
            w[12] = madd(w[12], x3_zw, w0_zw);
            let w1_zw = four(w1.zw);
            w[1] = madd(w[1], x0_zw, w1_zw);
            w[5] = madd(w[5], x1_zw, w1_zw);
            w[9] = madd(w[9], x2_zw, w1_zw);
            w[13] = madd(w[13], x3_zw, w1_zw);
            let w2_zw = four(w2.zw);
            w[2] = madd(w[2], x0_zw, w2_zw);
            w[6] = madd(w[6], x1_zw, w2_zw);
            w[10] = madd(w[10], x2_zw, w2_zw);
            w[14] = madd(w[14], x3_zw, w2_zw);
            let w3_zw = four(w3.zw);
            w[3] = madd(w[3], x0_zw, w3_zw);
            w[7] = madd(w[7], x1_zw, w3_zw);
            w[11] = madd(w[11], x2_zw, w3_zw);
            w[15] = madd(w[15], x3_zw, w3_zw);
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
