struct Params {
    n: u32,
    width: u32,
    kept0: u32, kept1: u32, kept2: u32, kept3: u32, 
    o0: u32, o1: u32, o2: u32, o3: u32, 
    gone0: u32, 
    r0: u32, 
}

@group(0) @binding(0) var<storage, read> x: array<i32>;
@group(0) @binding(1) var<storage, read_write> y: array<i32>;
@group(0) @binding(2) var<uniform> params: Params;

var<workgroup> parts: array<i32, 64>;

fn combine(a: i32, b: i32) -> i32 {
    return max(a, b);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let output = group.x + group.y * groups.x;
    if (output >= params.n) {
        return;
    }
    var rest_o = output;
    let o3 = rest_o % params.kept3;
    rest_o /= params.kept3;
    let o2 = rest_o % params.kept2;
    rest_o /= params.kept2;
    let o1 = rest_o % params.kept1;
    rest_o /= params.kept1;
    let o0 = rest_o;
    let start = o0 * params.o0 + o1 * params.o1 + o2 * params.o2 + o3 * params.o3;
    var total = i32(-2147483647 - 1);
    for (var i = lane; i < params.width; i += 64u) {
        let r0 = i;
        let v = x[start + r0 * params.r0];
        total = combine(total, v);
    }
    parts[lane] = total;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half /= 2u) {
        if (lane < half) {
            parts[lane] = combine(parts[lane], parts[lane + half]);
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
        y[output] = parts[0];
    }
}
