@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read> residual: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
struct Params {
    rows: i32,    // rows of x from the first one bound, may be <= 0 in a late window
    cols: u32,    // outputs of this window of the weight
    first: u32,   // the window's first output
    stride: u32,  // outputs of a whole row of y
}
@group(0) @binding(5) var<uniform> params: Params;

const K = 63u;
const CHUNKS = 16u;
const ROW = 63u;  // from a row of the weight to the next

const TILE = 32u;
const DEPTH = 32u;
const THREADS = 64u;
const CHUNK = 4u;
// Tiles lie k-major: element (k, i) is component i % 4 of vector k * TILE / 4 + i / 4.
var<workgroup> x_tile: array<vec4<f32>, 256>;
var<workgroup> w_tile: array<vec4<f32>, 256>;

fn low(chunk: vec4<f32>) -> vec4<f32> {
    return chunk;
}

fn fetch(start: u32, c: u32) -> vec4<f32> {
    let i = start + 4u * c;
    let last = start + K - 1u;
    return vec4<f32>(weight[i], weight[min(i + 1u, last)], weight[min(i + 2u, last)],
                   weight[min(i + 3u, last)]);
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
    y[i] = value + bias[params.first + n] + residual[i];
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
                let low_value = low(word);
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
