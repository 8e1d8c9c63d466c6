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
const SCALE_ROW = 18u;
const GROUP_CHUNKS = 4u;
const GROUPS = 18u;
// What a masked code has to be multiplied by: 16^-position.
const LOW_UNIT = vec4<f32>(0x1p0f, 0x1p-8f, 0x1p-16f, 0x1p-24f);
const HIGH_UNIT = vec4<f32>(0x1p-4f, 0x1p-12f, 0x1p-20f, 0x1p-28f);

const TILE = 64u;
const DEPTH = 32u;
const THREADS = 256u;
const CHUNK = 8u;
// Tiles lie k-major: element (k, i) is component i % 4 of vector k * TILE / 4 + i / 4.
var<workgroup> x_tile: array<vec4<f32>, 512>;
var<workgroup> w_tile: array<vec4<f32>, 512>;

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

fn at(depth: u32, i: u32) -> u32 {
    return depth * (TILE / 4u) + i / 4u;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let row = group.z * TILE;
    let col = (group.x + group.y * groups.x) * TILE;
    let last_row = u32(max(params.rows, 1) - 1);
    let own_row = 4u * (thread / (TILE / 4u));
    let own_col = 4u * (thread % (TILE / 4u));
    var w: array<vec4<f32>, 4>;
    for (var k = 0u; k < K; k += DEPTH) {
        for (var i = thread; i < TILE * DEPTH / 4u; i += THREADS) {
            let m = i % TILE;
            let d = 4u * (i / TILE);
            let value = load_x(min(row + m, last_row), k + d);
            x_tile[at(d, m)][m % 4u] = value[0];
            x_tile[at(d + 1u, m)][m % 4u] = value[1];
            x_tile[at(d + 2u, m)][m % 4u] = value[2];
            x_tile[at(d + 3u, m)][m % 4u] = value[3];
        }
        for (var i = thread; i < TILE * DEPTH / CHUNK; i += THREADS) {
            let n = i % TILE;
            let d = CHUNK * (i / TILE);
            let c = min((k + d) / CHUNK, CHUNKS - 1u);
            {
                let w_row = min(col + n, params.cols - 1u);
                let word = fetch(w_row * ROW, c);
                let scale = scale_at(w_row * SCALE_ROW, c / GROUP_CHUNKS);
                let low_value = low(word) * LOW_UNIT * scale.x + scale.y;
                w_tile[at(d, n)][n % 4u] = low_value[0];
                w_tile[at(d + 1u, n)][n % 4u] = low_value[1];
                w_tile[at(d + 2u, n)][n % 4u] = low_value[2];
                w_tile[at(d + 3u, n)][n % 4u] = low_value[3];
                let high_value = high(word) * HIGH_UNIT * scale.x + scale.y;
                w_tile[at(d + 4u, n)][n % 4u] = high_value[0];
                w_tile[at(d + 5u, n)][n % 4u] = high_value[1];
                w_tile[at(d + 6u, n)][n % 4u] = high_value[2];
                w_tile[at(d + 7u, n)][n % 4u] = high_value[3];
            }
        }
        workgroupBarrier();
        for (var d = 0u; d < DEPTH; d++) {
            let a = x_tile[at(d, own_row)];
            let w_b = w_tile[at(d, own_col)];
            w[0] += a[0] * w_b;
            w[1] += a[1] * w_b;
            w[2] += a[2] * w_b;
            w[3] += a[3] * w_b;
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < 4u; r++) {
        for (var c = 0u; c < 4u; c++) {
            store(row + own_row + r, col + own_col + c, w[r][c]);
        }
    }
}
