struct Params {
    n: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

fn from_quadrant(r: f32, quadrant: u32) -> vec2f {
    let z = r * r;
    let s = r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
    let c = 1.0 - 0.5 * z + z * z * (4.166664568e-2 + z * (-1.388731625e-3 + z * 2.443315712e-5));
    let swapped = select(vec2f(s, c), vec2f(c, s), (quadrant & 1u) == 1u);
    return vec2f(
        select(swapped.x, -swapped.x, (quadrant & 2u) == 2u),
        select(swapped.y, -swapped.y, ((quadrant + 1u) & 2u) == 2u),
    );
}

fn sine_cosine(v: f32) -> vec2f {
    let turns = round(v * 0.63661977);
    let r = ((v - turns * 1.5703125) - turns * 4.837512969970703e-4) - turns * 7.549789954891886e-8;
    return from_quadrant(r, bitcast<u32>(i32(turns)) & 3u);
}

fn is_nan(v: f32) -> bool {
    return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u;
}

fn apply(v: f32) -> f32 {
    return sine_cosine(v).y;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var i = first; i < min(first + 1024u, params.n); i += 256u) {
        let v = x[i];
        y[i] = select(apply(v), v, is_nan(v));
    }
}
