{#-
Tiles in workgroup memory and the products of two of them, for linear_gemm.

A tile is row-major: TILE rows of DEPTH values along K, in chunks of 16 bytes (8 halves or 4 floats). Chunk c of row i lies
at place c ^ f(i) of its row, so that the eight rows that neighbours read, or write, at once lie in different banks.
Uses the axes: multiply, sums, tile, depth, share_rows, share_cols.
-#}
{% set half = multiply == "f16" %}
{% set values = 8 if half else 4 %}
{% set row_chunks = depth // values %}
{% set across = tile // share_cols %}
{% set down = tile // share_rows %}
{% set threads = across * down %}
{# Consecutive weights of one row that a thread brings: all threads share the tile, but none takes less than a word. #}
{% set run = [tile * depth // threads, 8] | max %}
{% set outputs = share_rows * share_cols %}

{% macro declare(names) %}
alias Chunk = vec4<{{ "u32" if half else "f32" }}>;  // {{ values }} values of a row
alias Sum = {{ "vec2<f16>" if sums == "f16" else "f32" }};{{ "  // of even and of odd k" if sums == "f16" }}
const TILE = {{ tile }}u;
const DEPTH = {{ depth }}u;
const THREADS = {{ threads }}u;
const ROW_CHUNKS = {{ row_chunks }}u;
{% for name in names %}
var<workgroup> {{ name }}_tile: array<Chunk, {{ tile * row_chunks }}>;
{% endfor %}

fn at(row: u32, c: u32) -> u32 {
    return row * ROW_CHUNKS + (c ^ (row % 8u * ROW_CHUNKS / 8u));
}
{% endmacro %}

{# chunk(..), part(..): values as a tile holds them; f16 rounds them, past 65504 to infinity. #}
{% macro pack() %}
{% if half %}
fn chunk(first: vec4<f32>, second: vec4<f32>) -> Chunk {
    return Chunk(bitcast<vec2<u32>>(vec4<f16>(first)), bitcast<vec2<u32>>(vec4<f16>(second)));
}

fn part(first: f32, second: f32) -> u32 {
    return bitcast<u32>(vec2<f16>(vec2<f32>(first, second)));
}
{% endif %}
{% endmacro %}

{# madd(sum, a, b): sum plus the products of four values (of a chunk with f16 sums) of two rows. #}
{% macro multiply_add() %}
{% if sums == "f16" %}
fn madd(sum: Sum, a: Chunk, b: Chunk) -> Sum {
    let low = fma(pair(a.y), pair(b.y), fma(pair(a.x), pair(b.x), sum));
    return fma(pair(a.w), pair(b.w), fma(pair(a.z), pair(b.z), low));
}

fn pair(word: u32) -> vec2<f16> {
    return bitcast<vec2<f16>>(word);
}

fn total(sum: Sum) -> f32 {
    return f32(sum.x) + f32(sum.y);
}
{% else %}
fn madd(sum: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}
{% if half %}

fn four(halves: vec2<u32>) -> vec4<f32> {
    return vec4<f32>(bitcast<vec4<f16>>(halves));
}
{% endif %}
{% endif %}
{% endmacro %}

{# What is multiplied at once: a chunk, or its two halves in turn, as f32. #}
{% set parts = ["xy", "zw"] if half and sums == "f32" else [""] %}
