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
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> params: Params;

// Q [d][four rows]; tiles [key][four d]; weights [key][four rows]; maxima, at last sums, [column][four rows]
var<workgroup> queries: array<vec4<f32>, 512>;
var<workgroup> tile: array<vec4<f32>, 1088>;   // K, then V
var<workgroup> weights: array<vec4<f32>, 576>;
var<workgroup> parts: array<vec4<f32>, 128>;

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
    let first_row = (grid.y - 1u - group.y) * 32u;
    let first_head = group.x * params.group;
    let batch = group.z;
    let base = batch * params.k_b + group.x * params.k_h;
    let column = lane / 2u % 16u;
    let mine = (lane / 32u * 2u + lane % 2u);
    let end = end_key(min(first_row + 31u, last_row) / params.group);
    let first = first_key(first_row / params.group) / 64u * 64u;
    var ahead0: vec4<f32>;
    var ahead1: vec4<f32>;
    var ahead2: vec4<f32>;
    var ahead3: vec4<f32>;
    var ahead4: vec4<f32>;
    var ahead5: vec4<f32>;
    var ahead6: vec4<f32>;
    var ahead7: vec4<f32>;
    ahead0 = k[base + lane % 16u
            + min(first + lane / 16u, end - 1u) * params.k_c];
        ahead1 = k[base + (lane + 128u) % 16u
            + min(first + (lane + 128u) / 16u, end - 1u) * params.k_c];
        ahead2 = k[base + (lane + 256u) % 16u
            + min(first + (lane + 256u) / 16u, end - 1u) * params.k_c];
        ahead3 = k[base + (lane + 384u) % 16u
            + min(first + (lane + 384u) / 16u, end - 1u) * params.k_c];
        ahead4 = k[base + (lane + 512u) % 16u
            + min(first + (lane + 512u) / 16u, end - 1u) * params.k_c];
        ahead5 = k[base + (lane + 640u) % 16u
            + min(first + (lane + 640u) / 16u, end - 1u) * params.k_c];
        ahead6 = k[base + (lane + 768u) % 16u
            + min(first + (lane + 768u) / 16u, end - 1u) * params.k_c];
        ahead7 = k[base + (lane + 896u) % 16u
            + min(first + (lane + 896u) / 16u, end - 1u) * params.k_c];
    for (var i = lane; i < 128u; i += 128u) {
        let d = i % 16u;
        let g = i / 16u;
        let q0 = q[row_start(min(first_row + g * 4u, last_row), first_head, batch) + d];
        let q1 = q[row_start(min(first_row + g * 4u + 1u, last_row), first_head, batch) + d];
        let q2 = q[row_start(min(first_row + g * 4u + 2u, last_row), first_head, batch) + d];
        let q3 = q[row_start(min(first_row + g * 4u + 3u, last_row), first_head, batch) + d];
        queries[(d * 4u) * 8u + g] = vec4f(q0[0], q1[0], q2[0], q3[0]);
        queries[(d * 4u + 1u) * 8u + g] = vec4f(q0[1], q1[1], q2[1], q3[1]);
        queries[(d * 4u + 2u) * 8u + g] = vec4f(q0[2], q1[2], q2[2], q3[2]);
        queries[(d * 4u + 3u) * 8u + g] = vec4f(q0[3], q1[3], q2[3], q3[3]);
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
    let unit0 = column;
    // Later rows see later keys: of this thread's, the first and the last tell what all or any see.
    let any_from = from0.x;
    let all_from = from0.w;
    let all_to = to0.x;
    let any_to = to0.w;

    for (var start = first; start < end; start += 64u) {
        tile[lane / 16u * 17u + lane % 16u] = vec4f(ahead0);
        tile[(lane + 128u) / 16u * 17u + (lane + 128u) % 16u] = vec4f(ahead1);
        tile[(lane + 256u) / 16u * 17u + (lane + 256u) % 16u] = vec4f(ahead2);
        tile[(lane + 384u) / 16u * 17u + (lane + 384u) % 16u] = vec4f(ahead3);
        tile[(lane + 512u) / 16u * 17u + (lane + 512u) % 16u] = vec4f(ahead4);
        tile[(lane + 640u) / 16u * 17u + (lane + 640u) % 16u] = vec4f(ahead5);
        tile[(lane + 768u) / 16u * 17u + (lane + 768u) % 16u] = vec4f(ahead6);
        tile[(lane + 896u) / 16u * 17u + (lane + 896u) % 16u] = vec4f(ahead7);
        workgroupBarrier();
        let later0 = v[base + lane % 16u
            + min(start + lane / 16u, end - 1u) * params.k_c];
        let later1 = v[base + (lane + 128u) % 16u
            + min(start + (lane + 128u) / 16u, end - 1u) * params.k_c];
        let later2 = v[base + (lane + 256u) % 16u
            + min(start + (lane + 256u) / 16u, end - 1u) * params.k_c];
        let later3 = v[base + (lane + 384u) % 16u
            + min(start + (lane + 384u) / 16u, end - 1u) * params.k_c];
        let later4 = v[base + (lane + 512u) % 16u
            + min(start + (lane + 512u) / 16u, end - 1u) * params.k_c];
        let later5 = v[base + (lane + 640u) % 16u
            + min(start + (lane + 640u) / 16u, end - 1u) * params.k_c];
        let later6 = v[base + (lane + 768u) % 16u
            + min(start + (lane + 768u) / 16u, end - 1u) * params.k_c];
        let later7 = v[base + (lane + 896u) % 16u
            + min(start + (lane + 896u) / 16u, end - 1u) * params.k_c];
        var s0_0 = vec4f(0.0);
        var s1_0 = vec4f(0.0);
        var s2_0 = vec4f(0.0);
        var s3_0 = vec4f(0.0);
        for (var u = 0u; u < 16u; u++) {
            let k0 = tile[(column) * 17u + u];
            let k1 = tile[(column + 16u) * 17u + u];
            let k2 = tile[(column + 32u) * 17u + u];
            let k3 = tile[(column + 48u) * 17u + u];
            let q0_0 = queries[(u * 4u) * 8u + mine];
            s0_0 += q0_0 * k0[0];
            s1_0 += q0_0 * k1[0];
            s2_0 += q0_0 * k2[0];
            s3_0 += q0_0 * k3[0];
            let q1_0 = queries[(u * 4u + 1u) * 8u + mine];
            s0_0 += q1_0 * k0[1];
            s1_0 += q1_0 * k1[1];
            s2_0 += q1_0 * k2[1];
            s3_0 += q1_0 * k3[1];
            let q2_0 = queries[(u * 4u + 2u) * 8u + mine];
            s0_0 += q2_0 * k0[2];
            s1_0 += q2_0 * k1[2];
            s2_0 += q2_0 * k2[2];
            s3_0 += q2_0 * k3[2];
            let q3_0 = queries[(u * 4u + 3u) * 8u + mine];
            s0_0 += q3_0 * k0[3];
            s1_0 += q3_0 * k1[3];
            s2_0 += q3_0 * k2[3];
            s3_0 += q3_0 * k3[3];
        }
        var top0 = vec4f(LOWEST);
        {
            let key = start + column;
            let seen = (vec4u(key) < to0);
            s0_0[0] = select(LOWEST, score(s0_0[0], 0u, 0u, 0u, key), seen[0]);
            s0_0[1] = select(LOWEST, score(s0_0[1], 0u, 0u, 0u, key), seen[1]);
            s0_0[2] = select(LOWEST, score(s0_0[2], 0u, 0u, 0u, key), seen[2]);
            s0_0[3] = select(LOWEST, score(s0_0[3], 0u, 0u, 0u, key), seen[3]);
            top0 = max(top0, s0_0);
        }
        {
            let key = start + column + 16u;
            let seen = (vec4u(key) < to0);
            s1_0[0] = select(LOWEST, score(s1_0[0], 0u, 0u, 0u, key), seen[0]);
            s1_0[1] = select(LOWEST, score(s1_0[1], 0u, 0u, 0u, key), seen[1]);
            s1_0[2] = select(LOWEST, score(s1_0[2], 0u, 0u, 0u, key), seen[2]);
            s1_0[3] = select(LOWEST, score(s1_0[3], 0u, 0u, 0u, key), seen[3]);
            top0 = max(top0, s1_0);
        }
        {
            let key = start + column + 32u;
            let seen = (vec4u(key) < to0);
            s2_0[0] = select(LOWEST, score(s2_0[0], 0u, 0u, 0u, key), seen[0]);
            s2_0[1] = select(LOWEST, score(s2_0[1], 0u, 0u, 0u, key), seen[1]);
            s2_0[2] = select(LOWEST, score(s2_0[2], 0u, 0u, 0u, key), seen[2]);
            s2_0[3] = select(LOWEST, score(s2_0[3], 0u, 0u, 0u, key), seen[3]);
            top0 = max(top0, s2_0);
        }
        {
            let key = start + column + 48u;
            let seen = (vec4u(key) < to0);
            s3_0[0] = select(LOWEST, score(s3_0[0], 0u, 0u, 0u, key), seen[0]);
            s3_0[1] = select(LOWEST, score(s3_0[1], 0u, 0u, 0u, key), seen[1]);
            s3_0[2] = select(LOWEST, score(s3_0[2], 0u, 0u, 0u, key), seen[2]);
            s3_0[3] = select(LOWEST, score(s3_0[3], 0u, 0u, 0u, key), seen[3]);
            top0 = max(top0, s3_0);
        }
        parts[column * 8u + mine] = top0;
        workgroupBarrier();
        tile[lane / 16u * 17u + lane % 16u] = vec4f(later0);
        tile[(lane + 128u) / 16u * 17u + (lane + 128u) % 16u] = vec4f(later1);
        tile[(lane + 256u) / 16u * 17u + (lane + 256u) % 16u] = vec4f(later2);
        tile[(lane + 384u) / 16u * 17u + (lane + 384u) % 16u] = vec4f(later3);
        tile[(lane + 512u) / 16u * 17u + (lane + 512u) % 16u] = vec4f(later4);
        tile[(lane + 640u) / 16u * 17u + (lane + 640u) % 16u] = vec4f(later5);
        tile[(lane + 768u) / 16u * 17u + (lane + 768u) % 16u] = vec4f(later6);
        tile[(lane + 896u) / 16u * 17u + (lane + 896u) % 16u] = vec4f(later7);
        var new0 = peak0;
        for (var i = 0u; i < 16u; i++) {
            new0 = max(new0, parts[i * 8u + mine]);
        }
        let shrink0 = exp(peak0 - new0);
        peak0 = new0;
        total0 *= shrink0;
        {
            let hidden = s0_0 == vec4f(LOWEST);
            let w = exponential(s0_0 - peak0);
            total0 += select(w, vec4f(0.0), hidden);
            weights[(column) * 9u + mine]
                = select(w, vec4f(-1.0), hidden);
        }
        {
            let hidden = s1_0 == vec4f(LOWEST);
            let w = exponential(s1_0 - peak0);
            total0 += select(w, vec4f(0.0), hidden);
            weights[(column + 16u) * 9u + mine]
                = select(w, vec4f(-1.0), hidden);
        }
        {
            let hidden = s2_0 == vec4f(LOWEST);
            let w = exponential(s2_0 - peak0);
            total0 += select(w, vec4f(0.0), hidden);
            weights[(column + 32u) * 9u + mine]
                = select(w, vec4f(-1.0), hidden);
        }
        {
            let hidden = s3_0 == vec4f(LOWEST);
            let w = exponential(s3_0 - peak0);
            total0 += select(w, vec4f(0.0), hidden);
            weights[(column + 48u) * 9u + mine]
                = select(w, vec4f(-1.0), hidden);
        }
        workgroupBarrier();
        ahead0 = k[base + lane % 16u
            + min(start + 64u + lane / 16u, end - 1u) * params.k_c];
        ahead1 = k[base + (lane + 128u) % 16u
            + min(start + 64u + (lane + 128u) / 16u, end - 1u) * params.k_c];
        ahead2 = k[base + (lane + 256u) % 16u
            + min(start + 64u + (lane + 256u) / 16u, end - 1u) * params.k_c];
        ahead3 = k[base + (lane + 384u) % 16u
            + min(start + 64u + (lane + 384u) / 16u, end - 1u) * params.k_c];
        ahead4 = k[base + (lane + 512u) % 16u
            + min(start + 64u + (lane + 512u) / 16u, end - 1u) * params.k_c];
        ahead5 = k[base + (lane + 640u) % 16u
            + min(start + 64u + (lane + 640u) / 16u, end - 1u) * params.k_c];
        ahead6 = k[base + (lane + 768u) % 16u
            + min(start + 64u + (lane + 768u) / 16u, end - 1u) * params.k_c];
        ahead7 = k[base + (lane + 896u) % 16u
            + min(start + 64u + (lane + 896u) / 16u, end - 1u) * params.k_c];
        o0_0 *= shrink0[0];
        o1_0 *= shrink0[1];
        o2_0 *= shrink0[2];
        o3_0 *= shrink0[3];
        let all_seen = start >= all_from && start + 64u <= all_to;
        if (all_seen) {
            for (var j = 0u; j < 64u; j += 4u) {
                {
                let v0 = tile[j * 17u + unit0];
                let w0 = weights[j * 9u + mine];
                o0_0 += w0[0] * v0;
                o1_0 += w0[1] * v0;
                o2_0 += w0[2] * v0;
                o3_0 += w0[3] * v0;
                }
                {
                let v0 = tile[(j + 1u) * 17u + unit0];
                let w0 = weights[(j + 1u) * 9u + mine];
                o0_0 += w0[0] * v0;
                o1_0 += w0[1] * v0;
                o2_0 += w0[2] * v0;
                o3_0 += w0[3] * v0;
                }
                {
                let v0 = tile[(j + 2u) * 17u + unit0];
                let w0 = weights[(j + 2u) * 9u + mine];
                o0_0 += w0[0] * v0;
                o1_0 += w0[1] * v0;
                o2_0 += w0[2] * v0;
                o3_0 += w0[3] * v0;
                }
                {
                let v0 = tile[(j + 3u) * 17u + unit0];
                let w0 = weights[(j + 3u) * 9u + mine];
                o0_0 += w0[0] * v0;
                o1_0 += w0[1] * v0;
                o2_0 += w0[2] * v0;
                o3_0 += w0[3] * v0;
                }
            }
        } else {
            let stop = min(max(any_to, start) - start, 64u);
            for (var j = max(any_from, start) - start; j < stop; j++) {
                let v0 = tile[j * 17u + unit0];
                let w0 = weights[j * 9u + mine];
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
        workgroupBarrier();
    }

    parts[column * 8u + mine] = total0;
    workgroupBarrier();
    var sum0 = vec4f(0.0);
    for (var i = 0u; i < 16u; i++) {
        sum0 += parts[i * 8u + mine];
    }
    if (first_row + (mine) * 4u <= last_row) {
        let at = batch * params.y_b + token0[0] * params.y_s + head0[0] * params.y_h + column;
        if (column < 16u) {
            y[at] = select(o0_0 / sum0[0], vec4f(0.0), sum0[0] == 0.0);
        }
    }
    if (first_row + (mine) * 4u + 1u <= last_row) {
        let at = batch * params.y_b + token0[1] * params.y_s + head0[1] * params.y_h + column;
        if (column < 16u) {
            y[at] = select(o1_0 / sum0[1], vec4f(0.0), sum0[1] == 0.0);
        }
    }
    if (first_row + (mine) * 4u + 2u <= last_row) {
        let at = batch * params.y_b + token0[2] * params.y_s + head0[2] * params.y_h + column;
        if (column < 16u) {
            y[at] = select(o2_0 / sum0[2], vec4f(0.0), sum0[2] == 0.0);
        }
    }
    if (first_row + (mine) * 4u + 3u <= last_row) {
        let at = batch * params.y_b + token0[3] * params.y_s + head0[3] * params.y_h + column;
        if (column < 16u) {
            y[at] = select(o3_0 / sum0[3], vec4f(0.0), sum0[3] == 0.0);
        }
    }
}
