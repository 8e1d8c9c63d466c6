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
    q_heads: u32,
    rounds: u32,
    chunk: u32,
    splits: u32,
}

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> sums: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> stats: array<vec2<f32>>;
@group(0) @binding(5) var<uniform> params: Params;

var<workgroup> queries: array<vec4<f32>, 48>;
var<workgroup> pool: array<f32, 768>;        // parts of products, later parts of the output
var<workgroup> weights: array<f32, 192>;
var<workgroup> peaks: array<f32, 3>;   // parts of maxima, later of l

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

@compute @workgroup_size(4)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let split = group.x;
    let kv_head = group.y / params.rounds;
    let first_head = group.y % params.rounds * 3u;
    let batch = group.z / params.S;
    let token = group.z % params.S;
    let begin = max(first_key(token), split * params.chunk);
    let end = min(end_key(token), (split + 1u) * params.chunk);
    let base = batch * params.k_b + kv_head * params.k_h;

    // A workgroup past the last head of an uneven group works on that head again and writes the same.
    let last_head = params.group - 1u;
    let head0 = kv_head * params.group + min(first_head + 0u, last_head);
    let head1 = kv_head * params.group + min(first_head + 1u, last_head);
    let head2 = kv_head * params.group + min(first_head + 2u, last_head);
    let q_start = batch * params.q_b + token * params.q_s;
    for (var u = lane; u < 16u; u += 4u) {
        queries[0u + u] = q[q_start + head0 * params.q_h + u];
    }
    for (var u = lane; u < 16u; u += 4u) {
        queries[16u + u] = q[q_start + head1 * params.q_h + u];
    }
    for (var u = lane; u < 16u; u += 4u) {
        queries[32u + u] = q[q_start + head2 * params.q_h + u];
    }
    var peak0 = LOWEST;
    var total0 = 0.0;
    var o0_0 = vec4<f32>(0.0);
    var o0_1 = vec4<f32>(0.0);
    var o0_2 = vec4<f32>(0.0);
    var o0_3 = vec4<f32>(0.0);
    var peak1 = LOWEST;
    var total1 = 0.0;
    var o1_0 = vec4<f32>(0.0);
    var o1_1 = vec4<f32>(0.0);
    var o1_2 = vec4<f32>(0.0);
    var o1_3 = vec4<f32>(0.0);
    var peak2 = LOWEST;
    var total2 = 0.0;
    var o2_0 = vec4<f32>(0.0);
    var o2_1 = vec4<f32>(0.0);
    var o2_2 = vec4<f32>(0.0);
    var o2_3 = vec4<f32>(0.0);
    let quarter = lane % 4u;
    let column = lane % 4u;
    let slice = lane / 4u;
    workgroupBarrier();

    for (var start = begin; start < end; start += 64u) {
        let count = min(end - start, 64u);
        for (var r = lane / 4u; r < count; r += 4u) {
            let at0 = base + (start + min(r + 0u, count - 1u)) * params.k_c;
            let at1 = base + (start + min(r + 1u, count - 1u)) * params.k_c;
            let at2 = base + (start + min(r + 2u, count - 1u)) * params.k_c;
            let at3 = base + (start + min(r + 3u, count - 1u)) * params.k_c;
            var s0_0 = 0.0;
            var s0_1 = 0.0;
            var s0_2 = 0.0;
            var s0_3 = 0.0;
            var s1_0 = 0.0;
            var s1_1 = 0.0;
            var s1_2 = 0.0;
            var s1_3 = 0.0;
            var s2_0 = 0.0;
            var s2_1 = 0.0;
            var s2_2 = 0.0;
            var s2_3 = 0.0;
            for (var u = quarter; u < 16u; u += 4u) {
                let k0 = vec4<f32>(k[at0 + u]);
                let k1 = vec4<f32>(k[at1 + u]);
                let k2 = vec4<f32>(k[at2 + u]);
                let k3 = vec4<f32>(k[at3 + u]);
                let q0 = queries[0u + u];
                s0_0 += dot(q0, k0);
                s0_1 += dot(q0, k1);
                s0_2 += dot(q0, k2);
                s0_3 += dot(q0, k3);
                let q1 = queries[16u + u];
                s1_0 += dot(q1, k0);
                s1_1 += dot(q1, k1);
                s1_2 += dot(q1, k2);
                s1_3 += dot(q1, k3);
                let q2 = queries[32u + u];
                s2_0 += dot(q2, k0);
                s2_1 += dot(q2, k1);
                s2_2 += dot(q2, k2);
                s2_3 += dot(q2, k3);
            }
            if (r + 0u < count) {
                let p = (r + 0u) * 12u + quarter;
                pool[p + 0u] = s0_0;
                pool[p + 4u] = s1_0;
                pool[p + 8u] = s2_0;
            }
            if (r + 1u < count) {
                let p = (r + 1u) * 12u + quarter;
                pool[p + 0u] = s0_1;
                pool[p + 4u] = s1_1;
                pool[p + 8u] = s2_1;
            }
            if (r + 2u < count) {
                let p = (r + 2u) * 12u + quarter;
                pool[p + 0u] = s0_2;
                pool[p + 4u] = s1_2;
                pool[p + 8u] = s2_2;
            }
            if (r + 3u < count) {
                let p = (r + 3u) * 12u + quarter;
                pool[p + 0u] = s0_3;
                pool[p + 4u] = s1_3;
                pool[p + 8u] = s2_3;
            }
        }
        workgroupBarrier();
        for (var i = lane; i < count; i += 4u) {
            let p = i * 12u + 0u;
            let product = (pool[p] + pool[p + 1u]) + (pool[p + 2u] + pool[p + 3u]);
            weights[0u + i] = score(product, batch, head0, token, start + i);
        }
        for (var i = lane; i < count; i += 4u) {
            let p = i * 12u + 4u;
            let product = (pool[p] + pool[p + 1u]) + (pool[p + 2u] + pool[p + 3u]);
            weights[64u + i] = score(product, batch, head1, token, start + i);
        }
        for (var i = lane; i < count; i += 4u) {
            let p = i * 12u + 8u;
            let product = (pool[p] + pool[p + 1u]) + (pool[p + 2u] + pool[p + 3u]);
            weights[128u + i] = score(product, batch, head2, token, start + i);
        }
        workgroupBarrier();
        for (var p = lane; p < 3u; p += 4u) {
            var peak = LOWEST;
            for (var i = p % 1u; i < count; i += 1u) {
                peak = max(peak, weights[p / 1u * 64u + i]);
            }
            peaks[p] = peak;
        }
        workgroupBarrier();
        var new0 = peak0;
        for (var i = 0u; i < 1u; i++) {
            new0 = max(new0, peaks[0u + i]);
        }
        let shrink0 = exp(peak0 - new0);
        peak0 = new0;
        total0 *= shrink0;
        o0_0 *= shrink0;
        o0_1 *= shrink0;
        o0_2 *= shrink0;
        o0_3 *= shrink0;
        for (var i = lane; i < count; i += 4u) {
            let s = weights[0u + i];
            weights[0u + i] = exponential(s - peak0);
        }
        var new1 = peak1;
        for (var i = 0u; i < 1u; i++) {
            new1 = max(new1, peaks[1u + i]);
        }
        let shrink1 = exp(peak1 - new1);
        peak1 = new1;
        total1 *= shrink1;
        o1_0 *= shrink1;
        o1_1 *= shrink1;
        o1_2 *= shrink1;
        o1_3 *= shrink1;
        for (var i = lane; i < count; i += 4u) {
            let s = weights[64u + i];
            weights[64u + i] = exponential(s - peak1);
        }
        var new2 = peak2;
        for (var i = 0u; i < 1u; i++) {
            new2 = max(new2, peaks[2u + i]);
        }
        let shrink2 = exp(peak2 - new2);
        peak2 = new2;
        total2 *= shrink2;
        o2_0 *= shrink2;
        o2_1 *= shrink2;
        o2_2 *= shrink2;
        o2_3 *= shrink2;
        for (var i = lane; i < count; i += 4u) {
            let s = weights[128u + i];
            weights[128u + i] = exponential(s - peak2);
        }
        workgroupBarrier();
        let whole = select(0u, count - count % 4u, slice < 1u);
        for (var i = slice * 4u; i < whole; i += 4u) {
            let row = base + (start + i) * params.k_c + column;
            let w0_0 = weights[i + 0u];
            let w0_1 = weights[i + 1u];
            let w0_2 = weights[i + 2u];
            let w0_3 = weights[i + 3u];
            let w1_0 = weights[i + 64u];
            let w1_1 = weights[i + 65u];
            let w1_2 = weights[i + 66u];
            let w1_3 = weights[i + 67u];
            let w2_0 = weights[i + 128u];
            let w2_1 = weights[i + 129u];
            let w2_2 = weights[i + 130u];
            let w2_3 = weights[i + 131u];
            total0 += w0_0 + w0_1 + w0_2 + w0_3;
            total1 += w1_0 + w1_1 + w1_2 + w1_3;
            total2 += w2_0 + w2_1 + w2_2 + w2_3;
            let v0_0 = vec4<f32>(v[row + 0u]);
            let v0_1 = vec4<f32>(v[row + 0u + 1u * params.k_c]);
            let v0_2 = vec4<f32>(v[row + 0u + 2u * params.k_c]);
            let v0_3 = vec4<f32>(v[row + 0u + 3u * params.k_c]);
            o0_0 += w0_0 * v0_0 + w0_1 * v0_1 + w0_2 * v0_2 + w0_3 * v0_3;
            o1_0 += w1_0 * v0_0 + w1_1 * v0_1 + w1_2 * v0_2 + w1_3 * v0_3;
            o2_0 += w2_0 * v0_0 + w2_1 * v0_1 + w2_2 * v0_2 + w2_3 * v0_3;
            let v1_0 = vec4<f32>(v[row + 4u]);
            let v1_1 = vec4<f32>(v[row + 4u + 1u * params.k_c]);
            let v1_2 = vec4<f32>(v[row + 4u + 2u * params.k_c]);
            let v1_3 = vec4<f32>(v[row + 4u + 3u * params.k_c]);
            o0_1 += w0_0 * v1_0 + w0_1 * v1_1 + w0_2 * v1_2 + w0_3 * v1_3;
            o1_1 += w1_0 * v1_0 + w1_1 * v1_1 + w1_2 * v1_2 + w1_3 * v1_3;
            o2_1 += w2_0 * v1_0 + w2_1 * v1_1 + w2_2 * v1_2 + w2_3 * v1_3;
            let v2_0 = vec4<f32>(v[row + 8u]);
            let v2_1 = vec4<f32>(v[row + 8u + 1u * params.k_c]);
            let v2_2 = vec4<f32>(v[row + 8u + 2u * params.k_c]);
            let v2_3 = vec4<f32>(v[row + 8u + 3u * params.k_c]);
            o0_2 += w0_0 * v2_0 + w0_1 * v2_1 + w0_2 * v2_2 + w0_3 * v2_3;
            o1_2 += w1_0 * v2_0 + w1_1 * v2_1 + w1_2 * v2_2 + w1_3 * v2_3;
            o2_2 += w2_0 * v2_0 + w2_1 * v2_1 + w2_2 * v2_2 + w2_3 * v2_3;
            let v3_0 = vec4<f32>(v[row + 12u]);
            let v3_1 = vec4<f32>(v[row + 12u + 1u * params.k_c]);
            let v3_2 = vec4<f32>(v[row + 12u + 2u * params.k_c]);
            let v3_3 = vec4<f32>(v[row + 12u + 3u * params.k_c]);
            o0_3 += w0_0 * v3_0 + w0_1 * v3_1 + w0_2 * v3_2 + w0_3 * v3_3;
            o1_3 += w1_0 * v3_0 + w1_1 * v3_1 + w1_2 * v3_2 + w1_3 * v3_3;
            o2_3 += w2_0 * v3_0 + w2_1 * v3_1 + w2_2 * v3_2 + w2_3 * v3_3;
        }
        let rest = count - count % 4u + select(slice, count, slice >= 1u);
        for (var i = rest; i < count; i += 1u) {
            let row = base + (start + i) * params.k_c + column;
            let w0_0 = weights[i + 0u];
            let w1_0 = weights[i + 64u];
            let w2_0 = weights[i + 128u];
            total0 += w0_0;
            total1 += w1_0;
            total2 += w2_0;
            let v0_0 = vec4<f32>(v[row + 0u]);
            o0_0 += w0_0 * v0_0;
            o1_0 += w1_0 * v0_0;
            o2_0 += w2_0 * v0_0;
            let v1_0 = vec4<f32>(v[row + 4u]);
            o0_1 += w0_0 * v1_0;
            o1_1 += w1_0 * v1_0;
            o2_1 += w2_0 * v1_0;
            let v2_0 = vec4<f32>(v[row + 8u]);
            o0_2 += w0_0 * v2_0;
            o1_2 += w1_0 * v2_0;
            o2_2 += w2_0 * v2_0;
            let v3_0 = vec4<f32>(v[row + 12u]);
            o0_3 += w0_0 * v3_0;
            o1_3 += w1_0 * v3_0;
            o2_3 += w2_0 * v3_0;
        }
    }

    if (slice < 1u) {
        if (column == 0u) {
            peaks[0u + slice] = total0;
        }
        if (column + 0u < 16u) {
            let p = ((slice * 3u + 0u) * 16u + column + 0u) * 4u;
            pool[p + 0u] = o0_0[0];
            pool[p + 1u] = o0_0[1];
            pool[p + 2u] = o0_0[2];
            pool[p + 3u] = o0_0[3];
        }
        if (column + 4u < 16u) {
            let p = ((slice * 3u + 0u) * 16u + column + 4u) * 4u;
            pool[p + 0u] = o0_1[0];
            pool[p + 1u] = o0_1[1];
            pool[p + 2u] = o0_1[2];
            pool[p + 3u] = o0_1[3];
        }
        if (column + 8u < 16u) {
            let p = ((slice * 3u + 0u) * 16u + column + 8u) * 4u;
            pool[p + 0u] = o0_2[0];
            pool[p + 1u] = o0_2[1];
            pool[p + 2u] = o0_2[2];
            pool[p + 3u] = o0_2[3];
        }
        if (column + 12u < 16u) {
            let p = ((slice * 3u + 0u) * 16u + column + 12u) * 4u;
            pool[p + 0u] = o0_3[0];
            pool[p + 1u] = o0_3[1];
            pool[p + 2u] = o0_3[2];
            pool[p + 3u] = o0_3[3];
        }
        if (column == 0u) {
            peaks[1u + slice] = total1;
        }
        if (column + 0u < 16u) {
            let p = ((slice * 3u + 1u) * 16u + column + 0u) * 4u;
            pool[p + 0u] = o1_0[0];
            pool[p + 1u] = o1_0[1];
            pool[p + 2u] = o1_0[2];
            pool[p + 3u] = o1_0[3];
        }
        if (column + 4u < 16u) {
            let p = ((slice * 3u + 1u) * 16u + column + 4u) * 4u;
            pool[p + 0u] = o1_1[0];
            pool[p + 1u] = o1_1[1];
            pool[p + 2u] = o1_1[2];
            pool[p + 3u] = o1_1[3];
        }
        if (column + 8u < 16u) {
            let p = ((slice * 3u + 1u) * 16u + column + 8u) * 4u;
            pool[p + 0u] = o1_2[0];
            pool[p + 1u] = o1_2[1];
            pool[p + 2u] = o1_2[2];
            pool[p + 3u] = o1_2[3];
        }
        if (column + 12u < 16u) {
            let p = ((slice * 3u + 1u) * 16u + column + 12u) * 4u;
            pool[p + 0u] = o1_3[0];
            pool[p + 1u] = o1_3[1];
            pool[p + 2u] = o1_3[2];
            pool[p + 3u] = o1_3[3];
        }
        if (column == 0u) {
            peaks[2u + slice] = total2;
        }
        if (column + 0u < 16u) {
            let p = ((slice * 3u + 2u) * 16u + column + 0u) * 4u;
            pool[p + 0u] = o2_0[0];
            pool[p + 1u] = o2_0[1];
            pool[p + 2u] = o2_0[2];
            pool[p + 3u] = o2_0[3];
        }
        if (column + 4u < 16u) {
            let p = ((slice * 3u + 2u) * 16u + column + 4u) * 4u;
            pool[p + 0u] = o2_1[0];
            pool[p + 1u] = o2_1[1];
            pool[p + 2u] = o2_1[2];
            pool[p + 3u] = o2_1[3];
        }
        if (column + 8u < 16u) {
            let p = ((slice * 3u + 2u) * 16u + column + 8u) * 4u;
            pool[p + 0u] = o2_2[0];
            pool[p + 1u] = o2_2[1];
            pool[p + 2u] = o2_2[2];
            pool[p + 3u] = o2_2[3];
        }
        if (column + 12u < 16u) {
            let p = ((slice * 3u + 2u) * 16u + column + 12u) * 4u;
            pool[p + 0u] = o2_3[0];
            pool[p + 1u] = o2_3[1];
            pool[p + 2u] = o2_3[2];
            pool[p + 3u] = o2_3[3];
        }
    }
    workgroupBarrier();
    var l0 = 0.0;
    for (var i = 0u; i < 1u; i++) {
        l0 += peaks[0u + i];
    }
    let row0 = (group.z * params.q_heads + head0) * params.splits + split;
    if (lane == 0u) {
        stats[row0] = vec2f(peak0, l0);
    }
    for (var u = lane; u < 16u; u += 4u) {
        var o = vec4<f32>(0.0);
        for (var i = 0u; i < 1u; i++) {
            let p = ((i * 3u + 0u) * 16u + u) * 4u;
            o += vec4f(pool[p], pool[p + 1u], pool[p + 2u], pool[p + 3u]);
        }
        sums[row0 * 16u + u] = o;
    }
    var l1 = 0.0;
    for (var i = 0u; i < 1u; i++) {
        l1 += peaks[1u + i];
    }
    let row1 = (group.z * params.q_heads + head1) * params.splits + split;
    if (lane == 0u) {
        stats[row1] = vec2f(peak1, l1);
    }
    for (var u = lane; u < 16u; u += 4u) {
        var o = vec4<f32>(0.0);
        for (var i = 0u; i < 1u; i++) {
            let p = ((i * 3u + 1u) * 16u + u) * 4u;
            o += vec4f(pool[p], pool[p + 1u], pool[p + 2u], pool[p + 3u]);
        }
        sums[row1 * 16u + u] = o;
    }
    var l2 = 0.0;
    for (var i = 0u; i < 1u; i++) {
        l2 += peaks[2u + i];
    }
    let row2 = (group.z * params.q_heads + head2) * params.splits + split;
    if (lane == 0u) {
        stats[row2] = vec2f(peak2, l2);
    }
    for (var u = lane; u < 16u; u += 4u) {
        var o = vec4<f32>(0.0);
        for (var i = 0u; i < 1u; i++) {
            let p = ((i * 3u + 2u) * 16u + u) * 4u;
            o += vec4f(pool[p], pool[p + 1u], pool[p + 2u], pool[p + 3u]);
        }
        sums[row2 * 16u + u] = o;
    }
}
