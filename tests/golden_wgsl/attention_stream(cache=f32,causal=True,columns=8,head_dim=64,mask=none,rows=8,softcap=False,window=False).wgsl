struct Params {
    S: u32,          // query tokens
    keys: u32,       // keys that hold values
    position: u32,   // the key that belongs to token 0
    window: u32,     // keys that a token sees, itself included
    group: u32,      // query heads that share a KV head
    scale: f32,
    cap: f32,
    q_b: u32, q_s: u32, q_h: u32,
    k_b: u32, k_c: u32, k_h: u32,
    y_b: u32, y_s: u32, y_h: u32,
    m_b: u32, m_h: u32, m_s: u32, m_k: u32,
}

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

// 33 words a line: neighbouring lines start in different banks.
var<workgroup> left: array<f32, 1056>;      // Q, [d][row]
var<workgroup> right: array<f32, 1056>;     // K, [d][key], then V, [key][d]
var<workgroup> weights: array<f32, 1056>;   // [key][row]
var<workgroup> row_q: array<u32, 32>;       // where a row of Q starts
var<workgroup> peaks: array<f32, 32>;
var<workgroup> totals: array<f32, 32>;
var<workgroup> shrink: array<f32, 32>;

const LOWEST = -3.4028234e38;

fn end_key(token: u32) -> u32 {
    return min(params.keys, params.position + token + 1u);
}

fn first_key(token: u32) -> u32 {
    return 0u;
}

fn score(product: f32, batch: u32, head: u32, token: u32, key: u32) -> f32 {
    var result = product * params.scale;
    return result;
}

fn exponential(v: f32) -> f32 {
    let nan = (bitcast<u32>(v) & u32(0x7fffffffu)) > u32(0x7f800000u);
    return select(exp(v), v, nan);
}

// Scores of one row against the tile's keys become weights; -1 marks a key that the row does not see.
fn soften(row: u32, batch: u32, head: u32, token: u32, start: u32, keys: u32) {
    let first = first_key(token);
    let end = end_key(token);
    let before = peaks[row];
    var peak = before;
    for (var j = 0u; j < keys; j++) {
        var s = LOWEST;
        if (start + j >= first && start + j < end) {
            s = score(weights[j * 33u + row], batch, head, token, start + j);
        }
        weights[j * 33u + row] = s;
        peak = max(peak, s);
    }
    let factor = exp(before - peak);
    var total = totals[row] * factor;
    for (var j = 0u; j < keys; j++) {
        let s = weights[j * 33u + row];
        var w = -1.0;
        if (!(s == LOWEST)) {
            w = exponential(s - peak);
            total += w;
        }
        weights[j * 33u + row] = w;
    }
    peaks[row] = peak;
    totals[row] = total;
    shrink[row] = factor;
}

