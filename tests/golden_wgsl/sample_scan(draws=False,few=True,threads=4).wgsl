@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<u32>;
@group(0) @binding(2) var<storage, read> seen: array<u32>;

@group(0) @binding(3) var<storage, read_write> parts: array<vec2<u32>>;
struct Params {
    rows: u32,
    width: u32,
    span: u32,
    bins: u32,
}
@group(0) @binding(4) var<uniform> params: Params;

var<workgroup> best: array<vec2<u32>, 4>;

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

fn sort_keys(bits: vec4<u32>) -> vec4<u32> {
    let key = select(bits | vec4<u32>(0x80000000u), ~bits, bits > vec4<u32>(0x80000000u));
    return select(key, vec4<u32>(0xFFFFFFFFu), (bits & vec4<u32>(0x7FFFFFFFu)) > vec4<u32>(0x7F800000u));
}

fn penalised(bits: vec4<u32>, id: vec4<u32>) -> vec4<u32> {
    let words = vec4<u32>(seen[id.x / 32u], seen[id.y / 32u], seen[id.z / 32u], seen[id.w / 32u]);
    let is_seen = ((words >> (id % vec4<u32>(32u))) & vec4<u32>(1u)) == vec4<u32>(1u);
    let is_finite = (bits & vec4<u32>(0x7FFFFFFFu)) < vec4<u32>(0x7F800000u);
    let x = bitcast<vec4<f32>>(bits);
    let penalty = bitcast<f32>(settings[5]);
    let changed = bitcast<vec4<u32>>(select(x * penalty, x / penalty, x > vec4<f32>(0.0)));
    return select(bits, changed, is_seen & is_finite);
}

@compute @workgroup_size(4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let start = group.x * params.span;
    let end = min(start + params.span, known());
    var own = vec2<u32>(0u, 0xFFFFFFFFu);
    let base = (params.rows - 1u) * params.width;
    let has_penalty = (settings[0] & PENALTY) != 0u;
    var top = vec4<u32>(0u);
    var at = vec4<u32>(0xFFFFFFFFu);
    if (!has_penalty) {
    for (var i = group.x * params.span + thread; i < (group.x + 1u) * params.span; i += 16u) {
        let id = vec4<u32>(i, i + 4u, i + 8u, i + 12u);
        var bits = vec4<u32>(logits[base + id.x], logits[base + id.y], logits[base + id.z], logits[base + id.w]);
        let key = sort_keys(select(vec4<u32>(0xFF800000u), bits, id < vec4<u32>(end)));
        at = select(at, id, key > top);
        top = max(top, key);
    }
    }
    if (has_penalty) {
    for (var i = group.x * params.span + thread; i < (group.x + 1u) * params.span; i += 16u) {
        let id = vec4<u32>(i, i + 4u, i + 8u, i + 12u);
        var bits = vec4<u32>(logits[base + id.x], logits[base + id.y], logits[base + id.z], logits[base + id.w]);
        bits = penalised(bits, id);
        let key = sort_keys(select(vec4<u32>(0xFF800000u), bits, id < vec4<u32>(end)));
        at = select(at, id, key > top);
        top = max(top, key);
    }
    }
    for (var j = 0u; j < 4u; j++) {
        own = better(own, vec2<u32>(top[j], at[j]));
    }

    best[thread] = own;
    workgroupBarrier();
    for (var half = 2u; half > 0u; half /= 2u) {
        if (thread < half) {
            best[thread] = better(best[thread], best[thread + half]);
        }
        workgroupBarrier();
    }
    if (thread == 0u) {
        parts[group.x] = best[0];
    }
}
