{#-
purpose: the mass of the ids that all filters keep, for each part of the row
formula: with w_i = exp((s_i - max) / T), the edge e of top-p and min-p, over the k largest ids of part p:
  sums[p] = (sum of w_i > e, count of w_i = e)
bindings:
  0 logits    array<u32>        [rows, width]  read         (f32 bits)
  1 settings  array<u32>        [16]           read
  2 seen      array<u32>        [width / 32]   read
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
  threads: 64, 256
requires: none
launch: one workgroup a part; ends at once where the settings ask for the greatest logit
accuracy: f32 sums in an order that is always the same
-#}
{% import "macros/sampling.wgsl" as sampling %}
@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<u32>;
@group(0) @binding(2) var<storage, read> seen: array<u32>;
@group(0) @binding(3) var<storage, read> parts: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> bins: array<u32>;
@group(0) @binding(5) var<storage, read> state: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> sums: array<vec4<u32>>;
struct Params {
    rows: u32,
    width: u32,
    span: u32,
    parts: u32,
}
@group(0) @binding(7) var<uniform> params: Params;

{{ sampling.flags() }}
{{ sampling.sort_key() }}
{{ sampling.score() }}
{{ sampling.weight() }}
{{ sampling.best_score(threads) }}
{{ sampling.sums("f32", threads) }}
{{ sampling.sums("u32", threads) }}
{{ sampling.first() }}
{{ sampling.amount(5, "bins[%]") }}
{{ sampling.pick(threads) }}

@compute @workgroup_size({{ threads }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    if ((settings[0] & DRAW) == 0u) {
        return;
    }
    let best = best_score(thread);
    let least_key = state[3].z;
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
    let all_mass = sum_up_f32(thread, mass);
    let all_count = sum_up_u32(thread, count);
    if (thread == {{ threads - 1 }}u) {
        sums[group.x] = vec4<u32>(bitcast<u32>(all_mass), all_count, edge, equals);
    }
}
