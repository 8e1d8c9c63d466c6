@group(0) @binding(0) var<storage, read> ids: array<i32>;
@group(0) @binding(1) var<storage, read> codes: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
struct Params {
    n: u32,
    first: i32,
    rows: i32,
    vocab: i32,
    nan: u32,
}
@group(0) @binding(4) var<uniform> params: Params;

const K = 77u;
const CHUNKS = 20u;
const ROW = 20u;  // from a row of the weight to the next
const SCALE_ROW = 8u;
const GROUP_CHUNKS = 5u;
const GROUPS = 4u;

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
    let scale = scale_at(row * SCALE_ROW, c / GROUP_CHUNKS);
    let low_value = low(word) * scale.x + scale.y;
    write(token, 4u * c, select(nan, low_value, known));
}
