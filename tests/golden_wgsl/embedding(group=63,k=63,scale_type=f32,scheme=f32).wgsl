@group(0) @binding(0) var<storage, read> ids: array<i32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
struct Params {
    n: u32,
    first: i32,
    rows: i32,
    vocab: i32,
    nan: u32,
}
@group(0) @binding(3) var<uniform> params: Params;

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

fn write(token: u32, e: u32, value: vec4<f32>) {
    for (var i = 0u; i < 4u && e + i < K; i++) {
        y[token * K + e + i] = value[i];
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let i = (group.x + group.y * groups.x) * 64u + thread;
    if (i >= params.n) {
        return;
    }
    let token = i / CHUNKS;
    let c = i % CHUNKS;
    let id = ids[token];
    let known = id >= 0 && id < params.vocab;
    if (known && (id < params.first || id - params.first >= params.rows)) {
        return;
    }
    let row = u32(select(0, id - params.first, known));
    let word = fetch(row * ROW, c);
    let nan = vec4<f32>(bitcast<f32>(params.nan));
    let low_value = low(word);
    write(token, 4u * c, select(nan, low_value, known));
}
