{#-
purpose: join the splits of attention_split and attention_decode
formula: M = max_i m_i; y = sum_i exp(m_i - M) o_i / sum_i exp(m_i - M) l_i
bindings:
  0 sums   array<vec4<f32>> or array<f32>  [B * S * Hq, splits, D]  read
  1 stats  array<vec2<f32>>                [B * S * Hq, splits] (m, l)  read
  2 y      as sums                         [B, S, Hq, D] (strides in params)  read_write
params:
  rows    u32  B * S * Hq
  splits  u32  splits of this step
  Hq      u32  query heads
  S       u32  query tokens
  y_b, y_s, y_h  u32  strides of y, units of vec
axes:
  vec: 1, 4
  units: int    # D / vec
  lanes: int    # threads that share the splits of a unit
requires: none
launch: a workgroup a row of y with lanes * units threads (lanes=1: 64 threads, each a unit of y); the grid folds to x and y
accuracy: f32; a row that sees no key (l = 0) is zero
-#}
{% set T = "vec4<f32>" if vec == 4 else "f32" %}
struct Params {
    rows: u32,
    splits: u32,
    Hq: u32,
    S: u32,
    y_b: u32, y_s: u32, y_h: u32,
}

@group(0) @binding(0) var<storage, read> sums: array<{{ T }}>;
@group(0) @binding(1) var<storage, read> stats: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<{{ T }}>;
@group(0) @binding(3) var<uniform> params: Params;

const UNITS = {{ units }}u;
const LANES = {{ lanes }}u;
{% if lanes > 1 %}
var<workgroup> joined: array<{{ T }}, {{ lanes * units }}>;
var<workgroup> joined_stats: array<vec2<f32>, {{ lanes }}>;
{% endif %}

// Splits put together: (peak, weight) and the weighted sum.
struct Part {
    stats: vec2<f32>,
    sum: {{ T }},
}

fn join(a: Part, b: Part) -> Part {
    let peak = max(a.stats.x, b.stats.x);
    let shrink = exp(vec2<f32>(a.stats.x, b.stats.x) - peak);
    return Part(vec2<f32>(peak, shrink.x * a.stats.y + shrink.y * b.stats.y), shrink.x * a.sum + shrink.y * b.sum);
}

fn store(row: u32, unit: u32, part: Part) {
    let token = row / params.Hq;
    let start = token / params.S * params.y_b + token % params.S * params.y_s + row % params.Hq * params.y_h;
    y[start + unit] = select(part.sum / part.stats.y, {{ T }}(), part.stats.y == 0.0);
}

@compute @workgroup_size({{ lanes * units if lanes > 1 else 64 }})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) thread: u32) {
{% if lanes > 1 %}
    let row = min(group.x + group.y * groups.x, params.rows - 1u);
    let unit = thread % UNITS;
    let lane = thread / UNITS;
{% else %}
    let item = (group.x + group.y * groups.x) * 64u + thread;
    if (item >= params.rows * UNITS) {
        return;
    }
    let row = item / UNITS;
    let unit = item % UNITS;
    let lane = 0u;
{% endif %}
    var part = Part(vec2<f32>(-3.4028234e38, 0.0), {{ T }}());
    for (var i = lane; i < params.splits; i += LANES) {
        let at = row * params.splits + i;
        part = join(part, Part(stats[at], sums[at * UNITS + unit]));
    }
{% if lanes > 1 %}
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
{% endif %}
    store(row, unit, part);
}
