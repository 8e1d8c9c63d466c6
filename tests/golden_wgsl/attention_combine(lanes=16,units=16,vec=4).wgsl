struct Params {
    rows: u32,
    splits: u32,
    Hq: u32,
    S: u32,
    y_b: u32, y_s: u32, y_h: u32,
}

@group(0) @binding(0) var<storage, read> sums: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> stats: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> params: Params;

const UNITS = 16u;
const LANES = 16u;
var<workgroup> joined: array<vec4<f32>, 256>;
var<workgroup> joined_stats: array<vec2<f32>, 16>;

// Splits put together: (peak, weight) and the weighted sum.
struct Part {
    stats: vec2<f32>,
    sum: vec4<f32>,
}

fn join(a: Part, b: Part) -> Part {
    let peak = max(a.stats.x, b.stats.x);
    let shrink = exp(vec2<f32>(a.stats.x, b.stats.x) - peak);
    return Part(vec2<f32>(peak, shrink.x * a.stats.y + shrink.y * b.stats.y), shrink.x * a.sum + shrink.y * b.sum);
}

fn store(row: u32, unit: u32, part: Part) {
    let token = row / params.Hq;
    let start = token / params.S * params.y_b + token % params.S * params.y_s + row % params.Hq * params.y_h;
    y[start + unit] = select(part.sum / part.stats.y, vec4<f32>(), part.stats.y == 0.0);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) thread: u32) {
    let row = min(group.x + group.y * groups.x, params.rows - 1u);
    let unit = thread % UNITS;
    let lane = thread / UNITS;
    var part = Part(vec2<f32>(-3.4028234e38, 0.0), vec4<f32>());
    for (var i = lane; i < params.splits; i += LANES) {
        let at = row * params.splits + i;
        part = join(part, Part(stats[at], sums[at * UNITS + unit]));
    }
    joined[thread] = part.sum;
    if (unit == 0u) {
        joined_stats[lane] = part.stats;
    }
    workgroupBarrier();
    if (lane > 0u) {
        return;
    }
    for (var i = 1u; i < min(LANES, params.splits); i++) {
        part = join(part, Part(joined_stats[i], joined[i * UNITS + unit]));
    }
    store(row, unit, part);
}
