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
const CHUNKS = 144u;
const ROW = 144u;  // from a row of the weight to the next
const SCALE_ROW = 9u;
const GROUP_CHUNKS = 8u;
const GROUPS = 18u;

const CHUNK = 4u;
alias Chunk = vec4<u32>;  // 8 values of a row
alias Sum = vec2<f16>;  // of even and of odd k
const TILE = 32u;
const DEPTH = 32u;
const THREADS = 64u;
const ROW_CHUNKS = 4u;
var<workgroup> x_tile: array<Chunk, 128>;
var<workgroup> gate_tile: array<Chunk, 128>;
var<workgroup> up_tile: array<Chunk, 128>;

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

fn activate(gate: f32) -> f32 {
    return gate / (1.0 + exp(min(-gate, 88.0)));  // e^88 is the last that f32 holds
}

fn store(m: u32, n: u32, value: f32, up: f32) {
    if (i32(m) >= params.rows || n >= params.cols) {
        return;
    }
    let i = m * params.stride + params.first + n;
    y[i] = activate(value) * up;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let row = group.z * TILE;
    let col = (group.x + group.y * groups.x) * TILE;
    let last_row = u32(max(params.rows, 1) - 1);
    let own_row = thread / 8u;  // and every 8th after it
    let own_col = thread % 8u;  // and every 8th after it
    var gate: array<Sum, 16>;
    var up: array<Sum, 16>;
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
                let block0 = fetch_block(w_row, c / 4u);
                let scale = scale_at(w_row * SCALE_ROW, c / GROUP_CHUNKS);
                gate_tile[at(n, own)] = chunk(low_weight(block0[0], scale), low_weight(block0[1], scale));
                gate_tile[at(n, own + 1u)] = chunk(low_weight(block0[2], scale), low_weight(block0[3], scale));
            }
            {
                let w_row = min(col + n, params.cols - 1u) + params.cols;
                let block0 = fetch_block(w_row, c / 4u);
                let scale = scale_at(w_row * SCALE_ROW, c / GROUP_CHUNKS);
                up_tile[at(n, own)] = chunk(low_weight(block0[0], scale), low_weight(block0[1], scale));
                up_tile[at(n, own + 1u)] = chunk(low_weight(block0[2], scale), low_weight(block0[3], scale));
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
            let gate0 = gate_tile[w_at];
            let gate1 = gate_tile[w_at + 32u];
            let gate2 = gate_tile[w_at + 64u];
            let gate3 = gate_tile[w_at + 96u];
            let up0 = up_tile[w_at];
            let up1 = up_tile[w_at + 32u];
            let up2 = up_tile[w_at + 64u];
            let up3 = up_tile[w_at + 96u];
            gate[0] = madd(gate[0], x0, gate0);
            gate[4] = madd(gate[4], x1, gate0);
            gate[8] = madd(gate[8], x2, gate0);
            gate[12] = madd(gate[12], x3, gate0);
            gate[1] = madd(gate[1], x0, gate1);
            gate[5] = madd(gate[5], x1, gate1);
            gate[9] = madd(gate[9], x2, gate1);
            gate[13] = madd(gate[13], x3, gate1);
            gate[2] = madd(gate[2], x0, gate2);
            gate[6] = madd(gate[6], x1, gate2);
            gate[10] = madd(gate[10], x2, gate2);
            gate[14] = madd(gate[14], x3, gate2);
            gate[3] = madd(gate[3], x0, gate3);
            gate[7] = madd(gate[7], x1, gate3);
            gate[11] = madd(gate[11], x2, gate3);
            gate[15] = madd(gate[15], x3, gate3);
            up[0] = madd(up[0], x0, up0);
            up[4] = madd(up[4], x1, up0);
            up[8] = madd(up[8], x2, up0);
            up[12] = madd(up[12], x3, up0);
            up[1] = madd(up[1], x0, up1);
            up[5] = madd(up[5], x1, up1);
            up[9] = madd(up[9], x2, up1);
            up[13] = madd(up[13], x3, up1);
            up[2] = madd(up[2], x0, up2);
            up[6] = madd(up[6], x1, up2);
            up[10] = madd(up[10], x2, up2);
            up[14] = madd(up[14], x3, up2);
            up[3] = madd(up[3], x0, up3);
            up[7] = madd(up[7], x1, up3);
            up[11] = madd(up[11], x2, up3);
            up[15] = madd(up[15], x3, up3);
        }
        workgroupBarrier();
    }
    store(row + own_row, col + own_col, total(gate[0]), total(up[0]));
    store(row + own_row, col + own_col + 8u, total(gate[1]), total(up[1]));
    store(row + own_row, col + own_col + 16u, total(gate[2]), total(up[2]));
    store(row + own_row, col + own_col + 24u, total(gate[3]), total(up[3]));
    store(row + own_row + 8u, col + own_col, total(gate[4]), total(up[4]));
    store(row + own_row + 8u, col + own_col + 8u, total(gate[5]), total(up[5]));
    store(row + own_row + 8u, col + own_col + 16u, total(gate[6]), total(up[6]));
    store(row + own_row + 8u, col + own_col + 24u, total(gate[7]), total(up[7]));
    store(row + own_row + 16u, col + own_col, total(gate[8]), total(up[8]));
    store(row + own_row + 16u, col + own_col + 8u, total(gate[9]), total(up[9]));
    store(row + own_row + 16u, col + own_col + 16u, total(gate[10]), total(up[10]));
    store(row + own_row + 16u, col + own_col + 24u, total(gate[11]), total(up[11]));
    store(row + own_row + 24u, col + own_col, total(gate[12]), total(up[12]));
    store(row + own_row + 24u, col + own_col + 8u, total(gate[13]), total(up[13]));
    store(row + own_row + 24u, col + own_col + 16u, total(gate[14]), total(up[14]));
    store(row + own_row + 24u, col + own_col + 24u, total(gate[15]), total(up[15]));
}
