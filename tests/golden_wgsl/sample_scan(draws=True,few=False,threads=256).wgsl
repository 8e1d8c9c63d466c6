@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<u32>;
@group(0) @binding(2) var<storage, read> seen: array<u32>;

@group(0) @binding(3) var<storage, read_write> parts: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> bins: array<u32>;
struct Params {
    rows: u32,
    width: u32,
    span: u32,
    bins: u32,
}
@group(0) @binding(5) var<uniform> params: Params;

var<workgroup> best: array<vec2<u32>, 256>;

const PENALTY = 1u;
const DRAW = 2u;
const TOP_K = 4u;
const TOP_P = 8u;
const ALL = 0xFFFFFFFFu;

fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

fn known() -> u32 {
    return select(min(settings[1], params.width), params.width, settings[1] == 0u);
}

// An integer that sorts as the float of these bits does; NaN sorts above all, -0 as 0.
fn sort_key(bits: u32) -> u32 {
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        return 0xFFFFFFFFu;
    }
    return select(bits | 0x80000000u, ~bits, bits > 0x80000000u);
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

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let start = group.x * params.span;
    let end = min(start + params.span, known());
    var own = vec2<u32>(0u, 0xFFFFFFFFu);
    for (var i = start + thread; i < end; i += 256u) {
        own = better(own, vec2<u32>(sort_key(score(i)), i));
    }
    for (var i = group.x * 256u + thread; i < params.bins; i += groups.x * 256u) {
        bins[i] = 0u;
    }
    best[thread] = own;
    workgroupBarrier();
    for (var half = 128u; half > 0u; half /= 2u) {
        if (thread < half) {
            best[thread] = better(best[thread], best[thread + half]);
        }
        workgroupBarrier();
    }
    if (thread == 0u) {
        parts[group.x] = best[0];
    }
}
