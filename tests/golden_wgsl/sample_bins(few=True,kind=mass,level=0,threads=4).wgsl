@group(0) @binding(0) var<storage, read_write> scores: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<u32>;

@group(0) @binding(2) var<storage, read> parts: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> bins: array<atomic<u32>>;
@group(0) @binding(4) var<storage, read_write> state: array<vec4<u32>>;
struct Params {
    rows: u32,
    width: u32,
    span: u32,
    parts: u32,
}
@group(0) @binding(5) var<uniform> params: Params;

var<workgroup> counts: array<atomic<u32>, 3072>;

const PENALTY = 1u;
const DRAW = 2u;
const TOP_K = 4u;
const TOP_P = 8u;
const ALL = 0xFFFFFFFFu;

fn load(id: vec4<u32>) -> vec4<u32> {
    return vec4<u32>(scores[id.x], scores[id.y], scores[id.z], scores[id.w]);
}

fn bits_of(key: vec4<u32>) -> vec4<u32> {
    return select(~key, key & vec4<u32>(0x7FFFFFFFu), key >= vec4<u32>(0x80000000u));
}

fn store(id: vec4<u32>, value: vec4<u32>) {
    scores[id.x] = value.x;
    scores[id.y] = value.y;
    scores[id.z] = value.z;
    scores[id.w] = value.w;
}

// exp of its own, so that every adapter weighs alike: 2^n * e^r with |r| <= ln(2) / 2, to about 1e-7 of the value.
fn weight(bits: vec4<u32>, best: f32) -> vec4<f32> {
    let x = (bitcast<vec4<f32>>(bits) - best) * bitcast<f32>(settings[6]);
    let n = round(x * 1.44269504);
    let r = (x - n * 0.693145752) - n * 1.42860677e-6;  // ln(2) in two parts, the first with zeros at its end
    var sum = 1.98412698e-4 * r + 1.38888889e-3;  // Taylor: 1/7!, 1/6!, ...
    sum = sum * r + 8.33333333e-3;
    sum = sum * r + 4.16666667e-2;
    sum = sum * r + 0.166666667;
    sum = ((sum * r + 0.5) * r + 1.0) * r + 1.0;
    let w = min(vec4<f32>(1.0), sum * bitcast<vec4<f32>>(vec4<u32>(vec4<i32>(n) + 127) << vec4<u32>(23u)));
    return select(vec4<f32>(0.0), w, (x >= vec4<f32>(-70.0)) & (bits != vec4<u32>(0xFF800000u)));  // -infinity forbids an id
}

var<workgroup> top_key: atomic<u32>;

fn best_score(thread: u32) -> f32 {
    var own = 0u;
    for (var i = thread; i < params.parts; i += 4u) {
        own = max(own, parts[i].x);
    }
    atomicMax(&top_key, own);
    workgroupBarrier();
    let found = atomicLoad(&top_key);
    return bitcast<f32>(select(~found, found & 0x7FFFFFFFu, found >= 0x80000000u));
}

var<workgroup> lanes_f32: array<f32, 4>;

fn sum_up_f32(thread: u32, value: f32) -> f32 {
    var sum = value;
    for (var step = 1u; step < 4u; step *= 2u) {
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
    return f32(atomicLoad(&bins[4096u + bin]));
}

struct Picked {
    bin: u32,
    need: f32,
}
var<workgroup> picked: Picked;

fn pick(thread: u32, bins: u32, digits: u32, need: f32, share: f32) {
    let each = bins / 4u;
    let top = bins - 1u - thread * each;  // thread 0 has the greatest bins
    var own = 0.0;
    for (var i = 0u; i < each; i++) {
        own += amount(top - i, digits);
    }
    let reached = sum_up_f32(thread, own);
    let total = lanes_f32[3];
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
    let bin = (value >> 20u) & 1023u;
    atomicAdd(&counts[bin], 1u);
    atomicAdd(&counts[1024u + bin], (value >> 10u) & 1023u);
    atomicAdd(&counts[2048u + bin], value & 1023u);
}

@compute @workgroup_size(4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    var found = vec4<u32>(0u);
    if ((settings[0] & TOP_K) != 0u) {
        let last = state[2];
        pick(thread, 1024u, last.x, bitcast<f32>(last.y), 0.0);
        found.z = last.x | picked.bin;
    }
    if (group.x == 0u && thread == 0u) {
        state[3] = found;
    }
    if ((settings[0] & DRAW) == 0u) {
        return;
    }
    let counts_mass = (settings[0] & TOP_P) != 0u;
    let best = best_score(thread);
    for (var i = group.x * params.span + thread; i < (group.x + 1u) * params.span; i += 16u) {
        let id = vec4<u32>(i, i + 4u, i + 8u, i + 12u);
        var value = load(id);
        let is_kept = value >= vec4<u32>(found.z);
        var weights = vec4<u32>(0u);
        for (var once = any(is_kept); once; once = false) {
            weights = bitcast<vec4<u32>>(weight(bits_of(value), best));
        }
        value = select(vec4<u32>(0u), weights, is_kept);
        store(id, value);
        let hit = (value != vec4<u32>(0u)) & vec4<bool>(counts_mass);
        for (var once = any(hit); once; once = false) {
            if (hit.x) {
                add(value.x);
            }
            if (hit.y) {
                add(value.y);
            }
            if (hit.z) {
                add(value.z);
            }
            if (hit.w) {
                add(value.w);
            }
        }
    }
    if (!counts_mass) {
        return;
    }
    workgroupBarrier();
    for (var i = thread; i < 3072u; i += 4u) {
        let sum = atomicLoad(&counts[i]);
        if (sum > 0u) {
            atomicAdd(&bins[5120u + i], sum);
        }
    }
}
