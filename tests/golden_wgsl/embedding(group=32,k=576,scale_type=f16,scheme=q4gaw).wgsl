@group(0) @binding(0) var<storage, read> ids: array<i32>;
@group(0) @binding(1) var<storage, read> codes: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
struct Params {
    n: u32,
    first: i32,
    rows: i32,
    vocab: i32,
    nan: u32,
}
@group(0) @binding(4) var<uniform> params: Params;

const K = 576u;
const CHUNKS = 72u;
const ROW = 72u;  // from a row of the weight to the next
const SCALE_ROW = 18u;
const GROUP_CHUNKS = 4u;
const GROUPS = 18u;
// What a masked code has to be multiplied by: 16^-position.
const LOW_UNIT = vec4<f32>(0x1p0f, 0x1p-8f, 0x1p-16f, 0x1p-24f);
const HIGH_UNIT = vec4<f32>(0x1p-4f, 0x1p-12f, 0x1p-20f, 0x1p-28f);

// Signed conversions where the sign bit is clear: unsigned ones cost three times as much on a CPU.
fn low(word: u32) -> vec4<f32> {
    return vec4<f32>(vec4<i32>(i32(word)) & vec4<i32>(0xF, 0xF00, 0xF0000, 0xF000000));
}

fn high(word: u32) -> vec4<f32> {
    let first = vec3<f32>(vec3<i32>(i32(word)) & vec3<i32>(0xF0, 0xF000, 0xF00000));
    return vec4<f32>(first, f32(word & 0xF0000000u));
}

fn fetch(start: u32, c: u32) -> u32 {
    return codes[start + c];
}

fn scale_at(start: u32, g: u32) -> vec2<f32> {
    let s = unpack2x16float(scales[start + g]);
    return s;
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
    let low_value = low(word) * LOW_UNIT * scale.x + scale.y;
    write(token, 8u * c, select(nan, low_value, known));
    let high_value = high(word) * HIGH_UNIT * scale.x + scale.y;
    write(token, 8u * c + 4u, select(nan, high_value, known));
}
