@group(0) @binding(0) var<storage, read> scores: array<u32>;
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

var<workgroup> counts: array<atomic<u32>, 1024>;

const PENALTY = 1u;
const DRAW = 2u;
const TOP_K = 4u;
const TOP_P = 8u;
const ALL = 0xFFFFFFFFu;

fn load(id: vec4<u32>) -> vec4<u32> {
    return vec4<u32>(scores[id.x], scores[id.y], scores[id.z], scores[id.w]);
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
    // All weights of a bin have one exponent: each is the least of the bin, plus its lower bits in units of the last place.
    let least = digits | (bin << 10u);
    let exponent = least >> 23u;
    if (exponent < 24u) {
        return 0.0;  // below exp(-70): these are zeros
    }
    let rest = f32(atomicLoad(&bins[9216u + bin]));
    let whole = f32(atomicLoad(&bins[8192u + bin])) * bitcast<f32>(least);
    return whole + rest * bitcast<f32>((exponent - 23u) << 23u);
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
    let bin = (value >> 0u) & 1023u;
    atomicAdd(&counts[bin], 1u);
}

@compute @workgroup_size(4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    if ((settings[0] & TOP_P) == 0u) {
        return;
    }
    var found = vec4<u32>(0u);
    found = state[4];
    pick(thread, 1024u, found.x, bitcast<f32>(found.y), 0.0);
    found.x |= picked.bin << 10u;
    found.y = bitcast<u32>(picked.need);
    if (group.x == 0u && thread == 0u) {
        state[5] = found;
    }
    for (var i = group.x * params.span + thread; i < (group.x + 1u) * params.span; i += 16u) {
        let id = vec4<u32>(i, i + 4u, i + 8u, i + 12u);
        var value = load(id);
        let hit = (value >> vec4<u32>(10u)) == vec4<u32>(found.x >> 10u);
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
    workgroupBarrier();
    for (var i = thread; i < 1024u; i += 4u) {
        let sum = atomicLoad(&counts[i]);
        if (sum > 0u) {
            atomicAdd(&bins[10240u + i], sum);
        }
    }
}
