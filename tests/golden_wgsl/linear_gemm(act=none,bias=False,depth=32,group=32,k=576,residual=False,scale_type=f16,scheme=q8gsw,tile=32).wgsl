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

const TILE = 32u;
const DEPTH = 32u;
const THREADS = 64u;
const CHUNK = 4u;
// Tiles lie k-major: element (k, i) is component i % 4 of vector k * TILE / 4 + i / 4.
var<workgroup> x_tile: array<vec4<f32>, 256>;
var<workgroup> w_tile: array<vec4<f32>, 256>;

// Each signed byte moved to the top of its own word: 2^24 times the code.
fn low(word: u32) -> vec4<f32> {
    let bytes = vec4<u32>(word) * vec4<u32>(0x1000000u, 0x10000u, 0x100u, 1u);
    return vec4<f32>(bitcast<vec4<i32>>(bytes & vec4<u32>(0xFF000000u)));
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
    return select(vec4<f32>(), x[(m * K + min(i, K - 4u)) / 4u], i < K);
}

fn store(m: u32, n: u32, value: f32) {
    if (i32(m) >= params.rows || n >= params.cols) {
        return;
    }
    let i = m * params.stride + params.first + n;
    y[i] = value;
}

fn at(depth: u32, i: u32) -> u32 {
    return depth * (TILE / 4u) + i / 4u;
}

@compute @workgroup_size(64)
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
                let low_value = low(word) * scale.x;
                w_tile[at(d, n)][n % 4u] = low_value[0];
                w_tile[at(d + 1u, n)][n % 4u] = low_value[1];
                w_tile[at(d + 2u, n)][n % 4u] = low_value[2];
                w_tile[at(d + 3u, n)][n % 4u] = low_value[3];
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
