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

var<workgroup> slice_peak: array<f32, 128>;
var<workgroup> slice_sum: array<f32, 128>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let first_row = group.x * 32u;
    let rows = params.S * params.group;
    let first_head = group.y * params.group;
    let batch = group.z;
    let base = batch * params.k_b + group.y * params.k_h;
    let first_token = first_row / params.group;
    let last_token = (min(first_row + 32u, rows) - 1u) / params.group;
    let column = lane % 8u;
    let line = lane / 8u * 2u;
    for (var i = lane; i < 32u; i += 128u) {
        let row = min(first_row + i, rows - 1u);
        row_q[i] = batch * params.q_b + row / params.group * params.q_s
            + (first_head + row % params.group) * params.q_h;
        peaks[i] = LOWEST;
        totals[i] = 0.0;
    }
    var o0_0 = vec4f(0.0);
    var o0_1 = vec4f(0.0);
    var o1_0 = vec4f(0.0);
    var o1_1 = vec4f(0.0);
    workgroupBarrier();

    let end = end_key(last_token);
    for (var start = first_key(first_token) / 32u * 32u; start < end; start += 32u) {
        let keys = min(end - start, 32u);
        var product0_0 = vec4f(0.0);
        var product1_0 = vec4f(0.0);
        for (var d0 = 0u; d0 < 64u; d0 += 32u) {
            for (var i = lane; i < 1024u; i += 128u) {
                let d = d0 + i % 32u;
                let to = i % 32u * 33u + i / 32u;
                let row_k = base + (start + min(i / 32u, keys - 1u)) * params.k_c;
                left[to] = q[row_q[i / 32u] + d];
                right[to] = f32(k[row_k + d]);
            }
            workgroupBarrier();
            for (var d = 0u; d < 32u; d++) {
                let r0 = vec4f(right[d * 33u + column + 0u], right[d * 33u + column + 8u], right[d * 33u + column + 16u], right[d * 33u + column + 24u]);
                let l0 = left[d * 33u + line + 0u];
                product0_0 += l0 * r0;
                let l1 = left[d * 33u + line + 1u];
                product1_0 += l1 * r0;
            }
            workgroupBarrier();
        }
        weights[(column + 0u) * 33u + line + 0u] = product0_0[0];
        weights[(column + 8u) * 33u + line + 0u] = product0_0[1];
        weights[(column + 16u) * 33u + line + 0u] = product0_0[2];
        weights[(column + 24u) * 33u + line + 0u] = product0_0[3];
        weights[(column + 0u) * 33u + line + 1u] = product1_0[0];
        weights[(column + 8u) * 33u + line + 1u] = product1_0[1];
        weights[(column + 16u) * 33u + line + 1u] = product1_0[2];
        weights[(column + 24u) * 33u + line + 1u] = product1_0[3];
        workgroupBarrier();
        let own = lane % 32u;
        let slice = lane / 32u;
        let own_row = min(first_row + own, rows - 1u);
        let token = own_row / params.group;
        let seen_from = first_key(token);
        let seen_to = end_key(token);
        let before = peaks[own];
        var peak = LOWEST;
        for (var j = slice; j < keys; j += 4u) {
            var s = LOWEST;
            if (start + j >= seen_from && start + j < seen_to) {
                s = score(weights[j * 33u + own], batch, first_head + own_row % params.group, token, start + j);
            }
            weights[j * 33u + own] = s;
            peak = max(peak, s);
        }
        slice_peak[lane] = peak;
        workgroupBarrier();
        peak = before;
        for (var i = own; i < 128u; i += 32u) {
            peak = max(peak, slice_peak[i]);
        }
        var sum = 0.0;
        for (var j = slice; j < keys; j += 4u) {
            let s = weights[j * 33u + own];
            var w = -1.0;
            if (!(s == LOWEST)) {
                w = exponential(s - peak);
                sum += w;
            }
            weights[j * 33u + own] = w;
        }
        slice_sum[lane] = sum;
        workgroupBarrier();
        if (slice == 0u) {
            let factor = exp(before - peak);
            var total = totals[own] * factor;
            for (var i = own; i < 128u; i += 32u) {
                total += slice_sum[i];
            }
            peaks[own] = peak;
            totals[own] = total;
            shrink[own] = factor;
        }
        workgroupBarrier();
        let all_visible = start >= first_key(last_token) && start + keys <= end_key(first_token);
        for (var i = lane; i < keys * 32u; i += 128u) {
            let d = 0u + i % 32u;
            right[i / 32u * 33u + i % 32u] = f32(v[base + (start + i / 32u) * params.k_c + d]);
        }
        workgroupBarrier();
        o0_0 *= shrink[line + 0u];
        o1_0 *= shrink[line + 1u];
        if (all_visible) {
            for (var j = 0u; j < keys; j++) {
                let v0 = vec4f(right[j * 33u + column + 0u], right[j * 33u + column + 8u], right[j * 33u + column + 16u], right[j * 33u + column + 24u]);
                let w0 = weights[j * 33u + line + 0u];
                o0_0 += w0 * v0;
                let w1 = weights[j * 33u + line + 1u];
                o1_0 += w1 * v0;
            }
        } else {
            for (var j = 0u; j < keys; j++) {
                let v0 = vec4f(right[j * 33u + column + 0u], right[j * 33u + column + 8u], right[j * 33u + column + 16u], right[j * 33u + column + 24u]);
                let w0 = weights[j * 33u + line + 0u];
                if (!(w0 == -1.0)) {
                    o0_0 += w0 * v0;
                }
                let w1 = weights[j * 33u + line + 1u];
                if (!(w1 == -1.0)) {
                    o1_0 += w1 * v0;
                }
            }
        }
        workgroupBarrier();
        for (var i = lane; i < keys * 32u; i += 128u) {
            let d = 32u + i % 32u;
            right[i / 32u * 33u + i % 32u] = f32(v[base + (start + i / 32u) * params.k_c + d]);
        }
        workgroupBarrier();
        o0_1 *= shrink[line + 0u];
        o1_1 *= shrink[line + 1u];
        if (all_visible) {
            for (var j = 0u; j < keys; j++) {
                let v0 = vec4f(right[j * 33u + column + 0u], right[j * 33u + column + 8u], right[j * 33u + column + 16u], right[j * 33u + column + 24u]);
                let w0 = weights[j * 33u + line + 0u];
                o0_1 += w0 * v0;
                let w1 = weights[j * 33u + line + 1u];
                o1_1 += w1 * v0;
            }
        } else {
            for (var j = 0u; j < keys; j++) {
                let v0 = vec4f(right[j * 33u + column + 0u], right[j * 33u + column + 8u], right[j * 33u + column + 16u], right[j * 33u + column + 24u]);
                let w0 = weights[j * 33u + line + 0u];
                if (!(w0 == -1.0)) {
                    o0_1 += w0 * v0;
                }
                let w1 = weights[j * 33u + line + 1u];
                if (!(w1 == -1.0)) {
                    o1_1 += w1 * v0;
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
        y[start + 8u] = select(o0_0[1] / total, 0.0, total == 0.0);
        y[start + 16u] = select(o0_0[2] / total, 0.0, total == 0.0);
        y[start + 24u] = select(o0_0[3] / total, 0.0, total == 0.0);
        y[start + 32u] = select(o0_1[0] / total, 0.0, total == 0.0);
        y[start + 40u] = select(o0_1[1] / total, 0.0, total == 0.0);
        y[start + 48u] = select(o0_1[2] / total, 0.0, total == 0.0);
        y[start + 56u] = select(o0_1[3] / total, 0.0, total == 0.0);
    }
    if (first_row + line + 1u < rows) {
        let row = first_row + line + 1u;
        let start = batch * params.y_b + row / params.group * params.y_s
            + (first_head + row % params.group) * params.y_h + column;
        let total = totals[line + 1u];
        y[start + 0u] = select(o1_0[0] / total, 0.0, total == 0.0);
        y[start + 8u] = select(o1_0[1] / total, 0.0, total == 0.0);
        y[start + 16u] = select(o1_0[2] / total, 0.0, total == 0.0);
        y[start + 24u] = select(o1_0[3] / total, 0.0, total == 0.0);
        y[start + 32u] = select(o1_1[0] / total, 0.0, total == 0.0);
        y[start + 40u] = select(o1_1[1] / total, 0.0, total == 0.0);
        y[start + 48u] = select(o1_1[2] / total, 0.0, total == 0.0);
        y[start + 56u] = select(o1_1[3] / total, 0.0, total == 0.0);
    }
}
