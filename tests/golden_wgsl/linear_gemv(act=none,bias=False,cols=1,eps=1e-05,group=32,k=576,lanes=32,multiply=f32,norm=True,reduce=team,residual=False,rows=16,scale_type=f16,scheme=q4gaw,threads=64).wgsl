enable subgroups;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> codes: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
struct Params {
    rows: i32,    // rows of x from the first one bound, may be <= 0 in a late window
    cols: u32,    // outputs of this window of the weight
    first: u32,   // the window's first output
    stride: u32,  // outputs of a whole row of y
}
@group(0) @binding(5) var<uniform> params: Params;

const K = 576u;
const CHUNKS = 72u;
const ROW = 72u;  // from a row of the weight to the next
const SCALE_ROW = 18u;
const GROUP_CHUNKS = 4u;
const GROUPS = 18u;
// What a masked code has to be multiplied by: 16^-position.
const LOW_UNIT = vec4<f32>(0x1p0f, 0x1p-8f, 0x1p-16f, 0x1p-24f);
const HIGH_UNIT = vec4<f32>(0x1p-4f, 0x1p-12f, 0x1p-20f, 0x1p-28f);

const LANES = 32u;
const BLOCKS = 18u;
const ROWS = 16u;
const STEP = 4u;  // rows that a thread has under way at once
const STREAMS = 1u;  // rows of the weight that a workgroup reads
const SUMS = 32u;

// Signed conversions where the sign bit is clear: unsigned ones cost three times as much on a CPU.
fn low(word: u32) -> vec4<f32> {
    return vec4<f32>(vec4<i32>(i32(word)) & vec4<i32>(0xF, 0xF00, 0xF0000, 0xF000000));
}

fn high(word: u32) -> vec4<f32> {
    let first = vec3<f32>(vec3<i32>(i32(word)) & vec3<i32>(0xF0, 0xF000, 0xF00000));
    return vec4<f32>(first, f32(word & 0xF0000000u));
}

alias Block = vec4<u32>;

fn fetch_block(row: u32, b: u32) -> Block {
    return codes[row * (ROW / 4u) + b];
}

fn scale_at(start: u32, g: u32) -> vec2<f32> {
    let s = unpack2x16float(scales[start + g]);
    return s;
}

fn load_x(m: u32, i: u32) -> vec4<f32> {
    return x[(m * K + i) / 4u];
}

