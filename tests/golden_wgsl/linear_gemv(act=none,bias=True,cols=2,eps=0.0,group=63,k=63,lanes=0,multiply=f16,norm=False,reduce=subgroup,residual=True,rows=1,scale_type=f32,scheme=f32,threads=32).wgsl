enable f16;
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

const THREADS = 32u;
const BLOCKS = 4u;
const ROWS = 1u;
const STEP = 1u;  // rows that a thread has under way at once
const STREAMS = 2u;  // rows of the weight that a workgroup reads
const SUMS = 2u;
var<workgroup> partial: array<f32, 16>;

fn low(chunk: vec4<f32>) -> vec4<f32> {
    return chunk;
}

alias Block = array<vec4<f32>, 4>;

fn fetch_chunk(row: u32, c: u32) -> vec4<f32> {
    let first = row * K;
    let i = vec4<u32>(4u * c) + vec4<u32>(0u, 1u, 2u, 3u);
    let at = vec4<u32>(first) + min(i, vec4<u32>(K - 1u));
    return vec4<f32>(weight[at.x], weight[at.y], weight[at.z], weight[at.w]);
}

fn fetch_block(row: u32, b: u32) -> Block {
    return Block(fetch_chunk(row, 4u * b), fetch_chunk(row, 4u * b + 1u),
                 fetch_chunk(row, 4u * b + 2u), fetch_chunk(row, 4u * b + 3u));
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

fn store(m: u32, n: u32, value: f32) {
    if (i32(m) >= params.rows || n >= params.cols) {
        return;
    }
    let i = m * params.stride + params.first + n;
    y[i] = value + bias[params.first + n] + residual[i];
}

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32, @builtin(subgroup_size) width: u32) {
    let col = (group.x + group.y * groups.x) * 2u;
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
            {
                // The zeros are said, for Tint (Chrome 156) does not clear a var in later rounds.
                var part = array<f32, STEP * STREAMS>();
                for (var r = 0u; r < STEP; r++) {
                    var v = rounded(load_x(r, 4u * (4u * b + 0u)));
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(rounded(w[j][0]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = rounded(load_x(r, 4u * (4u * b + 1u)));
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(rounded(w[j][1]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = rounded(load_x(r, 4u * (4u * b + 2u)));
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(rounded(w[j][2]), v);
                    }
                }
                for (var r = 0u; r < STEP; r++) {
                    var v = rounded(load_x(r, 4u * (4u * b + 3u)));
                    for (var j = 0u; j < STREAMS; j++) {
                        part[r * STREAMS + j] += dot(rounded(w[j][3]), v);
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
    let slot = thread / width;
    {
        for (var i = 0u; i < 2u; i++) {
            let sum = subgroupAdd(sums[i]);
            if (thread % width == 0u) {
                partial[slot * SUMS + i] = sum;
            }
        }
    }
    workgroupBarrier();
    let slots = (THREADS + width - 1u) / width;

    for (var i = thread; i < 2u; i += THREADS) {
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
