enable f16;

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

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k: array<vec4<f16>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<f16>>;
@group(0) @binding(3) var<storage, read> mask: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(5) var<uniform> params: Params;

// Q [d][four rows]; tiles [key][four d]; weights [key][four rows]; maxima, at last sums, [column][four rows]
var<workgroup> queries: array<vec4<f32>, 160>;
var<workgroup> tile: array<vec4<f32>, 352>;   // K
var<workgroup> values: array<vec4<f32>, 352>;
var<workgroup> weights: array<vec4<f32>, 160>;
var<workgroup> parts: array<vec4<f32>, 64>;

const LOWEST = -3.4028234e38;

fn end_key(token: u32) -> u32 {
    return min(params.keys, params.position + token + 1u);
}

fn first_key(token: u32) -> u32 {
    let seen = params.position + token + 1u;
    return seen - min(seen, params.window);
}

fn score(product: f32, batch: u32, head: u32, token: u32, key: u32) -> f32 {
    var result = product * params.scale;
    // cap * tanh(result / cap), by way of exp: the builtin tanh may overflow
    result = params.cap * (1.0 - 2.0 / (exp(2.0 * result / params.cap) + 1.0));
    let bias = mask[batch * params.m_b + head * params.m_h + token * params.m_s + key * params.m_k];
    if (bias <= LOWEST) {
        return LOWEST;
    }
    result += bias;
    return result;
}

fn exponential(v: vec4f) -> vec4f {
    let nan = (bitcast<vec4u>(v) & vec4u(0x7fffffffu)) > vec4u(0x7f800000u);
    return select(exp(v), v, nan);
}

