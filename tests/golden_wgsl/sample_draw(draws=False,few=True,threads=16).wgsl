@group(0) @binding(0) var<storage, read> settings: array<u32>;
@group(0) @binding(1) var<storage, read> parts: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> seen: array<u32>;
@group(0) @binding(3) var<storage, read_write> ids: array<i32>;
struct Params {
    rows: u32,
    width: u32,
    span: u32,
    parts: u32,
    position: u32,
}
@group(0) @binding(4) var<uniform> params: Params;

var<workgroup> best: array<vec2<u32>, 16>;

const PENALTY = 1u;
const DRAW = 2u;
const TOP_K = 4u;
const TOP_P = 8u;
const ALL = 0xFFFFFFFFu;

fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

@compute @workgroup_size(16)
fn main(@builtin(local_invocation_index) thread: u32) {
    var own = vec2<u32>(0u, 0xFFFFFFFFu);
    if (thread < params.parts) {
        own = parts[thread];
    }
    best[thread] = own;
    workgroupBarrier();
    for (var half = 8u; half > 0u; half /= 2u) {
        if (thread < half) {
            best[thread] = better(best[thread], best[thread + half]);
        }
        workgroupBarrier();
    }
    let top = best[0];
    var id = top.y;
    if (thread != 0u) {
        return;
    }
    if (top.x <= 0x007FFFFFu || top.x >= 0xFF800000u) {
        ids[0] = -1;
        return;
    }
    ids[0] = i32(id);
    if ((settings[0] & PENALTY) != 0u) {
        seen[id / 32u] |= 1u << (id % 32u);
    }
}
