{#-
purpose: linear for one to sixteen rows of x on a GPU, weights quantised or f32; every weight is read once for all rows
formula: y[m,n] = sum_k xn[m,k] * w[n,k] + bias[n] + residual[m,n], xn = x or rms_norm(x) * norm_weight; with act: act(y[n]) * y[n + cols]
bindings:
  0 x            array<vec4<f32>> (array<f32> unless 4 divides K)  [rows, K]  read
  1 codes        array<vec4<u32>>  [N, words] (weight f32 [N, K] for scheme f32)  read
  2 scales       array<u32>, f32 with scale_type=f32  [N, groups] as in docs/FORMAT.md, not for scheme f32  read
  3 norm_weight  as x        [K]  if norm      read
  4 bias         array<f32>  [N]  if bias      read
  5 residual     array<f32>  [rows, N]  if residual  read
  6 y            array<f32>  [rows, N]  read_write
params:
  rows    i32  rows of x from the first one bound
  cols    u32  outputs of this window of the weight
  first   u32  first output of the window
  stride  u32  outputs of a whole row of y
axes:
  scheme: q4gsw, q4gaw, q8gsw, q8gaw, f32
  scale_type: f16, f32
  group: int
  k: int
  rows: 1..16
  cols: 1..16
  threads: 32, 64, 128, 256
  reduce: subgroup, workgroup
  norm: bool
  eps: float
  bias: bool
  residual: bool
  act: none, silu, gelu_tanh
requires: none (subgroups for reduce=subgroup)
launch: a workgroup computes `cols` outputs of all rows; its threads walk K in blocks of four chunks (16 bytes of codes).
  Grid x (folded over y) counts tiles of outputs. Right for every subgroup size: each subgroup leaves one partial sum.
accuracy: f32 products and sums, one partial sum a thread; 1/rms is multiplied in at the end
-#}
{% import "macros/quant.wgsl" as quant with context %}
{% import "macros/linear.wgsl" as linear with context %}
{% set gated = act != "none" %}
{% set streams = cols * (2 if gated else 1) %}
{% set sums = rows * streams + (rows if norm else 0) %}
{% set halves = ["low", "high"] if quant.q4 else ["low"] %}
{% set unit = quant.unit if quant.quantised else 4 %}
{% set x_type = "vec4<f32>" if k % 4 == 0 else "f32" %}
{% set code_type = "vec4<u32>" if quant.quantised else x_type %}
{% if reduce == "subgroup" %}
enable subgroups;
{% endif %}

{{ linear.bindings(x_type, code_type) }}
{{ quant.constants() }}
const THREADS = {{ threads }}u;
const BLOCKS = {{ (quant.chunks + 3) // 4 }}u;
const ROWS = {{ rows }}u;
const STREAMS = {{ streams }}u;  // rows of the weight that a workgroup reads
const SUMS = {{ sums }}u;
var<workgroup> partial: array<f32, {{ sums * (threads // 4 if reduce == "subgroup" else threads) }}>;

{{ quant.decode() }}
{{ quant.fetch_block() }}
{{ quant.scale_at() }}
{{ linear.load4("x", "load_x", "m * K + ") }}
{% if norm %}
{{ linear.load4("norm_weight", "load_norm", "") }}
{% endif %}
{{ linear.store() }}
@compute @workgroup_size({{ threads }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32
{%- if reduce == "subgroup" %}, @builtin(subgroup_size) width: u32{% endif %}) {
    let col = (group.x + group.y * groups.x) * {{ cols }}u;
    let last_row = u32(max(params.rows, 1) - 1);
    var sums: array<f32, SUMS>;
    var n: array<u32, STREAMS>;
    for (var j = 0u; j < STREAMS; j++) {
        n[j] = min(col + j % {{ cols }}u, params.cols - 1u){{ " + (j / " ~ cols ~ "u) * params.cols" if gated }};
    }
    for (var b = thread; b < BLOCKS; b += THREADS) {
        var w: array<Block, STREAMS>;
        for (var j = 0u; j < STREAMS; j++) {
            w[j] = fetch_block(n[j], b);
        }
{% for u in range(0, 4, unit) %}
{% if quant.quantised %}
        {
            let g = {{ quant.group_of("4u * b" ~ (" + " ~ u ~ "u" if u else "")) }};
            var scale: array<vec2<f32>, STREAMS>;
            for (var j = 0u; j < STREAMS; j++) {
                scale[j] = scale_at(n[j] * SCALE_ROW, g);
            }
{% else %}
        {
{% endif %}
            for (var m = 0u; m < ROWS; m++) {
                let row = min(m, last_row);
{% if quant.offset %}
                var sum = 0.0;
{% endif %}
{% for c in range(u, u + unit) %}
{% for half in halves %}
                var x{{ c }}_{{ half }} = load_x(row, {{ quant.chunk }}u * (4u * b + {{ c }}u){{ " + 4u" if half == "high" }});
{% if norm %}
                sums[ROWS * STREAMS + m] += dot(x{{ c }}_{{ half }}, x{{ c }}_{{ half }});
                x{{ c }}_{{ half }} *= load_norm({{ quant.chunk }}u * (4u * b + {{ c }}u){{ " + 4u" if half == "high" }});
{% endif %}
{% if quant.offset %}
                sum += dot(x{{ c }}_{{ half }}, vec4<f32>(1.0));
{% endif %}
{% if quant.q4 %}
                x{{ c }}_{{ half }} *= {{ half | upper }}_UNIT;
{% endif %}
{% endfor %}
{% endfor %}
                for (var j = 0u; j < STREAMS; j++) {
                    var part = 0.0;
{% for c in range(u, u + unit) %}
                    part += {% for half in halves %}dot({{ half }}(w[j][{{ c }}]), x{{ c }}_{{ half }}){{ " + " if not loop.last }}{% endfor %};
{% endfor %}
                    sums[m * STREAMS + j] += {{ "scale[j].x * " if quant.quantised }}part{{ " + scale[j].y * sum" if quant.offset }};
                }
            }
        }
{% endfor %}
    }
{% if reduce == "subgroup" %}
    let slot = thread / width;
    for (var i = 0u; i < SUMS; i++) {
        let sum = subgroupAdd(sums[i]);
        if (thread % width == 0u) {
            partial[slot * SUMS + i] = sum;
        }
    }
    workgroupBarrier();
    let slots = (THREADS + width - 1u) / width;
{% else %}
    for (var i = 0u; i < SUMS; i++) {
        partial[thread * SUMS + i] = sums[i];
    }
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if (thread < half) {
            for (var i = 0u; i < SUMS; i++) {
                partial[thread * SUMS + i] += partial[(thread + half) * SUMS + i];
            }
        }
        workgroupBarrier();
    }
    let slots = 1u;
{% endif %}
    for (var i = thread; i < {{ rows * cols }}u; i += THREADS) {
        let m = i / {{ cols }}u;
        let j = i % {{ cols }}u;
{% if norm %}
        let scale = inverseSqrt(total(ROWS * STREAMS + m, slots) / f32(K) + {{ eps | f32 }});
{% endif %}
{% set by = " * scale" if norm else "" %}
        let value = total(m * STREAMS + j, slots){{ by }};
{% if gated %}
        let up = total(m * STREAMS + {{ cols }}u + j, slots){{ by }};
{% endif %}
        store(m, col + j, value{{ ", up" if gated }});
    }
}

fn total(i: u32, slots: u32) -> f32 {
    var sum = 0.0;
    for (var s = 0u; s < slots; s++) {
        sum += partial[s * SUMS + i];
    }
    return sum;
}
