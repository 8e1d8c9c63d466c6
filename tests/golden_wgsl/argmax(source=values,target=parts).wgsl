@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> ids: array<vec2<u32>>;
struct Params {
    rows: u32,
    width: u32,
    span: u32,
}
@group(0) @binding(2) var<uniform> params: Params;

const NAN_KEY = 0xFFFFFFFFu;
var<workgroup> best: array<vec2<u32>, 64>;

// An integer that sorts as the float of these bits does; NaN sorts above all.
fn sort_key(bits: u32) -> u32 {
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        return NAN_KEY;
    }
    return select(bits | 0x80000000u, ~bits, bits > 0x80000000u);  // -0 sorts as 0
}

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
        own = better(own, vec2<u32>(sort_key(x[row * params.width + i]), i));
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
        ids[row * groups.x + group.x] = best[0];
    }
}
