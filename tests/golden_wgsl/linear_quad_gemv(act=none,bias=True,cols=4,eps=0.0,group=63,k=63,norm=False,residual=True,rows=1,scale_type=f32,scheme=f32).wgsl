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

fn quad_values(value: f32) -> vec4<f32> {
    return vec4<f32>(quadBroadcast(value, 0u), quadBroadcast(value, 1u),
                     quadBroadcast(value, 2u), quadBroadcast(value, 3u));
}

fn load_x(start: u32, i: u32) -> f32 {
    return select(0.0, x[start + min(i, K - 1u)], i < K);
}

@compute @workgroup_size(4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(subgroup_invocation_id) id: u32) {
    let lane = id & 3u;
    let col = (group.x + group.y * groups.x) * 16u + lane;
    let last = params.cols - 1u;
    let n0 = min(col, last);
    let n1 = min(col + 4u, last);
    let n2 = min(col + 8u, last);
    let n3 = min(col + 12u, last);
    let w_row0 = n0 * ROW;
    let w_row1 = n1 * ROW;
    let w_row2 = n2 * ROW;
    let w_row3 = n3 * ROW;

    var acc0_0 = 0.0;
    var acc0_1 = 0.0;
    var acc0_2 = 0.0;
    var acc0_3 = 0.0;
    {
        var part0_0 = 0.0;
        var part0_1 = 0.0;
        var part0_2 = 0.0;
        var part0_3 = 0.0;
        for (var c = 0u; c < CHUNKS; c++) {
            let i = 4u * c + lane;
            var own0_low = load_x(0u, i);
            let x0_low = quad_values(own0_low);
            let w0 = fetch(w_row0, c);
            part0_0 += dot(low(w0), x0_low);
            let w1 = fetch(w_row1, c);
            part0_1 += dot(low(w1), x0_low);
            let w2 = fetch(w_row2, c);
            part0_2 += dot(low(w2), x0_low);
            let w3 = fetch(w_row3, c);
            part0_3 += dot(low(w3), x0_low);
        }
        acc0_0 += part0_0;
        acc0_1 += part0_1;
        acc0_2 += part0_2;
        acc0_3 += part0_3;
    }
    store(0u, col, acc0_0);
    store(0u, col + 4u, acc0_1);
    store(0u, col + 8u, acc0_2);
    store(0u, col + 12u, acc0_3);
}