fn load_norm(i: u32) -> vec4<f32> {
    return norm_weight[(i) / 4u];
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
    let lane = thread % LANES;
    let col = ((group.x + group.y * groups.x) * 2u + thread / LANES) * 1u;
    let last_row = u32(max(params.rows, 1) - 1);
    var sums: array<f32, SUMS>;
    var n: array<u32, STREAMS>;
    for (var j = 0u; j < STREAMS; j++) {
        n[j] = min(col + j % 1u, params.cols - 1u);
    }
    for (var b = lane; b < BLOCKS; b += LANES) {
        var w: array<Block, STREAMS>;
        for (var j = 0u; j < STREAMS; j++) {
            w[j] = fetch_block(n[j], b);
        }
        {
            let g = (4u * b) / GROUP_CHUNKS;
            var scale: array<vec2<f32>, STREAMS>;
            for (var j = 0u; j < STREAMS; j++) {
                scale[j] = scale_at(n[j] * SCALE_ROW, g);
            }
            {
                // The zeros are said, for Tint (Chrome 156) does not clear a var in later rounds.
                var part = array<f32, STEP * STREAMS>();
                var sum = array<f32, STEP>();
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r, last_row), 8u * (4u * b + 0u));
                    sums[ROWS * STREAMS + r] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 0u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][0]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r, last_row), 8u * (4u * b + 0u) + 4u);
                    sums[ROWS * STREAMS + r] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 0u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][0]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r, last_row), 8u * (4u * b + 1u));
                    sums[ROWS * STREAMS + r] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 1u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][1]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r, last_row), 8u * (4u * b + 1u) + 4u);
                    sums[ROWS * STREAMS + r] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 1u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][1]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r, last_row), 8u * (4u * b + 2u));
                    sums[ROWS * STREAMS + r] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 2u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][2]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r, last_row), 8u * (4u * b + 2u) + 4u);
                    sums[ROWS * STREAMS + r] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 2u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][2]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r, last_row), 8u * (4u * b + 3u));
                    sums[ROWS * STREAMS + r] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 3u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][3]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r, last_row), 8u * (4u * b + 3u) + 4u);
                    sums[ROWS * STREAMS + r] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 3u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][3]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    for (var j = 0u; j < STREAMS; j++) {
                        let value = part[r * STREAMS + j];
                        sums[r * STREAMS + j] += scale[j].x * value + scale[j].y * sum[r];
                    }
                }
            }
            if (params.rows > 4) {
                // The zeros are said, for Tint (Chrome 156) does not clear a var in later rounds.
                var part = array<f32, STEP * STREAMS>();
                var sum = array<f32, STEP>();
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 4u, last_row), 8u * (4u * b + 0u));
                    sums[ROWS * STREAMS + r + 4u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 0u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][0]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 4u, last_row), 8u * (4u * b + 0u) + 4u);
                    sums[ROWS * STREAMS + r + 4u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 0u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][0]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 4u, last_row), 8u * (4u * b + 1u));
                    sums[ROWS * STREAMS + r + 4u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 1u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][1]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 4u, last_row), 8u * (4u * b + 1u) + 4u);
                    sums[ROWS * STREAMS + r + 4u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 1u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][1]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 4u, last_row), 8u * (4u * b + 2u));
                    sums[ROWS * STREAMS + r + 4u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 2u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][2]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 4u, last_row), 8u * (4u * b + 2u) + 4u);
                    sums[ROWS * STREAMS + r + 4u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 2u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][2]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 4u, last_row), 8u * (4u * b + 3u));
                    sums[ROWS * STREAMS + r + 4u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 3u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][3]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 4u, last_row), 8u * (4u * b + 3u) + 4u);
                    sums[ROWS * STREAMS + r + 4u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 3u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][3]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    for (var j = 0u; j < STREAMS; j++) {
                        let value = part[r * STREAMS + j];
                        sums[r * STREAMS + j + 4u] += scale[j].x * value + scale[j].y * sum[r];
                    }
                }
            }
            if (params.rows > 8) {
                // The zeros are said, for Tint (Chrome 156) does not clear a var in later rounds.
                var part = array<f32, STEP * STREAMS>();
                var sum = array<f32, STEP>();
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 8u, last_row), 8u * (4u * b + 0u));
                    sums[ROWS * STREAMS + r + 8u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 0u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][0]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 8u, last_row), 8u * (4u * b + 0u) + 4u);
                    sums[ROWS * STREAMS + r + 8u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 0u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][0]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 8u, last_row), 8u * (4u * b + 1u));
                    sums[ROWS * STREAMS + r + 8u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 1u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][1]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 8u, last_row), 8u * (4u * b + 1u) + 4u);
                    sums[ROWS * STREAMS + r + 8u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 1u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][1]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 8u, last_row), 8u * (4u * b + 2u));
                    sums[ROWS * STREAMS + r + 8u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 2u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][2]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 8u, last_row), 8u * (4u * b + 2u) + 4u);
                    sums[ROWS * STREAMS + r + 8u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 2u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][2]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 8u, last_row), 8u * (4u * b + 3u));
                    sums[ROWS * STREAMS + r + 8u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 3u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][3]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 8u, last_row), 8u * (4u * b + 3u) + 4u);
                    sums[ROWS * STREAMS + r + 8u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 3u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][3]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    for (var j = 0u; j < STREAMS; j++) {
                        let value = part[r * STREAMS + j];
                        sums[r * STREAMS + j + 8u] += scale[j].x * value + scale[j].y * sum[r];
                    }
                }
            }
            if (params.rows > 12) {
                // The zeros are said, for Tint (Chrome 156) does not clear a var in later rounds.
                var part = array<f32, STEP * STREAMS>();
                var sum = array<f32, STEP>();
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 12u, last_row), 8u * (4u * b + 0u));
                    sums[ROWS * STREAMS + r + 12u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 0u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][0]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 12u, last_row), 8u * (4u * b + 0u) + 4u);
                    sums[ROWS * STREAMS + r + 12u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 0u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][0]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 12u, last_row), 8u * (4u * b + 1u));
                    sums[ROWS * STREAMS + r + 12u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 1u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][1]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 12u, last_row), 8u * (4u * b + 1u) + 4u);
                    sums[ROWS * STREAMS + r + 12u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 1u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][1]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 12u, last_row), 8u * (4u * b + 2u));
                    sums[ROWS * STREAMS + r + 12u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 2u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][2]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 12u, last_row), 8u * (4u * b + 2u) + 4u);
                    sums[ROWS * STREAMS + r + 12u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 2u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][2]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 12u, last_row), 8u * (4u * b + 3u));
                    sums[ROWS * STREAMS + r + 12u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 3u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][3]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 12u, last_row), 8u * (4u * b + 3u) + 4u);
                    sums[ROWS * STREAMS + r + 12u] += dot(v, v);
                    v *= load_norm(8u * (4u * b + 3u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][3]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    for (var j = 0u; j < STREAMS; j++) {
                        let value = part[r * STREAMS + j];
                        sums[r * STREAMS + j + 12u] += scale[j].x * value + scale[j].y * sum[r];
                    }
                }
            }
        }
    }
        {
        let scale = inverseSqrt(subgroupAdd(sums[16]) / f32(K) + 1e-05f);
        for (var j = 0u; j < 1u; j++) {
            let value = subgroupAdd(sums[j]) * scale;
            if (lane == 0u) {
                store(0u, col + j, value);
            }
        }
    }
    if (params.rows > 1) {
        let scale = inverseSqrt(subgroupAdd(sums[17]) / f32(K) + 1e-05f);
        for (var j = 0u; j < 1u; j++) {
            let value = subgroupAdd(sums[j + 1u]) * scale;
            if (lane == 0u) {
                store(1u, col + j, value);
            }
        }
    }
    if (params.rows > 2) {
        let scale = inverseSqrt(subgroupAdd(sums[18]) / f32(K) + 1e-05f);
        for (var j = 0u; j < 1u; j++) {
            let value = subgroupAdd(sums[j + 2u]) * scale;
            if (lane == 0u) {
                store(2u, col + j, value);
            }
        }
    }
    if (params.rows > 3) {
        let scale = inverseSqrt(subgroupAdd(sums[19]) / f32(K) + 1e-05f);
        for (var j = 0u; j < 1u; j++) {
            let value = subgroupAdd(sums[j + 3u]) * scale;
            if (lane == 0u) {
                store(3u, col + j, value);
            }
        }
    }
    if (params.rows > 4) {
        let scale = inverseSqrt(subgroupAdd(sums[20]) / f32(K) + 1e-05f);
        for (var j = 0u; j < 1u; j++) {
            let value = subgroupAdd(sums[j + 4u]) * scale;
            if (lane == 0u) {
                store(4u, col + j, value);
            }
        }
    }
    if (params.rows > 5) {
        let scale = inverseSqrt(subgroupAdd(sums[21]) / f32(K) + 1e-05f);
        for (var j = 0u; j < 1u; j++) {
            let value = subgroupAdd(sums[j + 5u]) * scale;
            if (lane == 0u) {
                store(5u, col + j, value);
            }
        }
    }
    if (params.rows > 6) {
        let scale = inverseSqrt(subgroupAdd(sums[22]) / f32(K) + 1e-05f);
        for (var j = 0u; j < 1u; j++) {
            let value = subgroupAdd(sums[j + 6u]) * scale;
            if (lane == 0u) {
                store(6u, col + j, value);
            }
        }
    }
    if (params.rows > 7) {
        let scale = inverseSqrt(subgroupAdd(sums[23]) / f32(K) + 1e-05f);
        for (var j = 0u; j < 1u; j++) {
            let value = subgroupAdd(sums[j + 7u]) * scale;
            if (lane == 0u) {
                store(7u, col + j, value);
            }
        }
    }
    if (params.rows > 8) {
        let scale = inverseSqrt(subgroupAdd(sums[24]) / f32(K) + 1e-05f);
        for (var j = 0u; j < 1u; j++) {
            let value = subgroupAdd(sums[j + 8u]) * scale;
            if (lane == 0u) {
                store(8u, col + j, value);
            }
        }
    }
    if (params.rows > 9) {
        let scale = inverseSqrt(subgroupAdd(sums[25]) / f32(K) + 1e-05f);
        for (var j = 0u; j < 1u; j++) {
            let value = subgroupAdd(sums[j + 9u]) * scale;
            if (lane == 0u) {
                store(9u, col + j, value);
            }
        }
    }
    if (params.rows > 10) {
        let scale = inverseSqrt(subgroupAdd(sums[26]) / f32(K) + 1e-05f);
        for (var j = 0u; j < 1u; j++) {
            let value = subgroupAdd(sums[j + 10u]) * scale;
            if (lane == 0u) {
                store(10u, col + j, value);
            }
        }
    }
    if (params.rows > 11) {
        let scale = inverseSqrt(subgroupAdd(sums[27]) / f32(K) + 1e-05f);
        for (var j = 0u; j < 1u; j++) {
            let value = subgroupAdd(sums[j + 11u]) * scale;
            if (lane == 0u) {
                store(11u, col + j, value);
            }
        }
    }
    if (params.rows > 12) {
        let scale = inverseSqrt(subgroupAdd(sums[28]) / f32(K) + 1e-05f);
        for (var j = 0u; j < 1u; j++) {
            let value = subgroupAdd(sums[j + 12u]) * scale;
            if (lane == 0u) {
                store(12u, col + j, value);
            }
        }
    }
    if (params.rows > 13) {
        let scale = inverseSqrt(subgroupAdd(sums[29]) / f32(K) + 1e-05f);
        for (var j = 0u; j < 1u; j++) {
            let value = subgroupAdd(sums[j + 13u]) * scale;
            if (lane == 0u) {
                store(13u, col + j, value);
            }
        }
    }
    if (params.rows > 14) {
        let scale = inverseSqrt(subgroupAdd(sums[30]) / f32(K) + 1e-05f);
        for (var j = 0u; j < 1u; j++) {
            let value = subgroupAdd(sums[j + 14u]) * scale;
            if (lane == 0u) {
                store(14u, col + j, value);
            }
        }
    }
    if (params.rows > 15) {
        let scale = inverseSqrt(subgroupAdd(sums[31]) / f32(K) + 1e-05f);
        for (var j = 0u; j < 1u; j++) {
            let value = subgroupAdd(sums[j + 15u]) * scale;
            if (lane == 0u) {
                store(15u, col + j, value);
            }
        }
    }

}
