enable f16;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> codes: array<vec4<u32>>;
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

const THREADS = 32u;
const BLOCKS = 5u;
const ROWS = 1u;
const STEP = 1u;  // rows that a thread has under way at once
const STREAMS = 2u;  // rows of the weight that a workgroup reads
const SUMS = 2u;
var<workgroup> partial: array<f32, 64>;

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
    let i = start + 2u * g;
    let s = vec2<f32>(scales[i], scales[i + 1u]);
    return s * vec2<f32>(0x1p-24f, 1.0);
}

fn low_weight(word: u32, scale: vec2<f32>) -> vec4<f32> {
    return fma(low(word), vec4<f32>(scale.x), vec4<f32>(scale.y));
}

// A compiler may take f32(f16(x)) for x (Mesa does); a zero that it cannot know, mixed into the bits, forbids that.
fn rounded(value: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec2<u32>>(vec4<f16>(value)) ^ vec2<u32>(params.stride >> 31u);
    return vec4<f32>(bitcast<vec4<f16>>(bits));
}

fn load_x(m: u32, i: u32) -> vec4<f32> {
    let e = vec4<u32>(i) + vec4<u32>(0u, 1u, 2u, 3u);
    let at = vec4<u32>(m * K) + min(e, vec4<u32>(K - 1u));
    let value = vec4<f32>(x[at.x], x[at.y], x[at.z], x[at.w]);
    return select(vec4<f32>(), value, e < vec4<u32>(K));
}

fn activate(gate: f32) -> f32 {
    return gate / (1.0 + exp(min(-gate, 88.0)));  // e^88 is the last that f32 holds
}

fn store(m: u32, n: u32, value: f32, up: f32) {
    if (i32(m) >= params.rows || n >= params.cols) {
        return;
    }
    let i = m * params.stride + params.first + n;
    y[i] = activate(value) * up;
}

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let col = (group.x + group.y * groups.x) * 1u;
    var sums: array<f32, SUMS>;
    var n: array<u32, STREAMS>;
    for (var j = 0u; j < STREAMS; j++) {
        n[j] = min(col + j % 1u, params.cols - 1u) + (j / 1u) * params.cols;
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
                    var v = rounded(load_x(r, 4u * (4u * b + 0u)));
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(rounded(low_weight(w[j][0], scale[j])), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    for (var j = 0u; j < STREAMS; j++) {
                        let value = part[r * STREAMS + j];
                        sums[r * STREAMS + j] += value;
                    }
                }
            }
        }
        {
            let g = (4u * b + 1u) / GROUP_CHUNKS;
            var scale: array<vec2<f32>, STREAMS>;
            for (var j = 0u; j < STREAMS; j++) {
                scale[j] = scale_at(n[j] * SCALE_ROW, g);
            }
            {
                // The zeros are said, for Tint (Chrome 156) does not clear a var in later rounds.
                var part = array<f32, STEP * STREAMS>();
                for (var r = 0u; r < STEP; r++) {
                    var v = rounded(load_x(r, 4u * (4u * b + 1u)));
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(rounded(low_weight(w[j][1], scale[j])), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    for (var j = 0u; j < STREAMS; j++) {
                        let value = part[r * STREAMS + j];
                        sums[r * STREAMS + j] += value;
                    }
                }
            }
        }
        {
            let g = (4u * b + 2u) / GROUP_CHUNKS;
            var scale: array<vec2<f32>, STREAMS>;
            for (var j = 0u; j < STREAMS; j++) {
                scale[j] = scale_at(n[j] * SCALE_ROW, g);
            }
            {
                // The zeros are said, for Tint (Chrome 156) does not clear a var in later rounds.
                var part = array<f32, STEP * STREAMS>();
                for (var r = 0u; r < STEP; r++) {
                    var v = rounded(load_x(r, 4u * (4u * b + 2u)));
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(rounded(low_weight(w[j][2], scale[j])), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    for (var j = 0u; j < STREAMS; j++) {
                        let value = part[r * STREAMS + j];
                        sums[r * STREAMS + j] += value;
                    }
                }
            }
        }
        {
            let g = (4u * b + 3u) / GROUP_CHUNKS;
            var scale: array<vec2<f32>, STREAMS>;
            for (var j = 0u; j < STREAMS; j++) {
                scale[j] = scale_at(n[j] * SCALE_ROW, g);
            }
            {
                // The zeros are said, for Tint (Chrome 156) does not clear a var in later rounds.
                var part = array<f32, STEP * STREAMS>();
                for (var r = 0u; r < STEP; r++) {
                    var v = rounded(load_x(r, 4u * (4u * b + 3u)));
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(rounded(low_weight(w[j][3], scale[j])), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    for (var j = 0u; j < STREAMS; j++) {
                        let value = part[r * STREAMS + j];
                        sums[r * STREAMS + j] += value;
                    }
                }
            }
        }
    }
    for (var i = 0u; i < SUMS; i++) {
        partial[thread * SUMS + i] = sums[i];
    }
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if (thread < half) {
            for (var i = 0u; i < SUMS; i++) {
                partial[thread * SUMS + i] += partial[(thread + half) * SUMS + i];
            }
        }
        workgroupBarrier();
    }
    let slots = 1u;

    for (var i = thread; i < 1u; i += THREADS) {
        let m = i / 1u;
        let j = i % 1u;
        let value = total(m * STREAMS + j, slots);
        let up = total(m * STREAMS + 1u + j, slots);
        store(m, col + j, value, up);
    }

}

fn total(i: u32, slots: u32) -> f32 {
    var sum = 0.0;
    for (var s = 0u; s < slots; s++) {
        sum += partial[s * SUMS + i];
    }
    return sum;
}
