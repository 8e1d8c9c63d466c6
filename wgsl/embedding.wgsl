{#-
purpose: rows of an embedding table, quantised or f32, by token id
formula: y[t, e] = w[ids[t], e]
bindings:
  0 ids     array<i32>  [tokens]  read
  1 codes   array<u32>  [rows, words] (weight f32 [rows, k] for scheme f32)  read
  2 scales  array<u32|f32>  [rows, groups] by scale_type, not for scheme f32  read
  3 y       array<f32>  [tokens, k]  read_write
params:
  n      u32  chunks to write: tokens * ceil(k / chunk)
  first  i32  first row of this window of the table
  rows   i32  rows of this window
  vocab  i32  rows of the whole table
  nan    u32  the bits of a NaN (WGSL has no literal for it)
axes:
  scheme: q4gsw, q4gaw, q8gsw, q8gaw, f32
  scale_type: f16, f32
  group: int
  k: int
requires: none
launch: a thread a chunk (a word of codes or 4 floats); the grid of workgroups folds to x and y. Each window of a table writes the
  tokens whose row it holds
accuracy: exact for f32, one rounding of code * scale + offset otherwise; an id outside the table gives NaN
-#}
{% import "macros/quant.wgsl" as quant with context %}
@group(0) @binding(0) var<storage, read> ids: array<i32>;
{% if quant.quantised %}
@group(0) @binding(1) var<storage, read> codes: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<{{ "u32" if scale_type == "f16" else "f32" }}>;
{% else %}
@group(0) @binding(1) var<storage, read> weight: array<f32>;
{% endif %}
@group(0) @binding({{ 3 if quant.quantised else 2 }}) var<storage, read_write> y: array<f32>;
struct Params {
    n: u32,
    first: i32,
    rows: i32,
    vocab: i32,
    nan: u32,
}
@group(0) @binding({{ 4 if quant.quantised else 3 }}) var<uniform> params: Params;

{{ quant.constants() }}
{{ quant.decode() }}
{{ quant.fetch() }}
{{ quant.scale_at() }}
fn write(token: u32, e: u32, value: vec4<f32>) {
    for (var i = 0u; i < 4u && e + i < K; i++) {
        y[token * K + e + i] = value[i];
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let i = (group.x + group.y * groups.x) * 64u + thread;
    if (i >= params.n) {
        return;
    }
    let token = i / CHUNKS;
    let c = i % CHUNKS;
    let id = ids[token];
    let known = id >= 0 && id < params.vocab;
    if (known && (id < params.first || id - params.first >= params.rows)) {
        return;
    }
    let row = u32(select(0, id - params.first, known));
    let word = fetch(row * ROW, c);
    let nan = vec4<f32>(bitcast<f32>(params.nan));
{% if quant.quantised %}
    let scale = scale_at(row * SCALE_ROW, {{ quant.group_of("c") }});
{% endif %}
{% for half in (["low", "high"] if quant.q4 else ["low"]) %}
    let {{ half }}_value = {{ half }}(word)
{%- if quant.q4 %} * {{ half | upper }}_UNIT{% endif %}
{%- if quant.quantised %} * scale.x{% endif %}
{%- if quant.offset %} + scale.y{% endif %};
    write(token, {{ quant.chunk }}u * c{{ " + 4u" if half == "high" }}, select(nan, {{ half }}_value, known));
{% endfor %}
}
