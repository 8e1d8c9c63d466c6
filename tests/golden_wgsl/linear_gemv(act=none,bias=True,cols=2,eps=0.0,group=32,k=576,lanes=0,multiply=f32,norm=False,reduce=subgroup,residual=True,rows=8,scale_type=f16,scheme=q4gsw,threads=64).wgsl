enable subgroups;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> codes: array<vec4<u32>>;
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
const SCALE_ROW = 9u;
const GROUP_CHUNKS = 4u;
const GROUPS = 18u;
// What a masked code has to be multiplied by: 16^-position.
const LOW_UNIT = vec4<f32>(0x1p0f, 0x1p-8f, 0x1p-16f, 0x1p-24f);
const HIGH_UNIT = vec4<f32>(0x1p-4f, 0x1p-12f, 0x1p-20f, 0x1p-28f);

const THREADS = 64u;
const BLOCKS = 18u;
const ROWS = 8u;
const STEP = 4u;  // rows that a thread has under way at once
const STREAMS = 2u;  // rows of the weight that a workgroup reads
const SUMS = 16u;
var<workgroup> partial: array<f32, 256>;

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
    let pair = unpack2x16float(scales[start + (g >> 1u)]);
    let s = select(pair.x, pair.y, (g & 1u) == 1u);
    return vec2<f32>(s, -8.0 * s);
}

fn load_x(m: u32, i: u32) -> vec4<f32> {
    return x[(m * K + i) / 4u];
}

fn store(m: u32, n: u32, value: f32) {
    if (i32(m) >= params.rows || n >= params.cols) {
        return;
    }
    let i = m * params.stride + params.first + n;
    y[i] = value + bias[params.first + n] + residual[i];
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32, @builtin(subgroup_size) width: u32) {
    let col = (group.x + group.y * groups.x) * 2u;
    let last_row = u32(max(params.rows, 1) - 1);
    var sums: array<f32, SUMS>;
    var n: array<u32, STREAMS>;
    for (var j = 0u; j < STREAMS; j++) {
        n[j] = min(col + j % 2u, params.cols - 1u);
    }
    for (var b = thread; b < BLOCKS; b += THREADS) {
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
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][0]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r, last_row), 8u * (4u * b + 0u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][0]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r, last_row), 8u * (4u * b + 1u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][1]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r, last_row), 8u * (4u * b + 1u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][1]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r, last_row), 8u * (4u * b + 2u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][2]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r, last_row), 8u * (4u * b + 2u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][2]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r, last_row), 8u * (4u * b + 3u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][3]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r, last_row), 8u * (4u * b + 3u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][3]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    for (var j = 0u; j < STREAMS; j++) {
                        let value = part[r * STREAMS + j];
                        sums[r * STREAMS + j] += scale[j].x * (value - 8.0 * sum[r]);
                    }
                }
            }
            if (params.rows > 4) {
                // The zeros are said, for Tint (Chrome 156) does not clear a var in later rounds.
                var part = array<f32, STEP * STREAMS>();
                var sum = array<f32, STEP>();
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 4u, last_row), 8u * (4u * b + 0u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][0]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 4u, last_row), 8u * (4u * b + 0u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][0]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 4u, last_row), 8u * (4u * b + 1u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][1]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 4u, last_row), 8u * (4u * b + 1u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][1]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 4u, last_row), 8u * (4u * b + 2u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][2]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 4u, last_row), 8u * (4u * b + 2u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][2]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 4u, last_row), 8u * (4u * b + 3u));
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= LOW_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][3]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(min(r + 4u, last_row), 8u * (4u * b + 3u) + 4u);
                    sum[r] += dot(v, vec4<f32>(1.0));
                    v *= HIGH_UNIT;
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(high(w[j][3]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    for (var j = 0u; j < STREAMS; j++) {
                        let value = part[r * STREAMS + j];
                        sums[r * STREAMS + j + 8u] += scale[j].x * (value - 8.0 * sum[r]);
                    }
                }
            }
        }
    }
    let slot = thread / width;
    {
        for (var i = 0u; i < 8u; i++) {
            let sum = subgroupAdd(sums[i]);
            if (thread % width == 0u) {
                partial[slot * SUMS + i] = sum;
            }
        }
    }
    if (params.rows > 4) {
        for (var i = 8u; i < 16u; i++) {
            let sum = subgroupAdd(sums[i]);
            if (thread % width == 0u) {
                partial[slot * SUMS + i] = sum;
            }
        }
    }
    workgroupBarrier();
    let slots = (THREADS + width - 1u) / width;

    for (var i = thread; i < 16u; i += THREADS) {
        let m = i / 2u;
        let j = i % 2u;
        let value = total(m * STREAMS + j, slots);
        store(m, col + j, value);
    }

}

fn total(i: u32, slots: u32) -> f32 {
    var sum = 0.0;
    for (var s = 0u; s < slots; s++) {
        sum += partial[s * SUMS + i];
    }
    return sum;
}
