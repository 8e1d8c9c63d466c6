{#-
Reading of stored weights. A chunk is what one load brings: a word of 8 (q4) or 4 (q8) codes, or 4 floats (f32).

Codes are taken out of a word by masks alone: `word & 0xF00` as a float is 256 times the second code, exactly, and the
factor (a power of two, so exact again) is multiplied once into x or into the scale. Shifts cost six times a mask on a
CPU adapter. A value is code * scale.x + scale.y in every scheme.

Uses the axes: scheme, group, k, scale_type.
-#}
{% set q4 = scheme in ("q4gsw", "q4gaw") %}
{% set quantised = scheme != "f32" %}
{% set chunk = 8 if q4 else 4 %}
{% set affine = scheme in ("q4gaw", "q8gaw") %}
{% set offset = scheme != "q8gsw" and quantised %}
{% set tail = k % chunk != 0 %}
{% set chunks = (k + chunk - 1) // chunk %}
{% set words = 4 * ((k + 4 * chunk - 1) // (4 * chunk)) %}
{% set group_chunks = (group + chunk - 1) // chunk if quantised else chunks %}
{% set stored_groups = (words + group_chunks - 1) // group_chunks %}
{# Chunks of a block of four that share a scale: all, two or one. #}
{% set unit = 4 if group_chunks % 4 == 0 else 2 if group_chunks % 2 == 0 else 1 %}
{# Words (f16 pairs) or floats of scales in a row. #}
{% set pairs = stored_groups if affine else (stored_groups + 1) // 2 %}
{% set scale_row = pairs if scale_type == "f16" else 2 * pairs %}

{% macro constants() %}
const K = {{ k }}u;
const CHUNKS = {{ chunks }}u;
const ROW = {{ words if quantised else k }}u;  // from a row of the weight to the next
{% if quantised %}
const SCALE_ROW = {{ scale_row }}u;
const GROUP_CHUNKS = {{ group_chunks }}u;
const GROUPS = {{ (chunks + group_chunks - 1) // group_chunks }}u;
{% endif %}
{% if q4 %}
// What a masked code has to be multiplied by: 16^-position.
const LOW_UNIT = vec4<f32>(0x1p0f, 0x1p-8f, 0x1p-16f, 0x1p-24f);
const HIGH_UNIT = vec4<f32>(0x1p-4f, 0x1p-12f, 0x1p-20f, 0x1p-28f);
{% endif %}
{% endmacro %}

{# low(word), high(word): the codes of a chunk as floats, each times a power of two. #}
{% macro decode() %}
{% if q4 %}
// Signed conversions where the sign bit is clear: unsigned ones cost three times as much on a CPU.
fn low(word: u32) -> vec4<f32> {
    return vec4<f32>(vec4<i32>(i32(word)) & vec4<i32>(0xF, 0xF00, 0xF0000, 0xF000000));
}

fn high(word: u32) -> vec4<f32> {
    let first = vec3<f32>(vec3<i32>(i32(word)) & vec3<i32>(0xF0, 0xF000, 0xF00000));
    return vec4<f32>(first, f32(word & 0xF0000000u));
}
{% elif quantised %}
// Each signed byte moved to the top of its own word: 2^24 times the code.
fn low(word: u32) -> vec4<f32> {
    let bytes = vec4<u32>(word) * vec4<u32>(0x1000000u, 0x10000u, 0x100u, 1u);
    return vec4<f32>(bitcast<vec4<i32>>(bytes & vec4<u32>(0xFF000000u)));
}
{% else %}
fn low(chunk: vec4<f32>) -> vec4<f32> {
    return chunk;
}
{% endif %}
{% endmacro %}

{# fetch(start, c): chunk c of the row of the weight that starts at row * ROW. #}
{% macro fetch() %}
{% if quantised %}
fn fetch(start: u32, c: u32) -> u32 {
    return codes[start + c];
}
{% else %}
fn fetch(start: u32, c: u32) -> vec4<f32> {
    let i = start + 4u * c;
{% if tail %}
    let last = start + K - 1u;
    return vec4<f32>(weight[i], weight[min(i + 1u, last)], weight[min(i + 2u, last)],
                   weight[min(i + 3u, last)]);
{% else %}
    return vec4<f32>(weight[i], weight[i + 1u], weight[i + 2u], weight[i + 3u]);
{% endif %}
}
{% endif %}
{% endmacro %}

{# fetch_block(row, b): chunks 4b .. 4b+3 of a row, in one 16-byte load where the codes are quantised. #}
{% macro fetch_block() %}
{% if quantised %}
alias Block = vec4<u32>;

fn fetch_block(row: u32, b: u32) -> Block {
    return codes[row * (ROW / 4u) + b];
}
{% else %}
alias Block = array<vec4<f32>, 4>;

fn fetch_chunk(row: u32, c: u32) -> vec4<f32> {
{% if k % 4 == 0 %}
    return weight[row * (K / 4u) + min(c, CHUNKS - 1u)];
{% else %}
    let first = row * K;
    let i = vec4<u32>(4u * c) + vec4<u32>(0u, 1u, 2u, 3u);
    let at = vec4<u32>(first) + min(i, vec4<u32>(K - 1u));
    return vec4<f32>(weight[at.x], weight[at.y], weight[at.z], weight[at.w]);
{% endif %}
}

fn fetch_block(row: u32, b: u32) -> Block {
    return Block(fetch_chunk(row, 4u * b), fetch_chunk(row, 4u * b + 1u),
                 fetch_chunk(row, 4u * b + 2u), fetch_chunk(row, 4u * b + 3u));
}
{% endif %}
{% endmacro %}

{# The group of chunk `c`, an expression in WGSL. #}
{% macro group_of(c) -%}
{% set whole = "(" ~ c ~ ")" if " " in c else c %}
{{- whole ~ " / GROUP_CHUNKS" if group_chunks > 1 else c }}
{%- endmacro %}

{# scale_at(start, g): (scale, offset) of group g of the row that starts at row * SCALE_ROW; an 8-bit scale also undoes the 2^24 of low(). #}
{% macro scale_at() %}
{% if quantised %}
fn scale_at(start: u32, g: u32) -> vec2<f32> {
{% if affine %}
{% if scale_type == "f16" %}
    let s = unpack2x16float(scales[start + g]);
{% else %}
    let i = start + 2u * g;
    let s = vec2<f32>(scales[i], scales[i + 1u]);
{% endif %}
    return {{ "s" if q4 else "s * vec2<f32>(0x1p-24f, 1.0)" }};
{% else %}
{% if scale_type == "f16" %}
    let pair = unpack2x16float(scales[start + (g >> 1u)]);
    let s = select(pair.x, pair.y, (g & 1u) == 1u);
{% else %}
    let s = scales[start + g];
{% endif %}
    return {{ "vec2<f32>(s, -8.0 * s)" if q4 else "vec2<f32>(s * 0x1p-24f, 0.0)" }};
{% endif %}
}
{% endif %}
{% endmacro %}

{# Where each of the weight's rows n0, n1, ... starts. #}
{% macro row_starts(count) %}
{% for j in range(count) %}
    let w_row{{ j }} = n{{ j }} * ROW;
{% if quantised %}
    let s_row{{ j }} = n{{ j }} * SCALE_ROW;
{% endif %}
{% endfor %}
{% endmacro %}

{# The loop over the chunks `c` of group `g` (over all chunks of an f32 weight). #}
{% macro each_chunk() -%}
{% if not quantised %}
for (var c = 0u; c < CHUNKS; c++) {
{%- elif chunks % group_chunks %}
for (var c = g * GROUP_CHUNKS; c < min((g + 1u) * GROUP_CHUNKS, CHUNKS); c++) {
{%- else %}
for (var c = g * GROUP_CHUNKS; c < (g + 1u) * GROUP_CHUNKS; c++) {
{%- endif %}
{%- endmacro %}
