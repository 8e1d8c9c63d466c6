{#-
purpose: one digit of the threshold of top-k (kind=count) or top-p (kind=mass), by a histogram over all ids: radix selection
formula: count: bins[digit of sort_key(s_i)] += 1 over the ids whose higher digits are those found so far. mass: the same over the 30
  bits of w_i = exp((s_i - max) / T), i among the k largest; beside the count also the sum of the bits below the digit, so that
  the mass of a bin is exact
bindings:
  0 logits    array<u32>         [rows, width]  read         (f32 bits); with few=True `scores`: keys of sample_scan, from the first
                                                             pass of the masses on weights, which that pass writes there
  1 settings  array<u32>         [16]           read
  2 seen      array<u32>         [width / 32]   read         only with few=False
  3 parts     array<vec2<u32>>   [parts]        read         of sample_scan
  4 bins      array<atomic<u32>> [11264]        read_write   the histograms of all passes
  5 state     array<vec4<u32>>   [6]            read_write   one a pass: digits so far, need as f32 bits, least key of top-k, 0
params:
  rows   u32  rows of logits; the last is sampled
  width  u32  elements of a row
  span   u32  ids of a workgroup
  parts  u32  entries of `parts`
axes:
  kind: count, mass
  level: 0, 1, 2
  few: bool
  threads: 4, 256
requires: none
launch: one workgroup a part. Each finds the digit of the pass before from its histogram (all find the same), then counts its ids; a
  pass that the settings do not ask for ends at once
accuracy: counts and masses are sums of integers, the same in any order; they are compared in f32
-#}
{% import "macros/sampling.wgsl" as sampling %}
{% import "macros/radix.wgsl" as radix %}
{% import "macros/fours.wgsl" as fours %}
{% set number = level + (0 if kind == "count" else 3) %}
{% set size, shift, words = radix.SIZES[number], radix.SHIFTS[number], radix.WORDS[number] %}
{% set at = 2 if few else 3 %}
{% set weighs = number == 3 or (kind == "mass" and not few) %}
{% set above = 31 if level == 0 else radix.SHIFTS[number - 1] %}
{{ sampling.row(few, "read_write" if number == 3 else "read") }}
@group(0) @binding({{ at }}) var<storage, read> parts: array<vec2<u32>>;
@group(0) @binding({{ at + 1 }}) var<storage, read_write> bins: array<atomic<u32>>;
@group(0) @binding({{ at + 2 }}) var<storage, read_write> state: array<vec4<u32>>;
struct Params {
    rows: u32,
    width: u32,
    span: u32,
    parts: u32,
}
@group(0) @binding({{ at + 3 }}) var<uniform> params: Params;

var<workgroup> counts: array<atomic<u32>, {{ size * words }}>;

{{ sampling.flags() }}
{% if few %}
{{ fours.load() }}
{% if number == 3 %}
{{ fours.bits_of() }}
{{ fours.store() }}
{% endif %}
{% else %}
{{ sampling.sort_key() }}
{{ sampling.known() }}
{{ sampling.score() }}
{% endif %}
{% if weighs %}
{{ sampling.weight(few) }}
{{ sampling.best_score(threads) }}
{% endif %}
{% if number > 0 %}
{{ sampling.sums("f32", threads) }}
{{ sampling.first() }}
{{ radix.amount(number - 1, "atomicLoad(&bins[%])") }}
{{ radix.pick(threads) }}
{% endif %}

fn add(value: u32) {
    let bin = (value >> {{ shift }}u) & {{ size - 1 }}u;
    atomicAdd(&counts[bin], 1u);
{% if words == 3 %}
    atomicAdd(&counts[{{ size }}u + bin], (value >> 10u) & 1023u);
{% endif %}
{% if words > 1 %}
    atomicAdd(&counts[{{ size * (words - 1) }}u + bin], value & 1023u);
{% endif %}
}

@compute @workgroup_size({{ threads }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
{% if kind == "count" %}
    if ((settings[0] & TOP_K) == 0u) {
        return;
    }
{% elif level > 0 %}
    if ((settings[0] & TOP_P) == 0u) {
        return;
    }
{% endif %}
    var found = vec4<u32>(0u);
{% if number == 1 %}
    pick(thread, {{ radix.SIZES[0] }}u, 0u, f32(settings[2]), 0.0);
{% elif number == 3 %}
    if ((settings[0] & TOP_K) != 0u) {
        let last = state[2];
        pick(thread, {{ radix.SIZES[2] }}u, last.x, bitcast<f32>(last.y), 0.0);
        found.z = last.x | picked.bin;
    }
{% elif number == 4 %}
    found.z = state[3].z;
    pick(thread, {{ radix.SIZES[3] }}u, 0u, 0.0, bitcast<f32>(settings[3]));
{% elif number > 0 %}
    found = state[{{ number - 1 }}];
    pick(thread, {{ radix.SIZES[number - 1] }}u, found.x, bitcast<f32>(found.y), 0.0);
{% endif %}
{% if number not in (0, 3) %}
    found.x |= picked.bin << {{ radix.SHIFTS[number - 1] }}u;
    found.y = bitcast<u32>(picked.need);
{% endif %}
{% if number > 0 %}
    if (group.x == 0u && thread == 0u) {
        state[{{ number }}] = found;
    }
{% endif %}
{% if number == 3 %}
    if ((settings[0] & {{ "DRAW" if few else "TOP_P" }}) == 0u) {
        return;
    }
{% endif %}
{% if number == 3 and few %}
    let counts_mass = (settings[0] & TOP_P) != 0u;
{% endif %}
{% if weighs %}
    let best = best_score(thread);
{% endif %}
{% if few %}
{% call fours.over(threads) %}
{{ fours.tally(number, above) -}}
{% endcall %}
{% else %}
    let end = min((group.x + 1u) * params.span, known());
    for (var i = group.x * params.span + thread; i < end; i += {{ threads }}u) {
        let bits = score(i);
{% if kind == "count" %}
        let value = sort_key(bits);
{% else %}
        if (sort_key(bits) < found.z) {
            continue;
        }
        let value = bitcast<u32>(weight(bits, best));
{% endif %}
{% if level > 0 %}
        if ((value >> {{ above }}u) != (found.x >> {{ above }}u)) {
            continue;
        }
{% endif %}
        add(value);
    }
{% endif %}
{% if number == 3 and few %}
    if (!counts_mass) {
        return;
    }
{% endif %}
    workgroupBarrier();
    for (var i = thread; i < {{ size * words }}u; i += {{ threads }}u) {
        let sum = atomicLoad(&counts[i]);
        if (sum > 0u) {
            atomicAdd(&bins[{{ radix.STARTS[number] }}u + i], sum);
        }
    }
}
