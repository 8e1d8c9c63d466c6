struct Params {
    n: u32,
    width: u32,
    kept0: u32, 
    o0: u32, 
    gone0: u32, gone1: u32, gone2: u32, gone3: u32, gone4: u32, gone5: u32, gone6: u32, gone7: u32, 
    r0: u32, r1: u32, r2: u32, r3: u32, r4: u32, r5: u32, r6: u32, r7: u32, 
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

var<workgroup> parts: array<f32, 64>;

fn is_nan(v: f32) -> bool {
    return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u;
}

fn combine(a: f32, b: f32) -> f32 {
    return select(max(a, b), a + b, is_nan(a) || is_nan(b));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let output = group.x + group.y * groups.x;
    if (output >= params.n) {
        return;
    }
    let o0 = output;
    let start = o0 * params.o0;
    var total = f32(-3.4028234e38);
    for (var i = lane; i < params.width; i += 64u) {
        var rest_r = i;
        let r7 = rest_r % params.gone7;
        rest_r /= params.gone7;
        let r6 = rest_r % params.gone6;
        rest_r /= params.gone6;
        let r5 = rest_r % params.gone5;
        rest_r /= params.gone5;
        let r4 = rest_r % params.gone4;
        rest_r /= params.gone4;
        let r3 = rest_r % params.gone3;
        rest_r /= params.gone3;
        let r2 = rest_r % params.gone2;
        rest_r /= params.gone2;
        let r1 = rest_r % params.gone1;
        rest_r /= params.gone1;
        let r0 = rest_r;
        let v = x[start + r0 * params.r0 + r1 * params.r1 + r2 * params.r2 + r3 * params.r3 + r4 * params.r4 + r5 * params.r5 + r6 * params.r6 + r7 * params.r7];
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
