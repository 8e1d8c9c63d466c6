enable subgroups;

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

fn low(chunk: vec4<f32>) -> vec4<f32> {
    return chunk;
}

fn fetch(start: u32, c: u32) -> vec4<f32> {
    let i = start + 4u * c;
    let last = start + K - 1u;
    return vec4<f32>(weight[i], weight[min(i + 1u, last)], weight[min(i + 2u, last)],
                   weight[min(i + 3u, last)]);
}

fn store(m: u32, n: u32, value: f32) {
    if (i32(m) >= params.rows || n >= params.cols) {
        return;
    }
    let i = m * params.stride + params.first + n;
    y[i] = value + bias[params.first + n] + residual[i];
}

fn load_x(start: u32, i: u32) -> vec4<f32> {
    let at = start + i;
    let end = start + K - 1u;
    let value = vec4<f32>(x[min(at, end)], x[min(at + 1u, end)],
                          x[min(at + 2u, end)], x[min(at + 3u, end)]);
    return select(vec4<f32>(), value, vec4<u32>(i) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(K));
}

@compute @workgroup_size(4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(subgroup_invocation_id) id: u32) {
    let lane = id & 3u;
    let row = group.z * 4u + lane;
    let col = (group.x + group.y * groups.x) * 16u;
    let last_row = u32(max(params.rows, 1) - 1);
    let x_row0 = min(row, last_row) * K;
    let n0 = min(col + lane, params.cols - 1u);
    let n1 = min(col + lane + 4u, params.cols - 1u);
    let n2 = min(col + lane + 8u, params.cols - 1u);
    let n3 = min(col + lane + 12u, params.cols - 1u);
    let w_row0 = n0 * ROW;
    let w_row1 = n1 * ROW;
    let w_row2 = n2 * ROW;
    let w_row3 = n3 * ROW;

    var acc0_0 = vec4<f32>();
    var acc0_1 = vec4<f32>();
    var acc0_2 = vec4<f32>();
    var acc0_3 = vec4<f32>();
        for (var c = 0u; c < CHUNKS; c++) {
            let x0_low = load_x(x_row0, 4u * c);
            let w0 = fetch(w_row0, c);
            let low0_0 = low(w0);
            let low0_1 = low(quadSwapX(w0));
            let low0_2 = low(quadSwapY(w0));
            let low0_3 = low(quadSwapDiagonal(w0));
            acc0_0 += vec4<f32>(
                dot(low0_0, x0_low),
                dot(low0_1, x0_low),
                dot(low0_2, x0_low),
                dot(low0_3, x0_low));
            let w1 = fetch(w_row1, c);
            let low1_0 = low(w1);
            let low1_1 = low(quadSwapX(w1));
            let low1_2 = low(quadSwapY(w1));
            let low1_3 = low(quadSwapDiagonal(w1));
            acc0_1 += vec4<f32>(
                dot(low1_0, x0_low),
                dot(low1_1, x0_low),
                dot(low1_2, x0_low),
                dot(low1_3, x0_low));
            let w2 = fetch(w_row2, c);
            let low2_0 = low(w2);
            let low2_1 = low(quadSwapX(w2));
            let low2_2 = low(quadSwapY(w2));
            let low2_3 = low(quadSwapDiagonal(w2));
            acc0_2 += vec4<f32>(
                dot(low2_0, x0_low),
                dot(low2_1, x0_low),
                dot(low2_2, x0_low),
                dot(low2_3, x0_low));
            let w3 = fetch(w_row3, c);
            let low3_0 = low(w3);
            let low3_1 = low(quadSwapX(w3));
            let low3_2 = low(quadSwapY(w3));
            let low3_3 = low(quadSwapDiagonal(w3));
            acc0_3 += vec4<f32>(
                dot(low3_0, x0_low),
                dot(low3_1, x0_low),
                dot(low3_2, x0_low),
                dot(low3_3, x0_low));
        }
    store(row, col + lane, acc0_0[0]);
    store(row, col + (lane ^ 1u), acc0_0[1]);
    store(row, col + (lane ^ 2u), acc0_0[2]);
    store(row, col + (lane ^ 3u), acc0_0[3]);
    store(row, col + 4u + lane, acc0_1[0]);
    store(row, col + 4u + (lane ^ 1u), acc0_1[1]);
    store(row, col + 4u + (lane ^ 2u), acc0_1[2]);
    store(row, col + 4u + (lane ^ 3u), acc0_1[3]);
    store(row, col + 8u + lane, acc0_2[0]);
    store(row, col + 8u + (lane ^ 1u), acc0_2[1]);
    store(row, col + 8u + (lane ^ 2u), acc0_2[2]);
    store(row, col + 8u + (lane ^ 3u), acc0_2[3]);
    store(row, col + 12u + lane, acc0_3[0]);
    store(row, col + 12u + (lane ^ 1u), acc0_3[1]);
    store(row, col + 12u + (lane ^ 2u), acc0_3[2]);
    store(row, col + 12u + (lane ^ 3u), acc0_3[3]);
}
