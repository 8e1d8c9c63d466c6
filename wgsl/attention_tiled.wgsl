{#-
purpose: attention of many tokens without S x C scores ("flash attention"), sums held in registers: for a GPU
formula: y[r] = sum_j softmax_j(q[r] . k[j] * scale) v[j], tile of keys after tile of keys, with running maximum and sum
bindings:
  0 q     array<vec4<f32>>    [B, S, Hq, D] (strides in params)  read
  1 k     array<vec4<cache>>  [B, C, Hkv, D]  read
  2 v     array<vec4<cache>>  [B, C, Hkv, D]  read
  3 mask  array<f32> or array<u32>  broadcast to [B, Hq, S, C] (absent with mask=none)  read
  4 y     array<vec4<f32>>    [B, S, Hq, D] (strides in params)  read_write
params:
  (common)  see macros/attention.wgsl; strides of q, k, y count vec4s
axes:
  head_dim: int           # a multiple of 4
  rows: 16..128           # rows of a workgroup
  keys: 16..128           # keys of a tile
  threads: 16..256
  across: 4..32           # threads side by side over the keys of a tile, later over D
  pairs: 1..8             # threads of neighbouring rows between two neighbours over the keys
  buffers: 1, 2           # with 2, K and V have a place each and one barrier goes
  cache: f32, f16
  mask: none, f32, u32
  causal: bool
  window: bool
  softcap: bool
requires: none            (shader-f16 with cache=f16)
launch: grid (Hkv, tiles of rows, B), the last rows first: with causal they take longest; a row is a token and one of the
        query heads that share a KV head, so these share the tiles of K and V; tiles that no row sees are skipped
accuracy: f32; a key that a row does not see is never multiplied
-#}
{% import "macros/attention.wgsl" as attention %}
{% import "macros/attention_tiled.wgsl" as part %}
{% set U = head_dim // 4 %}
{% set groups = rows // 4 %}
{% set own = groups * across // threads %}
{% set span = keys // across %}
{% set per = (U + across - 1) // across %}
{# Odd lines of vec4s: neighbouring lines start in different banks. #}
{% set stride = U + 1 - U % 2 %}
{% set pitch = groups + 1 - groups % 2 %}
{% set loads = (keys * U + threads - 1) // threads %}
{% set values = "values" if buffers == 2 else "tile" %}
{% set at = 4 if mask != "none" else 3 %}
{{ "enable f16;" if cache == "f16" }}

struct Params {
    {{ attention.params() }}
}

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k: array<vec4<{{ cache }}>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<{{ cache }}>>;
{% if mask != "none" %}
@group(0) @binding(3) var<storage, read> mask: array<{{ mask }}>;
{% endif %}
@group(0) @binding({{ at }}) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding({{ at + 1 }}) var<uniform> params: Params;

// Q [d][four rows]; tiles [key][four d]; weights [key][four rows]; maxima, at last sums, [column][four rows]
var<workgroup> queries: array<vec4<f32>, {{ head_dim * groups }}>;
var<workgroup> tile: array<vec4<f32>, {{ keys * stride }}>;   // {{ "K" if buffers == 2 else "K, then V" }}
{% if buffers == 2 %}
var<workgroup> values: array<vec4<f32>, {{ keys * stride }}>;
{% endif %}
var<workgroup> weights: array<vec4<f32>, {{ keys * pitch }}>;
var<workgroup> parts: array<vec4<f32>, {{ across * groups }}>;

{{ attention.visible(causal, window) }}
{{ attention.score(mask, softcap) }}
{{ attention.exponential("vec4f", "vec4u") }}

// Where a row of Q or y starts.
fn row_start(row: u32, first_head: u32, batch: u32) -> u32 {
    return batch * params.q_b + row / params.group * params.q_s + (first_head + row % params.group) * params.q_h;
}

@compute @workgroup_size({{ threads }})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) grid: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let last_row = params.S * params.group - 1u;
    let first_row = (grid.y - 1u - group.y) * {{ rows }}u;
    let first_head = group.x * params.group;
    let batch = group.z;
    let base = batch * params.k_b + group.x * params.k_h;
    let column = lane / {{ pairs }}u % {{ across }}u;
    let mine = (lane / {{ pairs * across }}u * {{ pairs }}u + lane % {{ pairs }}u){{ " * %du" % own if own > 1 }};
    let end = end_key(min(first_row + {{ rows - 1 }}u, last_row) / params.group);
    let first = first_key(first_row / params.group) / {{ keys }}u * {{ keys }}u;
{% for n in range(loads) %}
    var ahead{{ n }}: vec4<{{ cache }}>;
{% endfor %}
    {{ part.fetch("ahead", "k", "first", loads, U, threads, false) | trim }}
    {{ part.stage_queries(U, groups, threads) | trim }}
{% for b in range(own) %}
    let row{{ b }} = min(vec4u(first_row + ({{ part.plus("mine", b) }}) * 4u) + vec4u(0u, 1u, 2u, 3u), vec4u(last_row));
    let token{{ b }} = row{{ b }} / params.group;
    let head{{ b }} = first_head + row{{ b }} % params.group;
    let from{{ b }} = vec4u({% for c in range(4) %}{{ ", " if c }}first_key(token{{ b }}[{{ c }}]){% endfor %});
    let to{{ b }} = vec4u({% for c in range(4) %}{{ ", " if c }}end_key(token{{ b }}[{{ c }}]){% endfor %});
    var peak{{ b }} = vec4f(LOWEST);
    var total{{ b }} = vec4f(0.0);
{% endfor %}
{% for i in range(4 * own) %}{% for n in range(per) %}
    var o{{ i }}_{{ n }} = vec4f(0.0);
{% endfor %}{% endfor %}
{% for n in range(per) %}
{% set unit = part.plus("column", n * across) %}
    let unit{{ n }} = {{ unit if (n + 1) * across <= U else "min(%s, %du)" % (unit, U - 1) }};
{% endfor %}
    // Later rows see later keys: of this thread's, the first and the last tell what all or any see.
    let any_from = from0.x;
    let all_from = from{{ own - 1 }}.w;
    let all_to = to0.x;
    let any_to = to{{ own - 1 }}.w;

    for (var start = first; start < end; start += {{ keys }}u) {
        {{ part.put("tile", "ahead", loads, keys, U, stride, threads) | trim }}
        workgroupBarrier();
        {{ part.fetch("later", "v", "start", loads, U, threads, true) | trim }}
{% for b in range(own) %}{% for j in range(span) %}
        var s{{ j }}_{{ b }} = vec4f(0.0);
{% endfor %}{% endfor %}
        for (var u = 0u; u < {{ U }}u; u++) {
            {{ part.products(span, own, across, stride, groups) | trim }}
        }
        {{ part.finish_scores(span, own, across, groups, causal, window, mask) | trim }}
        workgroupBarrier();
        {{ part.put(values, "later", loads, keys, U, stride, threads) | trim }}
        {{ part.soften(span, own, across, groups, pitch) | trim }}
        workgroupBarrier();
        {{ part.fetch("ahead", "k", "start + %du" % keys, loads, U, threads, false) | trim }}
{% for i in range(4 * own) %}{% for n in range(per) %}
        o{{ i }}_{{ n }} *= shrink{{ i // 4 }}[{{ i % 4 }}];
{% endfor %}{% endfor %}
        let all_seen = {{ "start >= all_from && start + %du <= all_to" % keys if mask == "none" else "false" }};
        if (all_seen) {
            for (var j = 0u; j < {{ keys }}u; j += 4u) {
{% for t in range(4) %}
                {
                {{ part.value_step("(j + %du)" % t if t else "j", values, own, per, stride, pitch, false) | trim }}
                }
{% endfor %}
            }
        } else {
            let stop = min(max(any_to, start) - start, {{ keys }}u);
            for (var j = max(any_from, start) - start; j < stop; j++) {
                {{ part.value_step("j", values, own, per, stride, pitch, true) | trim }}
            }
        }
{% if buffers == 1 %}
        workgroupBarrier();
{% endif %}
    }

{% for b in range(own) %}
    parts[column * {{ groups }}u + {{ part.plus('mine', b) }}] = total{{ b }};
{% endfor %}
    workgroupBarrier();
{% for b in range(own) %}
    var sum{{ b }} = vec4f(0.0);
    for (var i = 0u; i < {{ across }}u; i++) {
        sum{{ b }} += parts[i * {{ groups }}u + {{ part.plus('mine', b) }}];
    }
{% for c in range(4) %}
    if ({{ part.plus("first_row + (%s) * 4u" % part.plus("mine", b), c) }} <= last_row) {
        let at = batch * params.y_b + token{{ b }}[{{ c }}] * params.y_s + head{{ b }}[{{ c }}] * params.y_h + column;
{% for n in range(per) %}
{% set o = "o%d_%d / sum%d[%d]" % (4 * b + c, n, b, c) %}
        if ({{ part.plus("column", n * across) }} < {{ U }}u) {
            y[{{ part.plus("at", n * across) }}] = select({{ o }}, vec4f(0.0), sum{{ b }}[{{ c }}] == 0.0);
        }
{% endfor %}
    }
{% endfor %}
{% endfor %}
}
