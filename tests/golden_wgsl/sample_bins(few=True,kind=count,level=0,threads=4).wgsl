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

var<workgroup> counts: array<atomic<u32>, 2048>;

const PENALTY = 1u;
const DRAW = 2u;
const TOP_K = 4u;
const TOP_P = 8u;
const ALL = 0xFFFFFFFFu;

fn load(id: vec4<u32>) -> vec4<u32> {
    return vec4<u32>(scores[id.x], scores[id.y], scores[id.z], scores[id.w]);
}

fn add(value: u32) {
    let bin = (value >> 21u) & 2047u;
    atomicAdd(&counts[bin], 1u);
}

@compute @workgroup_size(4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    if ((settings[0] & TOP_K) == 0u) {
        return;
    }
    var found = vec4<u32>(0u);
    for (var i = group.x * params.span + thread; i < (group.x + 1u) * params.span; i += 16u) {
        let id = vec4<u32>(i, i + 4u, i + 8u, i + 12u);
        var value = load(id);
        let hit = vec4<bool>(true);
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
    for (var i = thread; i < 2048u; i += 4u) {
        let sum = atomicLoad(&counts[i]);
        if (sum > 0u) {
            atomicAdd(&bins[0u + i], sum);
        }
    }
}
