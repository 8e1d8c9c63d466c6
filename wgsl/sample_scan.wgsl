{#-
purpose: first pass of sampling: the greatest logit of each part of the last row, after the repetition penalty
formula: parts[p] = (sort_key(max s), least id of that s) over the ids of part p; s_i = x_i / r if x_i > 0 else x_i * r for an id
  that was seen, else x_i
bindings:
  0 logits    array<u32>        [rows, width]  read         (f32 bits)
  1 settings  array<u32>        [16]           read
  2 seen      array<u32>        [width / 32]   read         one bit an id
  3 parts     array<vec2<u32>>  [parts]        read_write
  4 bins      array<u32>        [bins]         read_write   set to 0 for `sample_bins`; only with draws=True
  5 scores    array<u32>        [parts, span]  read_write   sort_key(s_i), past the row that of -infinity; with few and draws
params:
  rows   u32  rows of logits; the last is sampled
  width  u32  elements of a row
  span   u32  ids of a part; with few=True a multiple of 4 * threads
  bins   u32  words of `bins`
axes:
  draws: bool
  few: bool
  threads: 4, 256
requires: none
launch: one workgroup a part. few=True is for adapters that run on a CPU: four ids a turn, a key is made but once
accuracy: exact, but for the division of the penalty. Floats are compared as integers that sort alike
-#}
{% import "macros/sampling.wgsl" as sampling %}
{% import "macros/fours.wgsl" as fours %}
{{ sampling.row(False, "read") }}
@group(0) @binding(3) var<storage, read_write> parts: array<vec2<u32>>;
{% if draws %}
@group(0) @binding(4) var<storage, read_write> bins: array<u32>;
{% endif %}
{% if draws and few %}
@group(0) @binding(5) var<storage, read_write> scores: array<u32>;
{% endif %}
struct Params {
    rows: u32,
    width: u32,
    span: u32,
    bins: u32,
}
@group(0) @binding({{ (6 if few else 5) if draws else 4 }}) var<uniform> params: Params;

var<workgroup> best: array<vec2<u32>, {{ threads }}>;

{{ sampling.flags() }}
{{ sampling.better() }}
{{ sampling.known() }}
{% if few %}
{{ fours.sort_keys() }}
{{ fours.store() if draws }}
{{ fours.penalised() }}
{% else %}
{{ sampling.sort_key() }}
{{ sampling.score() }}
{% endif %}

@compute @workgroup_size({{ threads }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let start = group.x * params.span;
    let end = min(start + params.span, known());
    var own = vec2<u32>(0u, 0xFFFFFFFFu);
{% if few %}
{{ fours.scan(draws, threads) }}
{% else %}
    for (var i = start + thread; i < end; i += {{ threads }}u) {
        own = better(own, vec2<u32>(sort_key(score(i)), i));
    }
{% endif %}
{% if draws %}
    for (var i = group.x * {{ threads }}u + thread; i < params.bins; i += groups.x * {{ threads }}u) {
        bins[i] = 0u;
    }
{% endif %}
    best[thread] = own;
    workgroupBarrier();
    for (var half = {{ threads // 2 }}u; half > 0u; half /= 2u) {
        if (thread < half) {
            best[thread] = better(best[thread], best[thread + half]);
        }
        workgroupBarrier();
    }
    if (thread == 0u) {
        parts[group.x] = best[0];
    }
}
