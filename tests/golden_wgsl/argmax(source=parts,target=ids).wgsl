@group(0) @binding(0) var<storage, read> x: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read_write> ids: array<i32>;
struct Params {
    rows: u32,
    width: u32,
    span: u32,
}
@group(0) @binding(2) var<uniform> params: Params;

const NAN_KEY = 0xFFFFFFFFu;
var<workgroup> best: array<vec2<u32>, 64>;

fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let row = group.y + group.z * groups.y;
    if (row >= params.rows) {
        return;
    }
    let start = group.x * params.span;
    let end = min(start + params.span, params.width);
    var own = vec2<u32>(0u, 0xFFFFFFFFu);
    for (var i = start + thread; i < end; i += 64u) {
        own = better(own, x[row * params.width + i]);
    }
    best[thread] = own;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half /= 2u) {
        if (thread < half) {
            best[thread] = better(best[thread], best[thread + half]);
        }
        workgroupBarrier();
    }
    if (thread == 0u) {
        ids[row] = select(i32(best[0].y), -1, best[0].x == NAN_KEY);
    }
}
