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

var<workgroup> counts: array<atomic<u32>, 1024>;

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

var<workgroup> lanes_f32: array<f32, 256>;

fn sum_up_f32(thread: u32, value: f32) -> f32 {
    var sum = value;
    for (var step = 1u; step < 256u; step *= 2u) {
        lanes_f32[thread] = sum;
        workgroupBarrier();
        if (thread >= step) {
            sum = lanes_f32[thread - step] + sum;
        }
        workgroupBarrier();
    }
    lanes_f32[thread] = sum;
    workgroupBarrier();
    return sum;
}

const NONE = 0xFFFFFFFFu;
var<workgroup> first_one: atomic<u32>;

fn first(thread: u32, is_one: bool) -> u32 {
    if (thread == 0u) {
        atomicStore(&first_one, NONE);
    }
    workgroupBarrier();
    if (is_one) {
        atomicMin(&first_one, thread);
    }
    workgroupBarrier();
    let found = atomicLoad(&first_one);
    workgroupBarrier();
    return found;
}

fn amount(bin: u32, digits: u32) -> f32 {
    return f32(atomicLoad(&bins[2048u + bin]));
}

struct Picked {
    bin: u32,
    need: f32,
}
var<workgroup> picked: Picked;

fn pick(thread: u32, bins: u32, digits: u32, need: f32, share: f32) {
    let each = bins / 256u;
    let top = bins - 1u - thread * each;  // thread 0 has the greatest bins
    var own = 0.0;
    for (var i = 0u; i < each; i++) {
        own += amount(top - i, digits);
    }
    let reached = sum_up_f32(thread, own);
    let total = lanes_f32[255];
    let wanted = min(total, select(need, share * total, share > 0.0));
    let chosen = first(thread, reached >= wanted);
    if (thread == chosen) {
        var sum = 0.0;
        if (thread > 0u) {
            sum = lanes_f32[thread - 1u];
        }
        for (var i = 0u; i < each && (i == 0u || sum < wanted); i++) {
            let more = amount(top - i, digits);
            if (more > 0.0) {
                picked = Picked(top - i, wanted - sum);
                sum += more;
            }
        }
    }
    workgroupBarrier();
}

fn add(value: u32) {
    let bin = (value >> 0u) & 1023u;
    atomicAdd(&counts[bin], 1u);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    if ((settings[0] & TOP_K) == 0u) {
        return;
    }
    var found = vec4<u32>(0u);
    found = state[1];
    pick(thread, 2048u, found.x, bitcast<f32>(found.y), 0.0);
    found.x |= picked.bin << 10u;
    found.y = bitcast<u32>(picked.need);
    if (group.x == 0u && thread == 0u) {
        state[2] = found;
    }
    let end = min((group.x + 1u) * params.span, known());
    for (var i = group.x * params.span + thread; i < end; i += 256u) {
        let bits = score(i);
        let value = sort_key(bits);
        if ((value >> 10u) != (found.x >> 10u)) {
            continue;
        }
        add(value);
    }
    workgroupBarrier();
    for (var i = thread; i < 1024u; i += 256u) {
        let sum = atomicLoad(&counts[i]);
        if (sum > 0u) {
            atomicAdd(&bins[4096u + i], sum);
        }
    }
}
