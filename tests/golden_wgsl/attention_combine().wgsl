struct Params {
    n: u32,
    splits: u32,
    D: u32,
    Hq: u32,
    S: u32,
    y_b: u32, y_s: u32, y_h: u32,
}

@group(0) @binding(0) var<storage, read> sums: array<f32>;
@group(0) @binding(1) var<storage, read> stats: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let item = (group.x + group.y * groups.x) * 64u + lane;
    if (item >= params.n) {
        return;
    }
    let d = item % params.D;
    let row = item / params.D;
    var peak = -3.4028234e38;
    for (var i = 0u; i < params.splits; i++) {
        peak = max(peak, stats[row * params.splits + i].x);
    }
    var total = 0.0;
    var o = 0.0;
    for (var i = 0u; i < params.splits; i++) {
        let at = row * params.splits + i;
        let part = stats[at];
        let shrink = exp(part.x - peak);
        total += shrink * part.y;
        o += shrink * sums[at * params.D + d];
    }
    let token = row / params.Hq;
    let start = token / params.S * params.y_b + token % params.S * params.y_s + row % params.Hq * params.y_h;
    y[start + d] = select(o / total, 0.0, total == 0.0);
}
