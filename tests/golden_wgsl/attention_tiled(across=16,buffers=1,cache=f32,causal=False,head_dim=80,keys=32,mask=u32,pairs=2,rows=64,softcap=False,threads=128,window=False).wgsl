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
@group(0) @binding(1) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> mask: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(5) var<uniform> params: Params;

// Q [d][four rows]; tiles [key][four d]; weights [key][four rows]; maxima, at last sums, [column][four rows]
var<workgroup> queries: array<vec4<f32>, 1280>;
var<workgroup> tile: array<vec4<f32>, 672>;   // K, then V
var<workgroup> weights: array<vec4<f32>, 544>;
var<workgroup> parts: array<vec4<f32>, 256>;

const LOWEST = -3.4028234e38;

fn end_key(token: u32) -> u32 {
    return params.keys;
}

fn first_key(token: u32) -> u32 {
    return 0u;
}

fn score(product: f32, batch: u32, head: u32, token: u32, key: u32) -> f32 {
    var result = product * params.scale;
    if (mask[batch * params.m_b + head * params.m_h + token * params.m_s + key * params.m_k] == 0u) {
        return LOWEST;
    }
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

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) grid: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let last_row = params.S * params.group - 1u;
    let first_row = (grid.y - 1u - group.y) * 64u;
    let first_head = group.x * params.group;
    let batch = group.z;
    let base = batch * params.k_b + group.x * params.k_h;
    let column = lane / 2u % 16u;
    let mine = (lane / 32u * 2u + lane % 2u) * 2u;
    let end = end_key(min(first_row + 63u, last_row) / params.group);
    let first = first_key(first_row / params.group) / 32u * 32u;
    var ahead0: vec4<f32>;
    var ahead1: vec4<f32>;
    var ahead2: vec4<f32>;
    var ahead3: vec4<f32>;
    var ahead4: vec4<f32>;
    ahead0 = k[base + lane % 20u
            + min(first + lane / 20u, end - 1u) * params.k_c];
        ahead1 = k[base + (lane + 128u) % 20u
            + min(first + (lane + 128u) / 20u, end - 1u) * params.k_c];
        ahead2 = k[base + (lane + 256u) % 20u
            + min(first + (lane + 256u) / 20u, end - 1u) * params.k_c];
        ahead3 = k[base + (lane + 384u) % 20u
            + min(first + (lane + 384u) / 20u, end - 1u) * params.k_c];
        ahead4 = k[base + (lane + 512u) % 20u
            + min(first + (lane + 512u) / 20u, end - 1u) * params.k_c];
    for (var i = lane; i < 320u; i += 128u) {
        let d = i % 20u;
        let g = i / 20u;
        let q0 = q[row_start(min(first_row + g * 4u, last_row), first_head, batch) + d];
        let q1 = q[row_start(min(first_row + g * 4u + 1u, last_row), first_head, batch) + d];
        let q2 = q[row_start(min(first_row + g * 4u + 2u, last_row), first_head, batch) + d];
        let q3 = q[row_start(min(first_row + g * 4u + 3u, last_row), first_head, batch) + d];
        queries[(d * 4u) * 16u + g] = vec4f(q0[0], q1[0], q2[0], q3[0]);
        queries[(d * 4u + 1u) * 16u + g] = vec4f(q0[1], q1[1], q2[1], q3[1]);
        queries[(d * 4u + 2u) * 16u + g] = vec4f(q0[2], q1[2], q2[2], q3[2]);
        queries[(d * 4u + 3u) * 16u + g] = vec4f(q0[3], q1[3], q2[3], q3[3]);
    }
    let row0 = min(vec4u(first_row + (mine) * 4u) + vec4u(0u, 1u, 2u, 3u), vec4u(last_row));
    let token0 = row0 / params.group;
    let head0 = first_head + row0 % params.group;
    let from0 = vec4u(first_key(token0[0]), first_key(token0[1]), first_key(token0[2]), first_key(token0[3]));
    let to0 = vec4u(end_key(token0[0]), end_key(token0[1]), end_key(token0[2]), end_key(token0[3]));
    var peak0 = vec4f(LOWEST);
    var total0 = vec4f(0.0);
    let row1 = min(vec4u(first_row + (mine + 1u) * 4u) + vec4u(0u, 1u, 2u, 3u), vec4u(last_row));
    let token1 = row1 / params.group;
    let head1 = first_head + row1 % params.group;
    let from1 = vec4u(first_key(token1[0]), first_key(token1[1]), first_key(token1[2]), first_key(token1[3]));
    let to1 = vec4u(end_key(token1[0]), end_key(token1[1]), end_key(token1[2]), end_key(token1[3]));
    var peak1 = vec4f(LOWEST);
    var total1 = vec4f(0.0);
    var o0_0 = vec4f(0.0);
    var o0_1 = vec4f(0.0);
    var o1_0 = vec4f(0.0);
    var o1_1 = vec4f(0.0);
    var o2_0 = vec4f(0.0);
    var o2_1 = vec4f(0.0);
    var o3_0 = vec4f(0.0);
    var o3_1 = vec4f(0.0);
    var o4_0 = vec4f(0.0);
    var o4_1 = vec4f(0.0);
    var o5_0 = vec4f(0.0);
    var o5_1 = vec4f(0.0);
    var o6_0 = vec4f(0.0);
    var o6_1 = vec4f(0.0);
    var o7_0 = vec4f(0.0);
    var o7_1 = vec4f(0.0);
    let unit0 = column;
    let unit1 = min(column + 16u, 19u);
    // Later rows see later keys: of this thread's, the first and the last tell what all or any see.
    let any_from = from0.x;
    let all_from = from1.w;
    let all_to = to0.x;
    let any_to = to1.w;

    for (var start = first; start < end; start += 32u) {
        tile[lane / 20u * 21u + lane % 20u] = vec4f(ahead0);
        tile[(lane + 128u) / 20u * 21u + (lane + 128u) % 20u] = vec4f(ahead1);
        tile[(lane + 256u) / 20u * 21u + (lane + 256u) % 20u] = vec4f(ahead2);
        tile[(lane + 384u) / 20u * 21u + (lane + 384u) % 20u] = vec4f(ahead3);
        tile[(lane + 512u) / 20u * 21u + (lane + 512u) % 20u] = vec4f(ahead4);
        workgroupBarrier();
        let later0 = v[base + lane % 20u
            + min(start + lane / 20u, end - 1u) * params.k_c];
        let later1 = v[base + (lane + 128u) % 20u
            + min(start + (lane + 128u) / 20u, end - 1u) * params.k_c];
        let later2 = v[base + (lane + 256u) % 20u
            + min(start + (lane + 256u) / 20u, end - 1u) * params.k_c];
        let later3 = v[base + (lane + 384u) % 20u
            + min(start + (lane + 384u) / 20u, end - 1u) * params.k_c];
        let later4 = v[base + (lane + 512u) % 20u
            + min(start + (lane + 512u) / 20u, end - 1u) * params.k_c];
        var s0_0 = vec4f(0.0);
        var s1_0 = vec4f(0.0);
        var s0_1 = vec4f(0.0);
        var s1_1 = vec4f(0.0);
        for (var u = 0u; u < 20u; u++) {
            let k0 = tile[(column) * 21u + u];
            let k1 = tile[(column + 16u) * 21u + u];
            let q0_0 = queries[(u * 4u) * 16u + mine];
            s0_0 += q0_0 * k0[0];
            s1_0 += q0_0 * k1[0];
            let q0_1 = queries[(u * 4u) * 16u + mine + 1u];
            s0_1 += q0_1 * k0[0];
            s1_1 += q0_1 * k1[0];
            let q1_0 = queries[(u * 4u + 1u) * 16u + mine];
            s0_0 += q1_0 * k0[1];
            s1_0 += q1_0 * k1[1];
            let q1_1 = queries[(u * 4u + 1u) * 16u + mine + 1u];
            s0_1 += q1_1 * k0[1];
            s1_1 += q1_1 * k1[1];
            let q2_0 = queries[(u * 4u + 2u) * 16u + mine];
            s0_0 += q2_0 * k0[2];
            s1_0 += q2_0 * k1[2];
            let q2_1 = queries[(u * 4u + 2u) * 16u + mine + 1u];
            s0_1 += q2_1 * k0[2];
            s1_1 += q2_1 * k1[2];
            let q3_0 = queries[(u * 4u + 3u) * 16u + mine];
            s0_0 += q3_0 * k0[3];
            s1_0 += q3_0 * k1[3];
            let q3_1 = queries[(u * 4u + 3u) * 16u + mine + 1u];
            s0_1 += q3_1 * k0[3];
            s1_1 += q3_1 * k1[3];
        }
        var top0 = vec4f(LOWEST);
        {
            let key = start + column;
            let seen = (vec4u(key) < to0);
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
            let seen = (vec4u(key) < to0);
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
        parts[column * 16u + mine] = top0;
        var top1 = vec4f(LOWEST);
        {
            let key = start + column;
            let seen = (vec4u(key) < to1);
            if (seen[0]) {
                s0_1[0] = score(s0_1[0], batch, head1[0], token1[0], key);
            } else {
                s0_1[0] = LOWEST;
            }
            if (seen[1]) {
                s0_1[1] = score(s0_1[1], batch, head1[1], token1[1], key);
            } else {
                s0_1[1] = LOWEST;
            }
            if (seen[2]) {
                s0_1[2] = score(s0_1[2], batch, head1[2], token1[2], key);
            } else {
                s0_1[2] = LOWEST;
            }
            if (seen[3]) {
                s0_1[3] = score(s0_1[3], batch, head1[3], token1[3], key);
            } else {
                s0_1[3] = LOWEST;
            }
            top1 = max(top1, s0_1);
        }
        {
            let key = start + column + 16u;
            let seen = (vec4u(key) < to1);
            if (seen[0]) {
                s1_1[0] = score(s1_1[0], batch, head1[0], token1[0], key);
            } else {
                s1_1[0] = LOWEST;
            }
            if (seen[1]) {
                s1_1[1] = score(s1_1[1], batch, head1[1], token1[1], key);
            } else {
                s1_1[1] = LOWEST;
            }
            if (seen[2]) {
                s1_1[2] = score(s1_1[2], batch, head1[2], token1[2], key);
            } else {
                s1_1[2] = LOWEST;
            }
            if (seen[3]) {
                s1_1[3] = score(s1_1[3], batch, head1[3], token1[3], key);
            } else {
                s1_1[3] = LOWEST;
            }
            top1 = max(top1, s1_1);
        }
        parts[column * 16u + mine + 1u] = top1;
        workgroupBarrier();
        tile[lane / 20u * 21u + lane % 20u] = vec4f(later0);
        tile[(lane + 128u) / 20u * 21u + (lane + 128u) % 20u] = vec4f(later1);
        tile[(lane + 256u) / 20u * 21u + (lane + 256u) % 20u] = vec4f(later2);
        tile[(lane + 384u) / 20u * 21u + (lane + 384u) % 20u] = vec4f(later3);
        tile[(lane + 512u) / 20u * 21u + (lane + 512u) % 20u] = vec4f(later4);
        var new0 = peak0;
        for (var i = 0u; i < 16u; i++) {
            new0 = max(new0, parts[i * 16u + mine]);
        }
        let shrink0 = exp(peak0 - new0);
        peak0 = new0;
        total0 *= shrink0;
        {
            let hidden = s0_0 == vec4f(LOWEST);
            let w = exponential(s0_0 - peak0);
            total0 += select(w, vec4f(0.0), hidden);
            weights[(column) * 17u + mine]
                = select(w, vec4f(-1.0), hidden);
        }
        {
            let hidden = s1_0 == vec4f(LOWEST);
            let w = exponential(s1_0 - peak0);
            total0 += select(w, vec4f(0.0), hidden);
            weights[(column + 16u) * 17u + mine]
                = select(w, vec4f(-1.0), hidden);
        }
        var new1 = peak1;
        for (var i = 0u; i < 16u; i++) {
            new1 = max(new1, parts[i * 16u + mine + 1u]);
        }
        let shrink1 = exp(peak1 - new1);
        peak1 = new1;
        total1 *= shrink1;
        {
            let hidden = s0_1 == vec4f(LOWEST);
            let w = exponential(s0_1 - peak1);
            total1 += select(w, vec4f(0.0), hidden);
            weights[(column) * 17u + mine + 1u]
                = select(w, vec4f(-1.0), hidden);
        }
        {
            let hidden = s1_1 == vec4f(LOWEST);
            let w = exponential(s1_1 - peak1);
            total1 += select(w, vec4f(0.0), hidden);
            weights[(column + 16u) * 17u + mine + 1u]
                = select(w, vec4f(-1.0), hidden);
        }
        workgroupBarrier();
        ahead0 = k[base + lane % 20u
            + min(start + 32u + lane / 20u, end - 1u) * params.k_c];
        ahead1 = k[base + (lane + 128u) % 20u
            + min(start + 32u + (lane + 128u) / 20u, end - 1u) * params.k_c];
        ahead2 = k[base + (lane + 256u) % 20u
            + min(start + 32u + (lane + 256u) / 20u, end - 1u) * params.k_c];
        ahead3 = k[base + (lane + 384u) % 20u
            + min(start + 32u + (lane + 384u) / 20u, end - 1u) * params.k_c];
        ahead4 = k[base + (lane + 512u) % 20u
            + min(start + 32u + (lane + 512u) / 20u, end - 1u) * params.k_c];
        o0_0 *= shrink0[0];
        o0_1 *= shrink0[0];
        o1_0 *= shrink0[1];
        o1_1 *= shrink0[1];
        o2_0 *= shrink0[2];
        o2_1 *= shrink0[2];
        o3_0 *= shrink0[3];
        o3_1 *= shrink0[3];
        o4_0 *= shrink1[0];
        o4_1 *= shrink1[0];
        o5_0 *= shrink1[1];
        o5_1 *= shrink1[1];
        o6_0 *= shrink1[2];
        o6_1 *= shrink1[2];
        o7_0 *= shrink1[3];
        o7_1 *= shrink1[3];
        let all_seen = false;
        if (all_seen) {
            for (var j = 0u; j < 32u; j += 4u) {
                {
                let v0 = tile[j * 21u + unit0];
                let v1 = tile[j * 21u + unit1];
                let w0 = weights[j * 17u + mine];
                o0_0 += w0[0] * v0;
                o0_1 += w0[0] * v1;
                o1_0 += w0[1] * v0;
                o1_1 += w0[1] * v1;
                o2_0 += w0[2] * v0;
                o2_1 += w0[2] * v1;
                o3_0 += w0[3] * v0;
                o3_1 += w0[3] * v1;
                let w1 = weights[j * 17u + mine + 1u];
                o4_0 += w1[0] * v0;
                o4_1 += w1[0] * v1;
                o5_0 += w1[1] * v0;
                o5_1 += w1[1] * v1;
                o6_0 += w1[2] * v0;
                o6_1 += w1[2] * v1;
                o7_0 += w1[3] * v0;
                o7_1 += w1[3] * v1;
                }
                {
                let v0 = tile[(j + 1u) * 21u + unit0];
                let v1 = tile[(j + 1u) * 21u + unit1];
                let w0 = weights[(j + 1u) * 17u + mine];
                o0_0 += w0[0] * v0;
                o0_1 += w0[0] * v1;
                o1_0 += w0[1] * v0;
                o1_1 += w0[1] * v1;
                o2_0 += w0[2] * v0;
                o2_1 += w0[2] * v1;
                o3_0 += w0[3] * v0;
                o3_1 += w0[3] * v1;
                let w1 = weights[(j + 1u) * 17u + mine + 1u];
                o4_0 += w1[0] * v0;
                o4_1 += w1[0] * v1;
                o5_0 += w1[1] * v0;
                o5_1 += w1[1] * v1;
                o6_0 += w1[2] * v0;
                o6_1 += w1[2] * v1;
                o7_0 += w1[3] * v0;
                o7_1 += w1[3] * v1;
                }
                {
                let v0 = tile[(j + 2u) * 21u + unit0];
                let v1 = tile[(j + 2u) * 21u + unit1];
                let w0 = weights[(j + 2u) * 17u + mine];
                o0_0 += w0[0] * v0;
                o0_1 += w0[0] * v1;
                o1_0 += w0[1] * v0;
                o1_1 += w0[1] * v1;
                o2_0 += w0[2] * v0;
                o2_1 += w0[2] * v1;
                o3_0 += w0[3] * v0;
                o3_1 += w0[3] * v1;
                let w1 = weights[(j + 2u) * 17u + mine + 1u];
                o4_0 += w1[0] * v0;
                o4_1 += w1[0] * v1;
                o5_0 += w1[1] * v0;
                o5_1 += w1[1] * v1;
                o6_0 += w1[2] * v0;
                o6_1 += w1[2] * v1;
                o7_0 += w1[3] * v0;
                o7_1 += w1[3] * v1;
                }
                {
                let v0 = tile[(j + 3u) * 21u + unit0];
                let v1 = tile[(j + 3u) * 21u + unit1];
                let w0 = weights[(j + 3u) * 17u + mine];
                o0_0 += w0[0] * v0;
                o0_1 += w0[0] * v1;
                o1_0 += w0[1] * v0;
                o1_1 += w0[1] * v1;
                o2_0 += w0[2] * v0;
                o2_1 += w0[2] * v1;
                o3_0 += w0[3] * v0;
                o3_1 += w0[3] * v1;
                let w1 = weights[(j + 3u) * 17u + mine + 1u];
                o4_0 += w1[0] * v0;
                o4_1 += w1[0] * v1;
                o5_0 += w1[1] * v0;
                o5_1 += w1[1] * v1;
                o6_0 += w1[2] * v0;
                o6_1 += w1[2] * v1;
                o7_0 += w1[3] * v0;
                o7_1 += w1[3] * v1;
                }
            }
        } else {
            let stop = min(max(any_to, start) - start, 32u);
            for (var j = max(any_from, start) - start; j < stop; j++) {
                let v0 = tile[j * 21u + unit0];
                let v1 = tile[j * 21u + unit1];
                let w0 = weights[j * 17u + mine];
                if (!(w0[0] == -1.0)) {
                    o0_0 += w0[0] * v0;
                    o0_1 += w0[0] * v1;
                }
                if (!(w0[1] == -1.0)) {
                    o1_0 += w0[1] * v0;
                    o1_1 += w0[1] * v1;
                }
                if (!(w0[2] == -1.0)) {
                    o2_0 += w0[2] * v0;
                    o2_1 += w0[2] * v1;
                }
                if (!(w0[3] == -1.0)) {
                    o3_0 += w0[3] * v0;
                    o3_1 += w0[3] * v1;
                }
                let w1 = weights[j * 17u + mine + 1u];
                if (!(w1[0] == -1.0)) {
                    o4_0 += w1[0] * v0;
                    o4_1 += w1[0] * v1;
                }
                if (!(w1[1] == -1.0)) {
                    o5_0 += w1[1] * v0;
                    o5_1 += w1[1] * v1;
                }
                if (!(w1[2] == -1.0)) {
                    o6_0 += w1[2] * v0;
                    o6_1 += w1[2] * v1;
                }
                if (!(w1[3] == -1.0)) {
                    o7_0 += w1[3] * v0;
                    o7_1 += w1[3] * v1;
                }
            }
        }
        workgroupBarrier();
    }

    parts[column * 16u + mine] = total0;
    parts[column * 16u + mine + 1u] = total1;
    workgroupBarrier();
    var sum0 = vec4f(0.0);
    for (var i = 0u; i < 16u; i++) {
        sum0 += parts[i * 16u + mine];
    }
    if (first_row + (mine) * 4u <= last_row) {
        let at = batch * params.y_b + token0[0] * params.y_s + head0[0] * params.y_h + column;
        if (column < 20u) {
            y[at] = select(o0_0 / sum0[0], vec4f(0.0), sum0[0] == 0.0);
        }
        if (column + 16u < 20u) {
            y[at + 16u] = select(o0_1 / sum0[0], vec4f(0.0), sum0[0] == 0.0);
        }
    }
    if (first_row + (mine) * 4u + 1u <= last_row) {
        let at = batch * params.y_b + token0[1] * params.y_s + head0[1] * params.y_h + column;
        if (column < 20u) {
            y[at] = select(o1_0 / sum0[1], vec4f(0.0), sum0[1] == 0.0);
        }
        if (column + 16u < 20u) {
            y[at + 16u] = select(o1_1 / sum0[1], vec4f(0.0), sum0[1] == 0.0);
        }
    }
    if (first_row + (mine) * 4u + 2u <= last_row) {
        let at = batch * params.y_b + token0[2] * params.y_s + head0[2] * params.y_h + column;
        if (column < 20u) {
            y[at] = select(o2_0 / sum0[2], vec4f(0.0), sum0[2] == 0.0);
        }
        if (column + 16u < 20u) {
            y[at + 16u] = select(o2_1 / sum0[2], vec4f(0.0), sum0[2] == 0.0);
        }
    }
    if (first_row + (mine) * 4u + 3u <= last_row) {
        let at = batch * params.y_b + token0[3] * params.y_s + head0[3] * params.y_h + column;
        if (column < 20u) {
            y[at] = select(o3_0 / sum0[3], vec4f(0.0), sum0[3] == 0.0);
        }
        if (column + 16u < 20u) {
            y[at + 16u] = select(o3_1 / sum0[3], vec4f(0.0), sum0[3] == 0.0);
        }
    }
    var sum1 = vec4f(0.0);
    for (var i = 0u; i < 16u; i++) {
        sum1 += parts[i * 16u + mine + 1u];
    }
    if (first_row + (mine + 1u) * 4u <= last_row) {
        let at = batch * params.y_b + token1[0] * params.y_s + head1[0] * params.y_h + column;
        if (column < 20u) {
            y[at] = select(o4_0 / sum1[0], vec4f(0.0), sum1[0] == 0.0);
        }
        if (column + 16u < 20u) {
            y[at + 16u] = select(o4_1 / sum1[0], vec4f(0.0), sum1[0] == 0.0);
        }
    }
    if (first_row + (mine + 1u) * 4u + 1u <= last_row) {
        let at = batch * params.y_b + token1[1] * params.y_s + head1[1] * params.y_h + column;
        if (column < 20u) {
            y[at] = select(o5_0 / sum1[1], vec4f(0.0), sum1[1] == 0.0);
        }
        if (column + 16u < 20u) {
            y[at + 16u] = select(o5_1 / sum1[1], vec4f(0.0), sum1[1] == 0.0);
        }
    }
    if (first_row + (mine + 1u) * 4u + 2u <= last_row) {
        let at = batch * params.y_b + token1[2] * params.y_s + head1[2] * params.y_h + column;
        if (column < 20u) {
            y[at] = select(o6_0 / sum1[2], vec4f(0.0), sum1[2] == 0.0);
        }
        if (column + 16u < 20u) {
            y[at + 16u] = select(o6_1 / sum1[2], vec4f(0.0), sum1[2] == 0.0);
        }
    }
    if (first_row + (mine + 1u) * 4u + 3u <= last_row) {
        let at = batch * params.y_b + token1[3] * params.y_s + head1[3] * params.y_h + column;
        if (column < 20u) {
            y[at] = select(o7_0 / sum1[3], vec4f(0.0), sum1[3] == 0.0);
        }
        if (column + 16u < 20u) {
            y[at + 16u] = select(o7_1 / sum1[3], vec4f(0.0), sum1[3] == 0.0);
        }
    }
}
