{#-
purpose: the mass of the ids that all filters keep, for each part of the row
formula: with w_i = exp((s_i - max) / T), the edge e of top-p and min-p, over the k largest ids of part p:
  sums[p] = (sum of w_i > e, count of w_i = e)
bindings:
  0 logits    array<u32>        [rows, width]  read         (f32 bits); with few=True `scores`, the weights of sample_bins
  1 settings  array<u32>        [16]           read
  2 seen      array<u32>        [width / 32]   read         only with few=False
  3 parts     array<vec2<u32>>  [parts]        read         of sample_scan
  4 bins      array<u32>        [11264]        read         of sample_bins
  5 state     array<vec4<u32>>  [6]            read         of sample_bins
  6 sums      array<vec4<u32>>  [parts]        read_write   mass as f32 bits, count, the bits of e, how many equals of e are kept
params:
  rows   u32  rows of logits; the last is sampled
  width  u32  elements of a row
  span   u32  ids of a workgroup
  parts  u32  entries of `parts`
axes:
  few: bool
  threads: 4, 256
requires: none
launch: one workgroup a part; ends at once where the settings ask for the greatest logit
accuracy: f32 sums in an order that is always the same
-#}
{% import "macros/sampling.wgsl" as sampling %}
{% import "macros/radix.wgsl" as radix %}
{% import "macros/fours.wgsl" as fours %}
{% set at = 2 if few else 3 %}
{{ sampling.row(few, "read") }}
@group(0) @binding({{ at }}) var<storage, read> parts: array<vec2<u32>>;
@group(0) @binding({{ at + 1 }}) var<storage, read> bins: array<u32>;
@group(0) @binding({{ at + 2 }}) var<storage, read> state: array<vec4<u32>>;
@group(0) @binding({{ at + 3 }}) var<storage, read_write> sums: array<vec4<u32>>;
struct Params {
    rows: u32,
    width: u32,
    span: u32,
    parts: u32,
}
@group(0) @binding({{ at + 4 }}) var<uniform> params: Params;

{{ sampling.flags() }}
{% if few %}
{{ fours.load() }}
{% else %}
{{ sampling.sort_key() }}
{{ sampling.known() }}
{{ sampling.score() }}
{{ sampling.weight(False) }}
{{ sampling.best_score(threads) }}
{% endif %}
{{ sampling.sums("f32", threads) }}
{{ sampling.sums("u32", threads) }}
{{ sampling.first() }}
{{ radix.amount(5, "bins[%]") }}
{{ radix.pick(threads) }}

@compute @workgroup_size({{ threads }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    if ((settings[0] & DRAW) == 0u) {
        return;
    }
{% if not few %}
    let best = best_score(thread);
    let least_key = state[3].z;
{% endif %}
    var edge = 0u;
    var equals = ALL;
    if ((settings[0] & TOP_P) != 0u) {
        let last = state[5];
        pick(thread, 1024u, last.x, bitcast<f32>(last.y), 0.0);
        edge = last.x | picked.bin;
        equals = max(1u, u32(ceil(picked.need / bitcast<f32>(max(edge, 1u << 23u)))));
    }
    if (settings[4] > edge) {
        edge = settings[4];
        equals = ALL;
    }
{% if few %}
    var masses = vec4<f32>(0.0);
    var counts = vec4<u32>(0u);
{% call fours.over(threads) %}
        let w = load(id);
        masses += select(vec4<f32>(0.0), bitcast<vec4<f32>>(w), w > vec4<u32>(edge));
        counts += select(vec4<u32>(0u), vec4<u32>(1u), w == vec4<u32>(edge));
{% endcall %}
    let mass = masses.x + masses.y + masses.z + masses.w;
    let count = counts.x + counts.y + counts.z + counts.w;
{% else %}
    let end = min((group.x + 1u) * params.span, known());
    var mass = 0.0;
    var count = 0u;
    for (var i = group.x * params.span + thread; i < end; i += {{ threads }}u) {
        let bits = score(i);
        if (sort_key(bits) >= least_key) {
            let w = weight(bits, best);
            mass += select(0.0, w, bitcast<u32>(w) > edge);
            count += select(0u, 1u, bitcast<u32>(w) == edge);
        }
    }
{% endif %}
    let all_mass = sum_up_f32(thread, mass);
    let all_count = sum_up_u32(thread, count);
    if (thread == {{ threads - 1 }}u) {
        sums[group.x] = vec4<u32>(bitcast<u32>(all_mass), all_count, edge, equals);
    }
}
