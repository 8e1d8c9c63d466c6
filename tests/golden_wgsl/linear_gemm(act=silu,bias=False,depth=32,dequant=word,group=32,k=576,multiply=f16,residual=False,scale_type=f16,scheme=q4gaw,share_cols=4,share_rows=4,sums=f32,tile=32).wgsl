enable f16;

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
const CHUNKS = 72u;
const ROW = 72u;  // from a row of the weight to the next
const SCALE_ROW = 18u;
const GROUP_CHUNKS = 4u;
const GROUPS = 18u;
// What a masked code has to be multiplied by: 16^-position.
const LOW_UNIT = vec4<f32>(0x1p0f, 0x1p-8f, 0x1p-16f, 0x1p-24f);
const HIGH_UNIT = vec4<f32>(0x1p-4f, 0x1p-12f, 0x1p-20f, 0x1p-28f);

const CHUNK = 8u;
alias Chunk = vec4<u32>;  // 8 values of a row
alias Sum = f32;
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
    let s = unpack2x16float(scales[start + g]);
    return s;
}

fn low_weight(word: u32, scale: vec2<f32>) -> vec4<f32> {
    return fma(low(word) * LOW_UNIT, vec4<f32>(scale.x), vec4<f32>(scale.y));
}

fn high_weight(word: u32, scale: vec2<f32>) -> vec4<f32> {
    return fma(high(word) * HIGH_UNIT, vec4<f32>(scale.x), vec4<f32>(scale.y));
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
                let word0 = fetch(w_row * ROW, c);
                let word1 = fetch(w_row * ROW, c + 1u);
                let scale = scale_at(w_row * SCALE_ROW, c / GROUP_CHUNKS);
                gate_tile[at(n, own)] = chunk(low_weight(word0, scale), high_weight(word0, scale));
                gate_tile[at(n, own + 1u)] = chunk(low_weight(word1, scale), high_weight(word1, scale));
            }
            {
                let w_row = min(col + n, params.cols - 1u) + params.cols;
                let word0 = fetch(w_row * ROW, c);
                let word1 = fetch(w_row * ROW, c + 1u);
                let scale = scale_at(w_row * SCALE_ROW, c / GROUP_CHUNKS);
                up_tile[at(n, own)] = chunk(low_weight(word0, scale), high_weight(word0, scale));
                up_tile[at(n, own + 1u)] = chunk(low_weight(word1, scale), high_weight(word1, scale));
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
            let x0_xy = four(x0.xy);
            let x1_xy = four(x1.xy);
            let x2_xy = four(x2.xy);
            let x3_xy = four(x3.xy);
            let gate0_xy = four(gate0.xy);
            gate[0] = madd(gate[0], x0_xy, gate0_xy);
            gate[4] = madd(gate[4], x1_xy, gate0_xy);
            gate[8] = madd(gate[8], x2_xy, gate0_xy);
            gate[12] = madd(gate[12], x3_xy, gate0_xy);
            let gate1_xy = four(gate1.xy);
            gate[1] = madd(gate[1], x0_xy, gate1_xy);
            gate[5] = madd(gate[5], x1_xy, gate1_xy);
            gate[9] = madd(gate[9], x2_xy, gate1_xy);
            gate[13] = madd(gate[13], x3_xy, gate1_xy);
            let gate2_xy = four(gate2.xy);
            gate[2] = madd(gate[2], x0_xy, gate2_xy);
            gate[6] = madd(gate[6], x1_xy, gate2_xy);
            gate[10] = madd(gate[10], x2_xy, gate2_xy);
            gate[14] = madd(gate[14], x3_xy, gate2_xy);
            let gate3_xy = four(gate3.xy);
            gate[3] = madd(gate[3], x0_xy, gate3_xy);
            gate[7] = madd(gate[7], x1_xy, gate3_xy);
            gate[11] = madd(gate[11], x2_xy, gate3_xy);
            gate[15] = madd(gate[15], x3_xy, gate3_xy);
            let up0_xy = four(up0.xy);
            up[0] = madd(up[0], x0_xy, up0_xy);
            up[4] = madd(up[4], x1_xy, up0_xy);
            up[8] = madd(up[8], x2_xy, up0_xy);
            up[12] = madd(up[12], x3_xy, up0_xy);
            let up1_xy = four(up1.xy);
            up[1] = madd(up[1], x0_xy, up1_xy);
            up[5] = madd(up[5], x1_xy, up1_xy);
            up[9] = madd(up[9], x2_xy, up1_xy);
            up[13] = madd(up[13], x3_xy, up1_xy);
            let up2_xy = four(up2.xy);
            up[2] = madd(up[2], x0_xy, up2_xy);
            up[6] = madd(up[6], x1_xy, up2_xy);
            up[10] = madd(up[10], x2_xy, up2_xy);
            up[14] = madd(up[14], x3_xy, up2_xy);
            let up3_xy = four(up3.xy);
            up[3] = madd(up[3], x0_xy, up3_xy);
            up[7] = madd(up[7], x1_xy, up3_xy);
            up[11] = madd(up[11], x2_xy, up3_xy);
            up[15] = madd(up[15], x3_xy, up3_xy);
            let x0_zw = four(x0.zw);
            let x1_zw = four(x1.zw);
            let x2_zw = four(x2.zw);
            let x3_zw = four(x3.zw);
            let gate0_zw = four(gate0.zw);
            gate[0] = madd(gate[0], x0_zw, gate0_zw);
            gate[4] = madd(gate[4], x1_zw, gate0_zw);
            gate[8] = madd(gate[8], x2_zw, gate0_zw);
            gate[12] = madd(gate[12], x3_zw, gate0_zw);
            let gate1_zw = four(gate1.zw);
            gate[1] = madd(gate[1], x0_zw, gate1_zw);
            gate[5] = madd(gate[5], x1_zw, gate1_zw);
            gate[9] = madd(gate[9], x2_zw, gate1_zw);
            gate[13] = madd(gate[13], x3_zw, gate1_zw);
            let gate2_zw = four(gate2.zw);
            gate[2] = madd(gate[2], x0_zw, gate2_zw);
            gate[6] = madd(gate[6], x1_zw, gate2_zw);
            gate[10] = madd(gate[10], x2_zw, gate2_zw);
            gate[14] = madd(gate[14], x3_zw, gate2_zw);
            let gate3_zw = four(gate3.zw);
            gate[3] = madd(gate[3], x0_zw, gate3_zw);
            gate[7] = madd(gate[7], x1_zw, gate3_zw);
            gate[11] = madd(gate[11], x2_zw, gate3_zw);
            gate[15] = madd(gate[15], x3_zw, gate3_zw);
            let up0_zw = four(up0.zw);
            up[0] = madd(up[0], x0_zw, up0_zw);
            up[4] = madd(up[4], x1_zw, up0_zw);
            up[8] = madd(up[8], x2_zw, up0_zw);
            up[12] = madd(up[12], x3_zw, up0_zw);
            let up1_zw = four(up1.zw);
            up[1] = madd(up[1], x0_zw, up1_zw);
            up[5] = madd(up[5], x1_zw, up1_zw);
            up[9] = madd(up[9], x2_zw, up1_zw);
            up[13] = madd(up[13], x3_zw, up1_zw);
            let up2_zw = four(up2.zw);
            up[2] = madd(up[2], x0_zw, up2_zw);
            up[6] = madd(up[6], x1_zw, up2_zw);
            up[10] = madd(up[10], x2_zw, up2_zw);
            up[14] = madd(up[14], x3_zw, up2_zw);
            let up3_zw = four(up3.zw);
            up[3] = madd(up[3], x0_zw, up3_zw);
            up[7] = madd(up[7], x1_zw, up3_zw);
            up[11] = madd(up[11], x2_zw, up3_zw);
            up[15] = madd(up[15], x3_zw, up3_zw);
        }
        workgroupBarrier();
    }
    store(row + own_row, col + own_col, gate[0], up[0]);
    store(row + own_row, col + own_col + 8u, gate[1], up[1]);
    store(row + own_row, col + own_col + 16u, gate[2], up[2]);
    store(row + own_row, col + own_col + 24u, gate[3], up[3]);
    store(row + own_row + 8u, col + own_col, gate[4], up[4]);
    store(row + own_row + 8u, col + own_col + 8u, gate[5], up[5]);
    store(row + own_row + 8u, col + own_col + 16u, gate[6], up[6]);
    store(row + own_row + 8u, col + own_col + 24u, gate[7], up[7]);
    store(row + own_row + 16u, col + own_col, gate[8], up[8]);
    store(row + own_row + 16u, col + own_col + 8u, gate[9], up[9]);
    store(row + own_row + 16u, col + own_col + 16u, gate[10], up[10]);
    store(row + own_row + 16u, col + own_col + 24u, gate[11], up[11]);
    store(row + own_row + 24u, col + own_col, gate[12], up[12]);
    store(row + own_row + 24u, col + own_col + 8u, gate[13], up[13]);
    store(row + own_row + 24u, col + own_col + 16u, gate[14], up[14]);
    store(row + own_row + 24u, col + own_col + 24u, gate[15], up[15]);
}
