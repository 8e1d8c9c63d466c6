{#-
purpose: last pass of sampling: the id that is drawn, or the one with the greatest logit
formula: the least i with sum_{j <= i} w_j > u * sum_j w_j over the ids that the filters keep; u = philox4x32-10 of (position, seed)
  (Salmon et al., SC 2011); without a draw the least i of the greatest s_i; -1 if a logit is NaN or +infinity, or all are -infinity
bindings:
  0 settings  array<u32>        [16]           read
  1 parts     array<vec2<u32>>  [parts]        read         of sample_scan
  2 seen      array<u32>        [width / 32]   read_write   gets the bit of the id, if there is a penalty
  3 ids       array<i32>        [1]            read_write
  4 logits    array<u32>        [rows, width]  read         (f32 bits); from here on only with draws=True. With few=True `scores`,
                                                            the weights of sample_bins
  5 state     array<vec4<u32>>  [6]            read         of sample_bins
  6 sums      array<vec4<u32>>  [parts]        read         of sample_sums
params:
  rows      u32  rows of logits; the last is sampled
  width     u32  elements of a row
  span      u32  ids of a part
  parts     u32  entries of `parts`, at most `threads`
  position  u32  place of the id in the context
axes:
  draws: bool
  few: bool
  threads: 16, 256
requires: none
launch: one workgroup: first over the parts, then over the ids of the part in which the draw falls
accuracy: f32 sums in an order that is always the same
-#}
{% import "macros/sampling.wgsl" as sampling %}
{% import "macros/draw.wgsl" as drawing %}
@group(0) @binding(0) var<storage, read> settings: array<u32>;
@group(0) @binding(1) var<storage, read> parts: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> seen: array<u32>;
@group(0) @binding(3) var<storage, read_write> ids: array<i32>;
{% if draws %}
@group(0) @binding(4) var<storage, read> {{ "scores" if few else "logits" }}: array<u32>;
@group(0) @binding(5) var<storage, read> state: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read> sums: array<vec4<u32>>;
{% endif %}
struct Params {
    rows: u32,
    width: u32,
    span: u32,
    parts: u32,
    position: u32,
}
@group(0) @binding({{ 7 if draws else 4 }}) var<uniform> params: Params;

var<workgroup> best: array<vec2<u32>, {{ threads }}>;

{{ sampling.flags() }}
{{ sampling.better() }}
{% if draws %}
{% if not few %}
{{ sampling.sort_key() }}
{{ sampling.known() }}
{{ sampling.score() }}
{{ sampling.weight(False) }}
{% endif %}
{{ sampling.sums("f32", threads) }}
{{ sampling.sums("u32", threads) }}
{{ sampling.first() }}
{{ drawing.philox() }}
{{ drawing.draw(few, threads) }}
{% endif %}

@compute @workgroup_size({{ threads }})
fn main(@builtin(local_invocation_index) thread: u32) {
    var own = vec2<u32>(0u, 0xFFFFFFFFu);
    if (thread < params.parts) {
        own = parts[thread];
    }
    best[thread] = own;
    workgroupBarrier();
    for (var half = {{ threads // 2 }}u; half > 0u; half /= 2u) {
        if (thread < half) {
            best[thread] = better(best[thread], best[thread + half]);
        }
        workgroupBarrier();
    }
    let top = best[0];
    var id = top.y;
{% if draws %}
    if ((settings[0] & DRAW) != 0u) {
        id = draw(thread, top.x);
    }
{% endif %}
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