// Where a row of Q or y starts.
fn row_start(row: u32, first_head: u32, batch: u32) -> u32 {
    return batch * params.q_b + row / params.group * params.q_s + (first_head + row % params.group) * params.q_h;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) grid: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let last_row = params.S * params.group - 1u;
    let first_row = (grid.y - 1u - group.y) * 16u;
    let first_head = group.x * params.group;
    let batch = group.z;
    let base = batch * params.k_b + group.x * params.k_h;
    let column = lane / 2u % 16u;
    let mine = (lane / 32u * 2u + lane % 2u);
    let end = end_key(min(first_row + 15u, last_row) / params.group);
    let first = first_key(first_row / params.group) / 32u * 32u;
    var ahead0: vec4<f16>;
    var ahead1: vec4<f16>;
    var ahead2: vec4<f16>;
    var ahead3: vec4<f16>;
    var ahead4: vec4<f16>;
    ahead0 = k[base + lane % 10u
            + min(first + lane / 10u, end - 1u) * params.k_c];
        ahead1 = k[base + (lane + 64u) % 10u
            + min(first + (lane + 64u) / 10u, end - 1u) * params.k_c];
        ahead2 = k[base + (lane + 128u) % 10u
            + min(first + (lane + 128u) / 10u, end - 1u) * params.k_c];
        ahead3 = k[base + (lane + 192u) % 10u
            + min(first + (lane + 192u) / 10u, end - 1u) * params.k_c];
        ahead4 = k[base + (lane + 256u) % 10u
            + min(first + (lane + 256u) / 10u, end - 1u) * params.k_c];
    for (var i = lane; i < 40u; i += 64u) {
        let d = i % 10u;
        let g = i / 10u;
        let q0 = q[row_start(min(first_row + g * 4u, last_row), first_head, batch) + d];
        let q1 = q[row_start(min(first_row + g * 4u + 1u, last_row), first_head, batch) + d];
        let q2 = q[row_start(min(first_row + g * 4u + 2u, last_row), first_head, batch) + d];
        let q3 = q[row_start(min(first_row + g * 4u + 3u, last_row), first_head, batch) + d];
        queries[(d * 4u) * 4u + g] = vec4f(q0[0], q1[0], q2[0], q3[0]);
        queries[(d * 4u + 1u) * 4u + g] = vec4f(q0[1], q1[1], q2[1], q3[1]);
        queries[(d * 4u + 2u) * 4u + g] = vec4f(q0[2], q1[2], q2[2], q3[2]);
        queries[(d * 4u + 3u) * 4u + g] = vec4f(q0[3], q1[3], q2[3], q3[3]);
    }
    let row0 = min(vec4u(first_row + (mine) * 4u) + vec4u(0u, 1u, 2u, 3u), vec4u(last_row));
    let token0 = row0 / params.group;
    let head0 = first_head + row0 % params.group;
    let from0 = vec4u(first_key(token0[0]), first_key(token0[1]), first_key(token0[2]), first_key(token0[3]));
    let to0 = vec4u(end_key(token0[0]), end_key(token0[1]), end_key(token0[2]), end_key(token0[3]));
    var peak0 = vec4f(LOWEST);
    var total0 = vec4f(0.0);
    var o0_0 = vec4f(0.0);
    var o1_0 = vec4f(0.0);
    var o2_0 = vec4f(0.0);
    var o3_0 = vec4f(0.0);
    let unit0 = min(column, 9u);
    // Later rows see later keys: of this thread's, the first and the last tell what all or any see.
    let any_from = from0.x;
    let all_from = from0.w;
    let all_to = to0.x;
    let any_to = to0.w;

    for (var start = first; start < end; start += 32u) {
        tile[lane / 10u * 11u + lane % 10u] = vec4f(ahead0);
        tile[(lane + 64u) / 10u * 11u + (lane + 64u) % 10u] = vec4f(ahead1);
        tile[(lane + 128u) / 10u * 11u + (lane + 128u) % 10u] = vec4f(ahead2);
        tile[(lane + 192u) / 10u * 11u + (lane + 192u) % 10u] = vec4f(ahead3);
        tile[(lane + 256u) / 10u * 11u + (lane + 256u) % 10u] = vec4f(ahead4);
        workgroupBarrier();
        let later0 = v[base + lane % 10u
            + min(start + lane / 10u, end - 1u) * params.k_c];
        let later1 = v[base + (lane + 64u) % 10u
            + min(start + (lane + 64u) / 10u, end - 1u) * params.k_c];
        let later2 = v[base + (lane + 128u) % 10u
            + min(start + (lane + 128u) / 10u, end - 1u) * params.k_c];
        let later3 = v[base + (lane + 192u) % 10u
            + min(start + (lane + 192u) / 10u, end - 1u) * params.k_c];
        let later4 = v[base + (lane + 256u) % 10u
            + min(start + (lane + 256u) / 10u, end - 1u) * params.k_c];
        var s0_0 = vec4f(0.0);
        var s1_0 = vec4f(0.0);
        for (var u = 0u; u < 10u; u++) {
            let k0 = tile[(column) * 11u + u];
            let k1 = tile[(column + 16u) * 11u + u];
            let q0_0 = queries[(u * 4u) * 4u + mine];
            s0_0 += q0_0 * k0[0];
            s1_0 += q0_0 * k1[0];
            let q1_0 = queries[(u * 4u + 1u) * 4u + mine];
            s0_0 += q1_0 * k0[1];
            s1_0 += q1_0 * k1[1];
            let q2_0 = queries[(u * 4u + 2u) * 4u + mine];
            s0_0 += q2_0 * k0[2];
            s1_0 += q2_0 * k1[2];
            let q3_0 = queries[(u * 4u + 3u) * 4u + mine];
            s0_0 += q3_0 * k0[3];
            s1_0 += q3_0 * k1[3];
        }
        var top0 = vec4f(LOWEST);
        {
            let key = start + column;
            let seen = (vec4u(key) < to0) & (vec4u(key) >= from0);
            if (seen[0]) {
                s0_0[0] = score(s0_0[0], batch, head0[0], token0[0], key);
            } else {
                s0_0[0] = LOWEST;
            }
            if (seen[1]) {
                s0_0[1] = score(s0_0[1], batch, head0[1], token0[1], key);
            } else {
                s0_0[1] = LOWEST;
            }
            if (seen[2]) {
                s0_0[2] = score(s0_0[2], batch, head0[2], token0[2], key);
            } else {
                s0_0[2] = LOWEST;
            }
            if (seen[3]) {
                s0_0[3] = score(s0_0[3], batch, head0[3], token0[3], key);
            } else {
                s0_0[3] = LOWEST;
            }
            top0 = max(top0, s0_0);
        }
        {
            let key = start + column + 16u;
            let seen = (vec4u(key) < to0) & (vec4u(key) >= from0);
            if (seen[0]) {
                s1_0[0] = score(s1_0[0], batch, head0[0], token0[0], key);
            } else {
                s1_0[0] = LOWEST;
            }
            if (seen[1]) {
                s1_0[1] = score(s1_0[1], batch, head0[1], token0[1], key);
            } else {
                s1_0[1] = LOWEST;
            }
            if (seen[2]) {
                s1_0[2] = score(s1_0[2], batch, head0[2], token0[2], key);
            } else {
                s1_0[2] = LOWEST;
            }
            if (seen[3]) {
                s1_0[3] = score(s1_0[3], batch, head0[3], token0[3], key);
            } else {
                s1_0[3] = LOWEST;
            }
            top0 = max(top0, s1_0);
        }
        parts[column * 4u + mine] = top0;
        workgroupBarrier();
        values[lane / 10u * 11u + lane % 10u] = vec4f(later0);
        values[(lane + 64u) / 10u * 11u + (lane + 64u) % 10u] = vec4f(later1);
        values[(lane + 128u) / 10u * 11u + (lane + 128u) % 10u] = vec4f(later2);
        values[(lane + 192u) / 10u * 11u + (lane + 192u) % 10u] = vec4f(later3);
        values[(lane + 256u) / 10u * 11u + (lane + 256u) % 10u] = vec4f(later4);
        var new0 = peak0;
        for (var i = 0u; i < 16u; i++) {
            new0 = max(new0, parts[i * 4u + mine]);
        }
        let shrink0 = exp(peak0 - new0);
        peak0 = new0;
        total0 *= shrink0;
        {
            let hidden = s0_0 == vec4f(LOWEST);
            let w = exponential(s0_0 - peak0);
            total0 += select(w, vec4f(0.0), hidden);
            weights[(column) * 5u + mine]
                = select(w, vec4f(-1.0), hidden);
        }
        {
            let hidden = s1_0 == vec4f(LOWEST);
            let w = exponential(s1_0 - peak0);
            total0 += select(w, vec4f(0.0), hidden);
            weights[(column + 16u) * 5u + mine]
                = select(w, vec4f(-1.0), hidden);
        }
        workgroupBarrier();
        ahead0 = k[base + lane % 10u
            + min(start + 32u + lane / 10u, end - 1u) * params.k_c];
        ahead1 = k[base + (lane + 64u) % 10u
            + min(start + 32u + (lane + 64u) / 10u, end - 1u) * params.k_c];
        ahead2 = k[base + (lane + 128u) % 10u
            + min(start + 32u + (lane + 128u) / 10u, end - 1u) * params.k_c];
        ahead3 = k[base + (lane + 192u) % 10u
            + min(start + 32u + (lane + 192u) / 10u, end - 1u) * params.k_c];
        ahead4 = k[base + (lane + 256u) % 10u
            + min(start + 32u + (lane + 256u) / 10u, end - 1u) * params.k_c];
        o0_0 *= shrink0[0];
        o1_0 *= shrink0[1];
        o2_0 *= shrink0[2];
        o3_0 *= shrink0[3];
        let all_seen = false;
        if (all_seen) {
            for (var j = 0u; j < 32u; j += 4u) {
                {
                let v0 = values[j * 11u + unit0];
                let w0 = weights[j * 5u + mine];
                o0_0 += w0[0] * v0;
                o1_0 += w0[1] * v0;
                o2_0 += w0[2] * v0;
                o3_0 += w0[3] * v0;
                }
                {
                let v0 = values[(j + 1u) * 11u + unit0];
                let w0 = weights[(j + 1u) * 5u + mine];
                o0_0 += w0[0] * v0;
                o1_0 += w0[1] * v0;
                o2_0 += w0[2] * v0;
                o3_0 += w0[3] * v0;
                }
                {
                let v0 = values[(j + 2u) * 11u + unit0];
                let w0 = weights[(j + 2u) * 5u + mine];
                o0_0 += w0[0] * v0;
                o1_0 += w0[1] * v0;
                o2_0 += w0[2] * v0;
                o3_0 += w0[3] * v0;
                }
                {
                let v0 = values[(j + 3u) * 11u + unit0];
                let w0 = weights[(j + 3u) * 5u + mine];
                o0_0 += w0[0] * v0;
                o1_0 += w0[1] * v0;
                o2_0 += w0[2] * v0;
                o3_0 += w0[3] * v0;
                }
            }
        } else {
            let stop = min(max(any_to, start) - start, 32u);
            for (var j = max(any_from, start) - start; j < stop; j++) {
                let v0 = values[j * 11u + unit0];
                let w0 = weights[j * 5u + mine];
                if (!(w0[0] == -1.0)) {
                    o0_0 += w0[0] * v0;
                }
                if (!(w0[1] == -1.0)) {
                    o1_0 += w0[1] * v0;
                }
                if (!(w0[2] == -1.0)) {
                    o2_0 += w0[2] * v0;
                }
                if (!(w0[3] == -1.0)) {
                    o3_0 += w0[3] * v0;
                }
            }
        }
    }

    parts[column * 4u + mine] = total0;
    workgroupBarrier();
    var sum0 = vec4f(0.0);
    for (var i = 0u; i < 16u; i++) {
        sum0 += parts[i * 4u + mine];
    }
    if (first_row + (mine) * 4u <= last_row) {
        let at = batch * params.y_b + token0[0] * params.y_s + head0[0] * params.y_h + column;
        if (column < 10u) {
            y[at] = select(o0_0 / sum0[0], vec4f(0.0), sum0[0] == 0.0);
        }
    }
    if (first_row + (mine) * 4u + 1u <= last_row) {
        let at = batch * params.y_b + token0[1] * params.y_s + head0[1] * params.y_h + column;
        if (column < 10u) {
            y[at] = select(o1_0 / sum0[1], vec4f(0.0), sum0[1] == 0.0);
        }
    }
    if (first_row + (mine) * 4u + 2u <= last_row) {
        let at = batch * params.y_b + token0[2] * params.y_s + head0[2] * params.y_h + column;
        if (column < 10u) {
            y[at] = select(o2_0 / sum0[2], vec4f(0.0), sum0[2] == 0.0);
        }
    }
    if (first_row + (mine) * 4u + 3u <= last_row) {
        let at = batch * params.y_b + token0[3] * params.y_s + head0[3] * params.y_h + column;
        if (column < 10u) {
            y[at] = select(o3_0 / sum0[3], vec4f(0.0), sum0[3] == 0.0);
        }
    }
}