@compute @workgroup_size(16)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let first_row = group.x * 32u;
    let rows = params.S * params.group;
    let first_head = group.y * params.group;
    let batch = group.z;
    let base = batch * params.k_b + group.y * params.k_h;
    let first_token = first_row / params.group;
    let last_token = (min(first_row + 32u, rows) - 1u) / params.group;
    let column = lane % 4u;
    let line = lane / 4u * 8u;
    for (var i = lane; i < 32u; i += 16u) {
        let row = min(first_row + i, rows - 1u);
        row_q[i] = batch * params.q_b + row / params.group * params.q_s
            + (first_head + row % params.group) * params.q_h;
        peaks[i] = LOWEST;
        totals[i] = 0.0;
    }
    var o0_0 = vec4f(0.0);
    var o0_1 = vec4f(0.0);
    var o0_2 = vec4f(0.0);
    var o0_3 = vec4f(0.0);
    var o1_0 = vec4f(0.0);
    var o1_1 = vec4f(0.0);
    var o1_2 = vec4f(0.0);
    var o1_3 = vec4f(0.0);
    var o2_0 = vec4f(0.0);
    var o2_1 = vec4f(0.0);
    var o2_2 = vec4f(0.0);
    var o2_3 = vec4f(0.0);
    var o3_0 = vec4f(0.0);
    var o3_1 = vec4f(0.0);
    var o3_2 = vec4f(0.0);
    var o3_3 = vec4f(0.0);
    var o4_0 = vec4f(0.0);
    var o4_1 = vec4f(0.0);
    var o4_2 = vec4f(0.0);
    var o4_3 = vec4f(0.0);
    var o5_0 = vec4f(0.0);
    var o5_1 = vec4f(0.0);
    var o5_2 = vec4f(0.0);
    var o5_3 = vec4f(0.0);
    var o6_0 = vec4f(0.0);
    var o6_1 = vec4f(0.0);
    var o6_2 = vec4f(0.0);
    var o6_3 = vec4f(0.0);
    var o7_0 = vec4f(0.0);
    var o7_1 = vec4f(0.0);
    var o7_2 = vec4f(0.0);
    var o7_3 = vec4f(0.0);
    workgroupBarrier();

    let end = end_key(last_token);
    for (var start = first_key(first_token) / 32u * 32u; start < end; start += 32u) {
        let keys = min(end - start, 32u);
        var product0_0 = vec4f(0.0);
        var product0_1 = vec4f(0.0);
        var product1_0 = vec4f(0.0);
        var product1_1 = vec4f(0.0);
        var product2_0 = vec4f(0.0);
        var product2_1 = vec4f(0.0);
        var product3_0 = vec4f(0.0);
        var product3_1 = vec4f(0.0);
        var product4_0 = vec4f(0.0);
        var product4_1 = vec4f(0.0);
        var product5_0 = vec4f(0.0);
        var product5_1 = vec4f(0.0);
        var product6_0 = vec4f(0.0);
        var product6_1 = vec4f(0.0);
        var product7_0 = vec4f(0.0);
        var product7_1 = vec4f(0.0);
        for (var d0 = 0u; d0 < 64u; d0 += 32u) {
            for (var i = lane; i < 1024u; i += 16u) {
                let d = d0 + i % 32u;
                let to = i % 32u * 33u + i / 32u;
                let row_k = base + (start + min(i / 32u, keys - 1u)) * params.k_c;
                left[to] = q[row_q[i / 32u] + d];
                right[to] = f32(k[row_k + d]);
            }
            workgroupBarrier();
            for (var d = 0u; d < 32u; d++) {
                let r0 = vec4f(right[d * 33u + column + 0u], right[d * 33u + column + 4u], right[d * 33u + column + 8u], right[d * 33u + column + 12u]);
                let r1 = vec4f(right[d * 33u + column + 16u], right[d * 33u + column + 20u], right[d * 33u + column + 24u], right[d * 33u + column + 28u]);
                let l0 = left[d * 33u + line + 0u];
                product0_0 += l0 * r0;
                product0_1 += l0 * r1;
                let l1 = left[d * 33u + line + 1u];
                product1_0 += l1 * r0;
                product1_1 += l1 * r1;
                let l2 = left[d * 33u + line + 2u];
                product2_0 += l2 * r0;
                product2_1 += l2 * r1;
                let l3 = left[d * 33u + line + 3u];
                product3_0 += l3 * r0;
                product3_1 += l3 * r1;
                let l4 = left[d * 33u + line + 4u];
                product4_0 += l4 * r0;
                product4_1 += l4 * r1;
                let l5 = left[d * 33u + line + 5u];
                product5_0 += l5 * r0;
                product5_1 += l5 * r1;
                let l6 = left[d * 33u + line + 6u];
                product6_0 += l6 * r0;
                product6_1 += l6 * r1;
                let l7 = left[d * 33u + line + 7u];
                product7_0 += l7 * r0;
                product7_1 += l7 * r1;
            }
            workgroupBarrier();
        }
        weights[(column + 0u) * 33u + line + 0u] = product0_0[0];
        weights[(column + 4u) * 33u + line + 0u] = product0_0[1];
        weights[(column + 8u) * 33u + line + 0u] = product0_0[2];
        weights[(column + 12u) * 33u + line + 0u] = product0_0[3];
        weights[(column + 16u) * 33u + line + 0u] = product0_1[0];
        weights[(column + 20u) * 33u + line + 0u] = product0_1[1];
        weights[(column + 24u) * 33u + line + 0u] = product0_1[2];
        weights[(column + 28u) * 33u + line + 0u] = product0_1[3];
        weights[(column + 0u) * 33u + line + 1u] = product1_0[0];
        weights[(column + 4u) * 33u + line + 1u] = product1_0[1];
        weights[(column + 8u) * 33u + line + 1u] = product1_0[2];
        weights[(column + 12u) * 33u + line + 1u] = product1_0[3];
        weights[(column + 16u) * 33u + line + 1u] = product1_1[0];
        weights[(column + 20u) * 33u + line + 1u] = product1_1[1];
        weights[(column + 24u) * 33u + line + 1u] = product1_1[2];
        weights[(column + 28u) * 33u + line + 1u] = product1_1[3];
        weights[(column + 0u) * 33u + line + 2u] = product2_0[0];
        weights[(column + 4u) * 33u + line + 2u] = product2_0[1];
        weights[(column + 8u) * 33u + line + 2u] = product2_0[2];
        weights[(column + 12u) * 33u + line + 2u] = product2_0[3];
        weights[(column + 16u) * 33u + line + 2u] = product2_1[0];
        weights[(column + 20u) * 33u + line + 2u] = product2_1[1];
        weights[(column + 24u) * 33u + line + 2u] = product2_1[2];
        weights[(column + 28u) * 33u + line + 2u] = product2_1[3];
        weights[(column + 0u) * 33u + line + 3u] = product3_0[0];
        weights[(column + 4u) * 33u + line + 3u] = product3_0[1];
        weights[(column + 8u) * 33u + line + 3u] = product3_0[2];
        weights[(column + 12u) * 33u + line + 3u] = product3_0[3];
        weights[(column + 16u) * 33u + line + 3u] = product3_1[0];
        weights[(column + 20u) * 33u + line + 3u] = product3_1[1];
        weights[(column + 24u) * 33u + line + 3u] = product3_1[2];
        weights[(column + 28u) * 33u + line + 3u] = product3_1[3];
        weights[(column + 0u) * 33u + line + 4u] = product4_0[0];
        weights[(column + 4u) * 33u + line + 4u] = product4_0[1];
        weights[(column + 8u) * 33u + line + 4u] = product4_0[2];
        weights[(column + 12u) * 33u + line + 4u] = product4_0[3];
        weights[(column + 16u) * 33u + line + 4u] = product4_1[0];
        weights[(column + 20u) * 33u + line + 4u] = product4_1[1];
        weights[(column + 24u) * 33u + line + 4u] = product4_1[2];
        weights[(column + 28u) * 33u + line + 4u] = product4_1[3];
        weights[(column + 0u) * 33u + line + 5u] = product5_0[0];
        weights[(column + 4u) * 33u + line + 5u] = product5_0[1];
        weights[(column + 8u) * 33u + line + 5u] = product5_0[2];
        weights[(column + 12u) * 33u + line + 5u] = product5_0[3];
        weights[(column + 16u) * 33u + line + 5u] = product5_1[0];
        weights[(column + 20u) * 33u + line + 5u] = product5_1[1];
        weights[(column + 24u) * 33u + line + 5u] = product5_1[2];
        weights[(column + 28u) * 33u + line + 5u] = product5_1[3];
        weights[(column + 0u) * 33u + line + 6u] = product6_0[0];
        weights[(column + 4u) * 33u + line + 6u] = product6_0[1];
        weights[(column + 8u) * 33u + line + 6u] = product6_0[2];
        weights[(column + 12u) * 33u + line + 6u] = product6_0[3];
        weights[(column + 16u) * 33u + line + 6u] = product6_1[0];
        weights[(column + 20u) * 33u + line + 6u] = product6_1[1];
        weights[(column + 24u) * 33u + line + 6u] = product6_1[2];
        weights[(column + 28u) * 33u + line + 6u] = product6_1[3];
        weights[(column + 0u) * 33u + line + 7u] = product7_0[0];
        weights[(column + 4u) * 33u + line + 7u] = product7_0[1];
        weights[(column + 8u) * 33u + line + 7u] = product7_0[2];
        weights[(column + 12u) * 33u + line + 7u] = product7_0[3];
        weights[(column + 16u) * 33u + line + 7u] = product7_1[0];
        weights[(column + 20u) * 33u + line + 7u] = product7_1[1];
        weights[(column + 24u) * 33u + line + 7u] = product7_1[2];
        weights[(column + 28u) * 33u + line + 7u] = product7_1[3];
        workgroupBarrier();
        for (var i = lane; i < 32u; i += 16u) {
            let row = min(first_row + i, rows - 1u);
            soften(i, batch, first_head + row % params.group, row / params.group, start, keys);
        }
        workgroupBarrier();
        let all_visible = start >= first_key(last_token) && start + keys <= end_key(first_token);
        for (var i = lane; i < keys * 32u; i += 16u) {
            let d = 0u + i % 32u;
            right[i / 32u * 33u + i % 32u] = f32(v[base + (start + i / 32u) * params.k_c + d]);
        }
        workgroupBarrier();
        o0_0 *= shrink[line + 0u];
        o0_1 *= shrink[line + 0u];
        o1_0 *= shrink[line + 1u];
        o1_1 *= shrink[line + 1u];
        o2_0 *= shrink[line + 2u];
        o2_1 *= shrink[line + 2u];
        o3_0 *= shrink[line + 3u];
        o3_1 *= shrink[line + 3u];
        o4_0 *= shrink[line + 4u];
        o4_1 *= shrink[line + 4u];
        o5_0 *= shrink[line + 5u];
        o5_1 *= shrink[line + 5u];
        o6_0 *= shrink[line + 6u];
        o6_1 *= shrink[line + 6u];
        o7_0 *= shrink[line + 7u];
        o7_1 *= shrink[line + 7u];
        if (all_visible) {
            for (var j = 0u; j < keys; j++) {
                let v0 = vec4f(right[j * 33u + column + 0u], right[j * 33u + column + 4u], right[j * 33u + column + 8u], right[j * 33u + column + 12u]);
                let v1 = vec4f(right[j * 33u + column + 16u], right[j * 33u + column + 20u], right[j * 33u + column + 24u], right[j * 33u + column + 28u]);
                let w0 = weights[j * 33u + line + 0u];
                o0_0 += w0 * v0;
                o0_1 += w0 * v1;
                let w1 = weights[j * 33u + line + 1u];
                o1_0 += w1 * v0;
                o1_1 += w1 * v1;
                let w2 = weights[j * 33u + line + 2u];
                o2_0 += w2 * v0;
                o2_1 += w2 * v1;
                let w3 = weights[j * 33u + line + 3u];
                o3_0 += w3 * v0;
                o3_1 += w3 * v1;
                let w4 = weights[j * 33u + line + 4u];
                o4_0 += w4 * v0;
                o4_1 += w4 * v1;
                let w5 = weights[j * 33u + line + 5u];
                o5_0 += w5 * v0;
                o5_1 += w5 * v1;
                let w6 = weights[j * 33u + line + 6u];
                o6_0 += w6 * v0;
                o6_1 += w6 * v1;
                let w7 = weights[j * 33u + line + 7u];
                o7_0 += w7 * v0;
                o7_1 += w7 * v1;
            }
        } else {
            for (var j = 0u; j < keys; j++) {
                let v0 = vec4f(right[j * 33u + column + 0u], right[j * 33u + column + 4u], right[j * 33u + column + 8u], right[j * 33u + column + 12u]);
                let v1 = vec4f(right[j * 33u + column + 16u], right[j * 33u + column + 20u], right[j * 33u + column + 24u], right[j * 33u + column + 28u]);
                let w0 = weights[j * 33u + line + 0u];
                if (!(w0 == -1.0)) {
                    o0_0 += w0 * v0;
                    o0_1 += w0 * v1;
                }
                let w1 = weights[j * 33u + line + 1u];
                if (!(w1 == -1.0)) {
                    o1_0 += w1 * v0;
                    o1_1 += w1 * v1;
                }
                let w2 = weights[j * 33u + line + 2u];
                if (!(w2 == -1.0)) {
                    o2_0 += w2 * v0;
                    o2_1 += w2 * v1;
                }
                let w3 = weights[j * 33u + line + 3u];
                if (!(w3 == -1.0)) {
                    o3_0 += w3 * v0;
                    o3_1 += w3 * v1;
                }
                let w4 = weights[j * 33u + line + 4u];
                if (!(w4 == -1.0)) {
                    o4_0 += w4 * v0;
                    o4_1 += w4 * v1;
                }
                let w5 = weights[j * 33u + line + 5u];
                if (!(w5 == -1.0)) {
                    o5_0 += w5 * v0;
                    o5_1 += w5 * v1;
                }
                let w6 = weights[j * 33u + line + 6u];
                if (!(w6 == -1.0)) {
                    o6_0 += w6 * v0;
                    o6_1 += w6 * v1;
                }
                let w7 = weights[j * 33u + line + 7u];
                if (!(w7 == -1.0)) {
                    o7_0 += w7 * v0;
                    o7_1 += w7 * v1;
                }
            }
        }
        workgroupBarrier();
        for (var i = lane; i < keys * 32u; i += 16u) {
            let d = 32u + i % 32u;
            right[i / 32u * 33u + i % 32u] = f32(v[base + (start + i / 32u) * params.k_c + d]);
        }
        workgroupBarrier();
        o0_2 *= shrink[line + 0u];
        o0_3 *= shrink[line + 0u];
        o1_2 *= shrink[line + 1u];
        o1_3 *= shrink[line + 1u];
        o2_2 *= shrink[line + 2u];
        o2_3 *= shrink[line + 2u];
        o3_2 *= shrink[line + 3u];
        o3_3 *= shrink[line + 3u];
        o4_2 *= shrink[line + 4u];
        o4_3 *= shrink[line + 4u];
        o5_2 *= shrink[line + 5u];
        o5_3 *= shrink[line + 5u];
        o6_2 *= shrink[line + 6u];
        o6_3 *= shrink[line + 6u];
        o7_2 *= shrink[line + 7u];
        o7_3 *= shrink[line + 7u];
        if (all_visible) {
            for (var j = 0u; j < keys; j++) {
                let v0 = vec4f(right[j * 33u + column + 0u], right[j * 33u + column + 4u], right[j * 33u + column + 8u], right[j * 33u + column + 12u]);
                let v1 = vec4f(right[j * 33u + column + 16u], right[j * 33u + column + 20u], right[j * 33u + column + 24u], right[j * 33u + column + 28u]);
                let w0 = weights[j * 33u + line + 0u];
                o0_2 += w0 * v0;
                o0_3 += w0 * v1;
                let w1 = weights[j * 33u + line + 1u];
                o1_2 += w1 * v0;
                o1_3 += w1 * v1;
                let w2 = weights[j * 33u + line + 2u];
                o2_2 += w2 * v0;
                o2_3 += w2 * v1;
                let w3 = weights[j * 33u + line + 3u];
                o3_2 += w3 * v0;
                o3_3 += w3 * v1;
                let w4 = weights[j * 33u + line + 4u];
                o4_2 += w4 * v0;
                o4_3 += w4 * v1;
                let w5 = weights[j * 33u + line + 5u];
                o5_2 += w5 * v0;
                o5_3 += w5 * v1;
                let w6 = weights[j * 33u + line + 6u];
                o6_2 += w6 * v0;
                o6_3 += w6 * v1;
                let w7 = weights[j * 33u + line + 7u];
                o7_2 += w7 * v0;
                o7_3 += w7 * v1;
            }
        } else {
            for (var j = 0u; j < keys; j++) {
                let v0 = vec4f(right[j * 33u + column + 0u], right[j * 33u + column + 4u], right[j * 33u + column + 8u], right[j * 33u + column + 12u]);
                let v1 = vec4f(right[j * 33u + column + 16u], right[j * 33u + column + 20u], right[j * 33u + column + 24u], right[j * 33u + column + 28u]);
                let w0 = weights[j * 33u + line + 0u];
                if (!(w0 == -1.0)) {
                    o0_2 += w0 * v0;
                    o0_3 += w0 * v1;
                }
                let w1 = weights[j * 33u + line + 1u];
                if (!(w1 == -1.0)) {
                    o1_2 += w1 * v0;
                    o1_3 += w1 * v1;
                }
                let w2 = weights[j * 33u + line + 2u];
                if (!(w2 == -1.0)) {
                    o2_2 += w2 * v0;
                    o2_3 += w2 * v1;
                }
                let w3 = weights[j * 33u + line + 3u];
                if (!(w3 == -1.0)) {
                    o3_2 += w3 * v0;
                    o3_3 += w3 * v1;
                }
                let w4 = weights[j * 33u + line + 4u];
                if (!(w4 == -1.0)) {
                    o4_2 += w4 * v0;
                    o4_3 += w4 * v1;
                }
                let w5 = weights[j * 33u + line + 5u];
                if (!(w5 == -1.0)) {
                    o5_2 += w5 * v0;
                    o5_3 += w5 * v1;
                }
                let w6 = weights[j * 33u + line + 6u];
                if (!(w6 == -1.0)) {
                    o6_2 += w6 * v0;
                    o6_3 += w6 * v1;
                }
                let w7 = weights[j * 33u + line + 7u];
                if (!(w7 == -1.0)) {
                    o7_2 += w7 * v0;
                    o7_3 += w7 * v1;
                }
            }
        }
        workgroupBarrier();
    }
    if (first_row + line + 0u < rows) {
        let row = first_row + line + 0u;
        let start = batch * params.y_b + row / params.group * params.y_s
            + (first_head + row % params.group) * params.y_h + column;
        let total = totals[line + 0u];
        y[start + 0u] = select(o0_0[0] / total, 0.0, total == 0.0);
        y[start + 4u] = select(o0_0[1] / total, 0.0, total == 0.0);
        y[start + 8u] = select(o0_0[2] / total, 0.0, total == 0.0);
        y[start + 12u] = select(o0_0[3] / total, 0.0, total == 0.0);
        y[start + 16u] = select(o0_1[0] / total, 0.0, total == 0.0);
        y[start + 20u] = select(o0_1[1] / total, 0.0, total == 0.0);
        y[start + 24u] = select(o0_1[2] / total, 0.0, total == 0.0);
        y[start + 28u] = select(o0_1[3] / total, 0.0, total == 0.0);
        y[start + 32u] = select(o0_2[0] / total, 0.0, total == 0.0);
        y[start + 36u] = select(o0_2[1] / total, 0.0, total == 0.0);
        y[start + 40u] = select(o0_2[2] / total, 0.0, total == 0.0);
        y[start + 44u] = select(o0_2[3] / total, 0.0, total == 0.0);
        y[start + 48u] = select(o0_3[0] / total, 0.0, total == 0.0);
        y[start + 52u] = select(o0_3[1] / total, 0.0, total == 0.0);
        y[start + 56u] = select(o0_3[2] / total, 0.0, total == 0.0);
        y[start + 60u] = select(o0_3[3] / total, 0.0, total == 0.0);
    }
    if (first_row + line + 1u < rows) {
        let row = first_row + line + 1u;
        let start = batch * params.y_b + row / params.group * params.y_s
            + (first_head + row % params.group) * params.y_h + column;
        let total = totals[line + 1u];
        y[start + 0u] = select(o1_0[0] / total, 0.0, total == 0.0);
        y[start + 4u] = select(o1_0[1] / total, 0.0, total == 0.0);
        y[start + 8u] = select(o1_0[2] / total, 0.0, total == 0.0);
        y[start + 12u] = select(o1_0[3] / total, 0.0, total == 0.0);
        y[start + 16u] = select(o1_1[0] / total, 0.0, total == 0.0);
        y[start + 20u] = select(o1_1[1] / total, 0.0, total == 0.0);
        y[start + 24u] = select(o1_1[2] / total, 0.0, total == 0.0);
        y[start + 28u] = select(o1_1[3] / total, 0.0, total == 0.0);
        y[start + 32u] = select(o1_2[0] / total, 0.0, total == 0.0);
        y[start + 36u] = select(o1_2[1] / total, 0.0, total == 0.0);
        y[start + 40u] = select(o1_2[2] / total, 0.0, total == 0.0);
        y[start + 44u] = select(o1_2[3] / total, 0.0, total == 0.0);
        y[start + 48u] = select(o1_3[0] / total, 0.0, total == 0.0);
        y[start + 52u] = select(o1_3[1] / total, 0.0, total == 0.0);
        y[start + 56u] = select(o1_3[2] / total, 0.0, total == 0.0);
        y[start + 60u] = select(o1_3[3] / total, 0.0, total == 0.0);
    }
    if (first_row + line + 2u < rows) {
        let row = first_row + line + 2u;
        let start = batch * params.y_b + row / params.group * params.y_s
            + (first_head + row % params.group) * params.y_h + column;
        let total = totals[line + 2u];
        y[start + 0u] = select(o2_0[0] / total, 0.0, total == 0.0);
        y[start + 4u] = select(o2_0[1] / total, 0.0, total == 0.0);
        y[start + 8u] = select(o2_0[2] / total, 0.0, total == 0.0);
        y[start + 12u] = select(o2_0[3] / total, 0.0, total == 0.0);
        y[start + 16u] = select(o2_1[0] / total, 0.0, total == 0.0);
        y[start + 20u] = select(o2_1[1] / total, 0.0, total == 0.0);
        y[start + 24u] = select(o2_1[2] / total, 0.0, total == 0.0);
        y[start + 28u] = select(o2_1[3] / total, 0.0, total == 0.0);
        y[start + 32u] = select(o2_2[0] / total, 0.0, total == 0.0);
        y[start + 36u] = select(o2_2[1] / total, 0.0, total == 0.0);
        y[start + 40u] = select(o2_2[2] / total, 0.0, total == 0.0);
        y[start + 44u] = select(o2_2[3] / total, 0.0, total == 0.0);
        y[start + 48u] = select(o2_3[0] / total, 0.0, total == 0.0);
        y[start + 52u] = select(o2_3[1] / total, 0.0, total == 0.0);
        y[start + 56u] = select(o2_3[2] / total, 0.0, total == 0.0);
        y[start + 60u] = select(o2_3[3] / total, 0.0, total == 0.0);
    }
    if (first_row + line + 3u < rows) {
        let row = first_row + line + 3u;
        let start = batch * params.y_b + row / params.group * params.y_s
            + (first_head + row % params.group) * params.y_h + column;
        let total = totals[line + 3u];
        y[start + 0u] = select(o3_0[0] / total, 0.0, total == 0.0);
        y[start + 4u] = select(o3_0[1] / total, 0.0, total == 0.0);
        y[start + 8u] = select(o3_0[2] / total, 0.0, total == 0.0);
        y[start + 12u] = select(o3_0[3] / total, 0.0, total == 0.0);
        y[start + 16u] = select(o3_1[0] / total, 0.0, total == 0.0);
        y[start + 20u] = select(o3_1[1] / total, 0.0, total == 0.0);
        y[start + 24u] = select(o3_1[2] / total, 0.0, total == 0.0);
        y[start + 28u] = select(o3_1[3] / total, 0.0, total == 0.0);
        y[start + 32u] = select(o3_2[0] / total, 0.0, total == 0.0);
        y[start + 36u] = select(o3_2[1] / total, 0.0, total == 0.0);
        y[start + 40u] = select(o3_2[2] / total, 0.0, total == 0.0);
        y[start + 44u] = select(o3_2[3] / total, 0.0, total == 0.0);
        y[start + 48u] = select(o3_3[0] / total, 0.0, total == 0.0);
        y[start + 52u] = select(o3_3[1] / total, 0.0, total == 0.0);
        y[start + 56u] = select(o3_3[2] / total, 0.0, total == 0.0);
        y[start + 60u] = select(o3_3[3] / total, 0.0, total == 0.0);
    }
    if (first_row + line + 4u < rows) {
        let row = first_row + line + 4u;
        let start = batch * params.y_b + row / params.group * params.y_s
            + (first_head + row % params.group) * params.y_h + column;
        let total = totals[line + 4u];
        y[start + 0u] = select(o4_0[0] / total, 0.0, total == 0.0);
        y[start + 4u] = select(o4_0[1] / total, 0.0, total == 0.0);
        y[start + 8u] = select(o4_0[2] / total, 0.0, total == 0.0);
        y[start + 12u] = select(o4_0[3] / total, 0.0, total == 0.0);
        y[start + 16u] = select(o4_1[0] / total, 0.0, total == 0.0);
        y[start + 20u] = select(o4_1[1] / total, 0.0, total == 0.0);
        y[start + 24u] = select(o4_1[2] / total, 0.0, total == 0.0);
        y[start + 28u] = select(o4_1[3] / total, 0.0, total == 0.0);
        y[start + 32u] = select(o4_2[0] / total, 0.0, total == 0.0);
        y[start + 36u] = select(o4_2[1] / total, 0.0, total == 0.0);
        y[start + 40u] = select(o4_2[2] / total, 0.0, total == 0.0);
        y[start + 44u] = select(o4_2[3] / total, 0.0, total == 0.0);
        y[start + 48u] = select(o4_3[0] / total, 0.0, total == 0.0);
        y[start + 52u] = select(o4_3[1] / total, 0.0, total == 0.0);
        y[start + 56u] = select(o4_3[2] / total, 0.0, total == 0.0);
        y[start + 60u] = select(o4_3[3] / total, 0.0, total == 0.0);
    }
    if (first_row + line + 5u < rows) {
        let row = first_row + line + 5u;
        let start = batch * params.y_b + row / params.group * params.y_s
            + (first_head + row % params.group) * params.y_h + column;
        let total = totals[line + 5u];
        y[start + 0u] = select(o5_0[0] / total, 0.0, total == 0.0);
        y[start + 4u] = select(o5_0[1] / total, 0.0, total == 0.0);
        y[start + 8u] = select(o5_0[2] / total, 0.0, total == 0.0);
        y[start + 12u] = select(o5_0[3] / total, 0.0, total == 0.0);
        y[start + 16u] = select(o5_1[0] / total, 0.0, total == 0.0);
        y[start + 20u] = select(o5_1[1] / total, 0.0, total == 0.0);
        y[start + 24u] = select(o5_1[2] / total, 0.0, total == 0.0);
        y[start + 28u] = select(o5_1[3] / total, 0.0, total == 0.0);
        y[start + 32u] = select(o5_2[0] / total, 0.0, total == 0.0);
        y[start + 36u] = select(o5_2[1] / total, 0.0, total == 0.0);
        y[start + 40u] = select(o5_2[2] / total, 0.0, total == 0.0);
        y[start + 44u] = select(o5_2[3] / total, 0.0, total == 0.0);
        y[start + 48u] = select(o5_3[0] / total, 0.0, total == 0.0);
        y[start + 52u] = select(o5_3[1] / total, 0.0, total == 0.0);
        y[start + 56u] = select(o5_3[2] / total, 0.0, total == 0.0);
        y[start + 60u] = select(o5_3[3] / total, 0.0, total == 0.0);
    }
    if (first_row + line + 6u < rows) {
        let row = first_row + line + 6u;
        let start = batch * params.y_b + row / params.group * params.y_s
            + (first_head + row % params.group) * params.y_h + column;
        let total = totals[line + 6u];
        y[start + 0u] = select(o6_0[0] / total, 0.0, total == 0.0);
        y[start + 4u] = select(o6_0[1] / total, 0.0, total == 0.0);
        y[start + 8u] = select(o6_0[2] / total, 0.0, total == 0.0);
        y[start + 12u] = select(o6_0[3] / total, 0.0, total == 0.0);
        y[start + 16u] = select(o6_1[0] / total, 0.0, total == 0.0);
        y[start + 20u] = select(o6_1[1] / total, 0.0, total == 0.0);
        y[start + 24u] = select(o6_1[2] / total, 0.0, total == 0.0);
        y[start + 28u] = select(o6_1[3] / total, 0.0, total == 0.0);
        y[start + 32u] = select(o6_2[0] / total, 0.0, total == 0.0);
        y[start + 36u] = select(o6_2[1] / total, 0.0, total == 0.0);
        y[start + 40u] = select(o6_2[2] / total, 0.0, total == 0.0);
        y[start + 44u] = select(o6_2[3] / total, 0.0, total == 0.0);
        y[start + 48u] = select(o6_3[0] / total, 0.0, total == 0.0);
        y[start + 52u] = select(o6_3[1] / total, 0.0, total == 0.0);
        y[start + 56u] = select(o6_3[2] / total, 0.0, total == 0.0);
        y[start + 60u] = select(o6_3[3] / total, 0.0, total == 0.0);
    }
    if (first_row + line + 7u < rows) {
        let row = first_row + line + 7u;
        let start = batch * params.y_b + row / params.group * params.y_s
            + (first_head + row % params.group) * params.y_h + column;
        let total = totals[line + 7u];
        y[start + 0u] = select(o7_0[0] / total, 0.0, total == 0.0);
        y[start + 4u] = select(o7_0[1] / total, 0.0, total == 0.0);
        y[start + 8u] = select(o7_0[2] / total, 0.0, total == 0.0);
        y[start + 12u] = select(o7_0[3] / total, 0.0, total == 0.0);
        y[start + 16u] = select(o7_1[0] / total, 0.0, total == 0.0);
        y[start + 20u] = select(o7_1[1] / total, 0.0, total == 0.0);
        y[start + 24u] = select(o7_1[2] / total, 0.0, total == 0.0);
        y[start + 28u] = select(o7_1[3] / total, 0.0, total == 0.0);
        y[start + 32u] = select(o7_2[0] / total, 0.0, total == 0.0);
        y[start + 36u] = select(o7_2[1] / total, 0.0, total == 0.0);
        y[start + 40u] = select(o7_2[2] / total, 0.0, total == 0.0);
        y[start + 44u] = select(o7_2[3] / total, 0.0, total == 0.0);
        y[start + 48u] = select(o7_3[0] / total, 0.0, total == 0.0);
        y[start + 52u] = select(o7_3[1] / total, 0.0, total == 0.0);
        y[start + 56u] = select(o7_3[2] / total, 0.0, total == 0.0);
        y[start + 60u] = select(o7_3[3] / total, 0.0, total == 0.0);
    }
}
