{#- Reductions over the threads of one workgroup, without subgroups: any device, any subgroup size.

    workgroup_sum(threads)   declares `fn workgroup_sum(lane: u32, value: f32) -> f32`
    workgroup_max(threads)   declares `fn workgroup_max(lane: u32, value: f32) -> f32`
    Two levels of a square: 64 = 8 x 8, 256 = 16 x 16. Every thread returns the result; the order of additions is
    fixed, so a row gives the same bits whatever else runs.
-#}
{% macro side(threads) -%}{{ {16: 4, 64: 8, 256: 16}[threads] }}{%- endmacro %}

{% macro workgroup_sum(threads) %}
var<workgroup> sum_lanes: array<f32, {{ threads }}>;

fn workgroup_sum(lane: u32, value: f32) -> f32 {
    sum_lanes[lane] = value;
    workgroupBarrier();
    var part = 0.0;
    if (lane < {{ side(threads) }}u) {
        for (var k = 0u; k < {{ side(threads) }}u; k++) {
            part += sum_lanes[lane * {{ side(threads) }}u + k];
        }
    }
    workgroupBarrier();
    if (lane < {{ side(threads) }}u) {
        sum_lanes[lane] = part;
    }
    workgroupBarrier();
    var total = 0.0;
    for (var k = 0u; k < {{ side(threads) }}u; k++) {
        total += sum_lanes[k];
    }
    workgroupBarrier();
    return total;
}
{% endmacro %}

{% macro workgroup_max(threads) %}
var<workgroup> max_lanes: array<f32, {{ threads }}>;

fn workgroup_max(lane: u32, value: f32) -> f32 {
    max_lanes[lane] = value;
    workgroupBarrier();
    var part = value;
    if (lane < {{ side(threads) }}u) {
        for (var k = 0u; k < {{ side(threads) }}u; k++) {
            part = max(part, max_lanes[lane * {{ side(threads) }}u + k]);
        }
    }
    workgroupBarrier();
    if (lane < {{ side(threads) }}u) {
        max_lanes[lane] = part;
    }
    workgroupBarrier();
    var total = max_lanes[0];
    for (var k = 1u; k < {{ side(threads) }}u; k++) {
        total = max(total, max_lanes[k]);
    }
    workgroupBarrier();
    return total;
}
{% endmacro %}
