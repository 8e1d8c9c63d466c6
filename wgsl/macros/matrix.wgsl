{#-
Tiles of f16 for subgroup matrices, and how a workgroup brings them: what a thread brings lies in lines so far apart that
together they are whole, and waits in registers until the tiles are free.
Uses the axes: tile_rows, depth, act and those of macros/quant.wgsl.
-#}
{% import "macros/quant.wgsl" as quant with context %}
{% import "macros/linear.wgsl" as linear with context %}
{% set threads = 2 * tile_rows %}
{% set halves = ["low", "high"] if quant.q4 else ["low"] %}
{% set x_loads = tile_rows * depth // 4 // threads %}
{% set x_step = tile_rows // x_loads %}
{% set w_loads = 64 * depth // quant.chunk // threads %}
{% set w_step = 64 // w_loads %}

{# Codes of 4 bits and scales of f16 are decoded in pairs: f16 arithmetic on them rounds once, as the definition does. #}
{% set by_pairs = quant.q4 and scale_type == "f16" %}

{# put_x(line, d, value), put_w(line, d, value): four values of a line; put_word: the eight of a word. #}
{% macro declare() %}
const LINE = {{ depth + 8 }}u;  // from a line of a tile to the next: neighbours start in other banks
var<workgroup> x_tile: array<f16, {{ tile_rows * (depth + 8) }}>;  // {{ tile_rows }} rows of x
var<workgroup> w_tile: array<f16, {{ 64 * (depth + 8) }}>;  // 64 rows of the weight

{% for tile in ("x", "w") %}
fn put_{{ tile }}(line: u32, d: u32, value: vec4<f16>) {
    let at = line * LINE + d;
{% for c in range(4) %}
    {{ tile }}_tile[{{ linear.plus("at", c) }}] = value[{{ c }}];
{% endfor %}
}

{% endfor %}
{% if by_pairs %}
// Two codes at once: a code c in the low bits of 0x6400 is the f16 1024 + c.
fn pair(bits: u32, scale: vec2<f16>{{ ", least: vec2<f16>" if quant.affine }}) -> vec2<f16> {
    let code = bitcast<vec2<f16>>((bits & 0x000F000Fu) | 0x64006400u);
{% if quant.affine %}
    return fma(code - vec2<f16>(1024.0h), scale, least);
{% else %}
    return (code - vec2<f16>(1032.0h)) * scale;
{% endif %}
}

fn put_word(line: u32, d: u32, word: u32, scale: vec2<f32>) {
    let s = vec2<f16>(f16(scale.x));
{% if quant.affine %}
    let least = vec2<f16>(f16(scale.y));
{% endif %}
{% for name, shift in (("low", 0), ("next", 8), ("high", 4), ("last", 12)) %}
    let {{ name }} = pair(word{{ " >> %du" % shift if shift }}, s{{ ", least" if quant.affine }});
{% endfor %}
    put_w(line, d, vec4<f16>(low.x, next.x, low.y, next.y));
    put_w(line, d + 4u, vec4<f16>(high.x, last.x, high.y, last.y));
}

{% endif %}
{% endmacro %}

{# The lines of a thread, and the registers that it fills. #}
{% macro places() -%}
let x_line = thread / {{ depth // 4 }}u;
    let x_d = 4u * (thread % {{ depth // 4 }}u);
    let w_line = thread / {{ depth // quant.chunk }}u;
    let w_d = CHUNK * (thread % {{ depth // quant.chunk }}u);
{% for r in range(x_loads) %}
    let x_row{{ r }} = min(row + {{ linear.plus("x_line", r * x_step) }}, last_row);
    var x{{ r }}: vec4<f32>;
{% endfor %}
{% for r in range(w_loads) %}
{% set line = linear.plus("w_line", r * w_step) %}
{% if act == "none" %}
    let w_row{{ r }} = min(col + {{ line }}, params.cols - 1u);
{% elif w_step > 32 %}
    let w_row{{ r }} = min(col + w_line % 32u, params.cols - 1u) + select(0u, params.cols, w_line >= 32u);
{% elif r * w_step < 32 %}
    let w_row{{ r }} = min(col + {{ line }}, params.cols - 1u);  // of gate
{% else %}
    let w_row{{ r }} = min(col + {{ linear.plus("w_line", r * w_step - 32) }}, params.cols - 1u) + params.cols;  // of up
{% endif %}
    var word{{ r }}: {{ "u32" if quant.quantised else "vec4<f32>" }};
{% if quant.quantised %}
    var scale{{ r }}: vec2<f32>;
{% endif %}
{% endfor %}
{%- endmacro %}

{# Starts to read what follows `k`; beyond K it is x = 0 times the last chunk, or (`exact`) the last tiles again, which nobody uses. #}
{% set exact = k % depth == 0 %}
{% macro bring(k) -%}
{
{% if exact %}
        let from_k = min({{ k }}, K - DEPTH);
        let c = (from_k + w_d) / CHUNK;
{% else %}
        let from_k = {{ k }};
        let c = min((from_k + w_d) / CHUNK, CHUNKS - 1u);
{% endif %}
{% for r in range(x_loads) %}
        x{{ r }} = load_x(x_row{{ r }}, from_k + x_d);
{% endfor %}
{% for r in range(w_loads) %}
        word{{ r }} = fetch(w_row{{ r }} * ROW, c);
{% if quant.quantised %}
        scale{{ r }} = scale_at(w_row{{ r }} * SCALE_ROW, {{ quant.group_of("c") }});
{% endif %}
{% endfor %}
    }
{%- endmacro %}

{# Puts the registers into the tiles, rounded to f16. #}
{% macro put() -%}
{% for r in range(x_loads) %}
{{ "        " if r }}put_x({{ linear.plus("x_line", r * x_step) }}, x_d, vec4<f16>(x{{ r }}));
{% endfor %}
{% for r in range(w_loads) %}
{% set line = linear.plus("w_line", r * w_step) %}
{% if by_pairs %}
        put_word({{ line }}, w_d, word{{ r }}, scale{{ r }});
{% else %}
{% for half in halves %}
        put_w({{ line }}, w_d{{ " + 4u" if half == "high" }}, vec4<f16>({{ half ~ "_weight(word%d, scale%d)" % (r, r) if quant.quantised else "word%d" % r }}));
{% endfor %}
{% endif %}
{% endfor %}
{%- endmacro %}
