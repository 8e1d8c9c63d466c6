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

const TILE = 32u;
const DEPTH = 16u;
const THREADS = 64u;
const CHUNK = 4u;
// Tiles lie k-major: element (k, i) is component i % 4 of vector k * TILE / 4 + i / 4.
var<workgroup> x_tile: array<vec4<f32>, 128>;
var<workgroup> gate_tile: array<vec4<f32>, 128>;
var<workgroup> up_tile: array<vec4<f32>, 128>;

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
    var gate: array<vec4<f32>, 4>;
    var up: array<vec4<f32>, 4>;
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
                let low_value = low(word) * scale.x + scale.y;
                gate_tile[at(d, n)][n % 4u] = low_value[0];
                gate_tile[at(d + 1u, n)][n % 4u] = low_value[1];
                gate_tile[at(d + 2u, n)][n % 4u] = low_value[2];
                gate_tile[at(d + 3u, n)][n % 4u] = low_value[3];
            }
            {
                let w_row = min(col + n, params.cols - 1u) + params.cols;
                let word = fetch(w_row * ROW, c);
                let scale = scale_at(w_row * SCALE_ROW, c / GROUP_CHUNKS);
                let low_value = low(word) * scale.x + scale.y;
                up_tile[at(d, n)][n % 4u] = low_value[0];
                up_tile[at(d + 1u, n)][n % 4u] = low_value[1];
                up_tile[at(d + 2u, n)][n % 4u] = low_value[2];
                up_tile[at(d + 3u, n)][n % 4u] = low_value[3];
            }
        }
        workgroupBarrier();
        for (var d = 0u; d < DEPTH; d++) {
            let a = x_tile[at(d, own_row)];
            let gate_b = gate_tile[at(d, own_col)];
            gate[0] += a[0] * gate_b;
            gate[1] += a[1] * gate_b;
            gate[2] += a[2] * gate_b;
            gate[3] += a[3] * gate_b;
            let up_b = up_tile[at(d, own_col)];
            up[0] += a[0] * up_b;
            up[1] += a[1] * up_b;
            up[2] += a[2] * up_b;
            up[3] += a[3] * up_b;
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < 4u; r++) {
        for (var c = 0u; c < 4u; c++) {
            store(row + own_row + r, col + own_col + c, gate[r][c], up[r][c]);
        }
    }
}
