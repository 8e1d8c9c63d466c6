@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<u32>;
@group(0) @binding(2) var<storage, read> seen: array<u32>;

@group(0) @binding(3) var<storage, read> parts: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> bins: array<u32>;
@group(0) @binding(5) var<storage, read> state: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> sums: array<vec4<u32>>;
struct Params {
    rows: u32,
    width: u32,
    span: u32,
    parts: u32,
}
@group(0) @binding(7) var<uniform> params: Params;

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

// exp of its own, so that every adapter weighs alike: 2^n * e^r with |r| <= ln(2) / 2, to about 1e-7 of the value.
fn weight(bits: u32, best: f32) -> f32 {
    let x = (bitcast<f32>(bits) - best) * bitcast<f32>(settings[6]);
    let n = round(x * 1.44269504);
    let r = (x - n * 0.693145752) - n * 1.42860677e-6;  // ln(2) in two parts, the first with zeros at its end
    var sum = 1.98412698e-4 * r + 1.38888889e-3;  // Taylor: 1/7!, 1/6!, ...
    sum = sum * r + 8.33333333e-3;
    sum = sum * r + 4.16666667e-2;
    sum = sum * r + 0.166666667;
    sum = ((sum * r + 0.5) * r + 1.0) * r + 1.0;
    let w = min(f32(1.0), sum * bitcast<f32>(u32(i32(n) + 127) << u32(23u)));
    return select(f32(0.0), w, (x >= f32(-70.0)) & (bits != u32(0xFF800000u)));  // -infinity forbids an id
}

var<workgroup> top_key: atomic<u32>;

fn best_score(thread: u32) -> f32 {
    var own = 0u;
    for (var i = thread; i < params.parts; i += 256u) {
        own = max(own, parts[i].x);
    }
    atomicMax(&top_key, own);
    workgroupBarrier();
    let found = atomicLoad(&top_key);
    return bitcast<f32>(select(~found, found & 0x7FFFFFFFu, found >= 0x80000000u));
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

var<workgroup> lanes_u32: array<u32, 256>;

fn sum_up_u32(thread: u32, value: u32) -> u32 {
    var sum = value;
    for (var step = 1u; step < 256u; step *= 2u) {
        lanes_u32[thread] = sum;
        workgroupBarrier();
        if (thread >= step) {
            sum = lanes_u32[thread - step] + sum;
        }
        workgroupBarrier();
    }
    lanes_u32[thread] = sum;
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
    // All weights of a bin have one exponent: each is the least of the bin, plus its lower bits in units of the last place.
    let least = digits | (bin << 0u);
    let exponent = least >> 23u;
    if (exponent < 24u) {
        return 0.0;  // below exp(-70): these are zeros
    }
    let whole = f32(bins[10240u + bin]) * bitcast<f32>(least);
    return whole;
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

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    if ((settings[0] & DRAW) == 0u) {
        return;
    }
    let best = best_score(thread);
    let least_key = state[3].z;
    var edge = 0u;
    var equals = ALL;
    if ((settings[0] & TOP_P) != 0u) {
        let last = state[5];
        pick(thread, 1024u, last.x, bitcast<f32>(last.y), 0.0);
        edge = last.x | picked.bin;
        equals = max(1u, u32(ceil(picked.need / bitcast<f32>(max(edge, 1u << 23u)))));
    }
    if (settings[4] > edge) {
        edge = settings[4];
        equals = ALL;
    }
    let end = min((group.x + 1u) * params.span, known());
    var mass = 0.0;
    var count = 0u;
    for (var i = group.x * params.span + thread; i < end; i += 256u) {
        let bits = score(i);
        if (sort_key(bits) >= least_key) {
            let w = weight(bits, best);
            mass += select(0.0, w, bitcast<u32>(w) > edge);
            count += select(0u, 1u, bitcast<u32>(w) == edge);
        }
    }
    let all_mass = sum_up_f32(thread, mass);
    let all_count = sum_up_u32(thread, count);
    if (thread == 255u) {
        sums[group.x] = vec4<u32>(bitcast<u32>(all_mass), all_count, edge, equals);
    }
}
