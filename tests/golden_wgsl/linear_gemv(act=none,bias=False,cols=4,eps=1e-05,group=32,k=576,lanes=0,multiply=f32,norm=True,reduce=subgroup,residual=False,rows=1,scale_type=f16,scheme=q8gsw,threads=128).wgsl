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
const CHUNKS = 144u;
const ROW = 144u;  // from a row of the weight to the next
const SCALE_ROW = 9u;
const GROUP_CHUNKS = 8u;
const GROUPS = 18u;

const THREADS = 128u;
const BLOCKS = 36u;
const ROWS = 1u;
const STEP = 1u;  // rows that a thread has under way at once
const STREAMS = 4u;  // rows of the weight that a workgroup reads
const SUMS = 5u;
var<workgroup> partial: array<f32, 160>;

// Each signed byte moved to the top of its own word: 2^24 times the code.
fn low(word: u32) -> vec4<f32> {
    let bytes = vec4<u32>(word) * vec4<u32>(0x1000000u, 0x10000u, 0x100u, 1u);
    return vec4<f32>(bitcast<vec4<i32>>(bytes & vec4<u32>(0xFF000000u)));
}

alias Block = vec4<u32>;

fn fetch_block(row: u32, b: u32) -> Block {
    return codes[row * (ROW / 4u) + b];
}

fn scale_at(start: u32, g: u32) -> vec2<f32> {
    let pair = unpack2x16float(scales[start + (g >> 1u)]);
    let s = select(pair.x, pair.y, (g & 1u) == 1u);
    return vec2<f32>(s * 0x1p-24f, 0.0);
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

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32, @builtin(subgroup_size) width: u32) {
    let col = (group.x + group.y * groups.x) * 4u;
    var sums: array<f32, SUMS>;
    var n: array<u32, STREAMS>;
    for (var j = 0u; j < STREAMS; j++) {
        n[j] = min(col + j % 4u, params.cols - 1u);
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
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(r, 4u * (4u * b + 0u));
                    sums[ROWS * STREAMS + r] += dot(v, v);
                    v *= load_norm(4u * (4u * b + 0u));
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][0]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(r, 4u * (4u * b + 1u));
                    sums[ROWS * STREAMS + r] += dot(v, v);
                    v *= load_norm(4u * (4u * b + 1u));
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][1]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(r, 4u * (4u * b + 2u));
                    sums[ROWS * STREAMS + r] += dot(v, v);
                    v *= load_norm(4u * (4u * b + 2u));
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][2]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = load_x(r, 4u * (4u * b + 3u));
                    sums[ROWS * STREAMS + r] += dot(v, v);
                    v *= load_norm(4u * (4u * b + 3u));
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(low(w[j][3]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    for (var j = 0u; j < STREAMS; j++) {
                        let value = part[r * STREAMS + j];
                        sums[r * STREAMS + j] += scale[j].x * value;
                    }
                }
            }
        }
    }
    let slot = thread / width;
    {
        for (var i = 0u; i < 4u; i++) {
            let sum = subgroupAdd(sums[i]);
            if (thread % width == 0u) {
                partial[slot * SUMS + i] = sum;
            }
        }
        for (var i = 4u; i < 5u; i++) {
            let sum = subgroupAdd(sums[i]);
            if (thread % width == 0u) {
                partial[slot * SUMS + i] = sum;
            }
        }
    }
    workgroupBarrier();
    let slots = (THREADS + width - 1u) / width;

    for (var i = thread; i < 4u; i += THREADS) {
        let m = i / 4u;
        let j = i % 4u;
        let scale = inverseSqrt(total(ROWS * STREAMS + m, slots) / f32(K) + 1e-05f);
        let value = total(m * STREAMS + j, slots) * scale;
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
