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

const CHUNK = 4u;
alias Chunk = vec4<f32>;  // 4 values of a row
alias Sum = f32;
const TILE = 32u;
const DEPTH = 16u;
const THREADS = 64u;
const ROW_CHUNKS = 4u;
var<workgroup> x_tile: array<Chunk, 128>;
var<workgroup> gate_tile: array<Chunk, 128>;
var<workgroup> up_tile: array<Chunk, 128>;

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

fn fetch(start: u32, c: u32) -> u32 {
    return codes[start + c];
}

fn scale_at(start: u32, g: u32) -> vec2<f32> {
    let i = start + 2u * g;
    let s = vec2<f32>(scales[i], scales[i + 1u]);
    return s * vec2<f32>(0x1p-24f, 1.0);
}

fn low_weight(word: u32, scale: vec2<f32>) -> vec4<f32> {
    return fma(low(word), vec4<f32>(scale.x), vec4<f32>(scale.y));
}

fn load_x(m: u32, i: u32) -> vec4<f32> {
    let e = vec4<u32>(i) + vec4<u32>(0u, 1u, 2u, 3u);
    let at = vec4<u32>(m * K) + min(e, vec4<u32>(K - 1u));
    let value = vec4<f32>(x[at.x], x[at.y], x[at.z], x[at.w]);
    return select(vec4<f32>(), value, e < vec4<u32>(K));
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
            let first = k + 4u * (i % ROW_CHUNKS);
            x_tile[at(i / ROW_CHUNKS, i % ROW_CHUNKS)] = load_x(m, first);
        }
        {
            let n = thread / 2u;
            let first = 8u * (thread % 2u);
            let own = first / 4u;
            let c = (k + first) / CHUNK;
            {
                let w_row = min(col + n, params.cols - 1u);
                let word0 = fetch(w_row * ROW, min(c, CHUNKS - 1u));
                let word1 = fetch(w_row * ROW, min(c + 1u, CHUNKS - 1u));
                let scale0 = scale_at(w_row * SCALE_ROW, (min(c, CHUNKS - 1u)) / GROUP_CHUNKS);
                let scale1 = scale_at(w_row * SCALE_ROW, (min(c + 1u, CHUNKS - 1u)) / GROUP_CHUNKS);
                gate_tile[at(n, own)] = low_weight(word0, scale0);
                gate_tile[at(n, own + 1u)] = low_weight(word1, scale1);
            }
            {
                let w_row = min(col + n, params.cols - 1u) + params.cols;
                let word0 = fetch(w_row * ROW, min(c, CHUNKS - 1u));
                let word1 = fetch(w_row * ROW, min(c + 1u, CHUNKS - 1u));
                let scale0 = scale_at(w_row * SCALE_ROW, (min(c, CHUNKS - 1u)) / GROUP_CHUNKS);
                let scale1 = scale_at(w_row * SCALE_ROW, (min(c + 1u, CHUNKS - 1u)) / GROUP_CHUNKS);
                up_tile[at(n, own)] = low_weight(word0, scale0);
                up_tile[at(n, own + 1u)] = low_weight(word1, scale1);
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
