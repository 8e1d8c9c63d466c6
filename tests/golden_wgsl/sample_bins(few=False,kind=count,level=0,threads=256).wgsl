@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<u32>;
@group(0) @binding(2) var<storage, read> seen: array<u32>;

@group(0) @binding(3) var<storage, read> parts: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> bins: array<atomic<u32>>;
@group(0) @binding(5) var<storage, read_write> state: array<vec4<u32>>;
struct Params {
    rows: u32,
    width: u32,
    span: u32,
    parts: u32,
}
@group(0) @binding(6) var<uniform> params: Params;

var<workgroup> counts: array<atomic<u32>, 2048>;

const PENALTY = 1u;
const DRAW = 2u;
const TOP_K = 4u;
const TOP_P = 8u;
const ALL = 0xFFFFFFFFu;

// An integer that sorts as the float of these bits does; NaN sorts above all, -0 as 0.
fn sort_key(bits: u32) -> u32 {
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        return 0xFFFFFFFFu;
    }
    return select(bits | 0x80000000u, ~bits, bits > 0x80000000u);
}

fn known() -> u32 {
    return select(min(settings[1], params.width), params.width, settings[1] == 0u);
}

fn score(i: u32) -> u32 {
    let bits = logits[(params.rows - 1u) * params.width + i];
    let is_seen = (settings[0] & PENALTY) != 0u && ((seen[i / 32u] >> (i % 32u)) & 1u) == 1u;
    if (!is_seen || (bits & 0x7FFFFFFFu) >= 0x7F800000u) {
        return bits;
    }
    let x = bitcast<f32>(bits);
    let penalty = bitcast<f32>(settings[5]);
    return bitcast<u32>(select(x * penalty, x / penalty, x > 0.0));
}

fn add(value: u32) {
    let bin = (value >> 21u) & 2047u;
    atomicAdd(&counts[bin], 1u);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    if ((settings[0] & TOP_K) == 0u) {
        return;
    }
    var found = vec4<u32>(0u);
    let end = min((group.x + 1u) * params.span, known());
    for (var i = group.x * params.span + thread; i < end; i += 256u) {
        let bits = score(i);
        let value = sort_key(bits);
        add(value);
    }
    workgroupBarrier();
    for (var i = thread; i < 2048u; i += 256u) {
        let sum = atomicLoad(&counts[i]);
        if (sum > 0u) {
            atomicAdd(&bins[0u + i], sum);
        }
    }
}
