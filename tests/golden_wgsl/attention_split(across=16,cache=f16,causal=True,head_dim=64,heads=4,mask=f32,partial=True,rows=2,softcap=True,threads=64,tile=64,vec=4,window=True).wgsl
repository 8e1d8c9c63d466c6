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
    q_heads: u32,
    rounds: u32,
    chunk: u32,
    splits: u32,
}

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k: array<vec4<f16>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<f16>>;
@group(0) @binding(3) var<storage, read> mask: array<f32>;
@group(0) @binding(4) var<storage, read_write> sums: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> stats: array<vec2<f32>>;
@group(0) @binding(6) var<uniform> params: Params;

var<workgroup> queries: array<vec4<f32>, 64>;
var<workgroup> pool: array<f32, 1024>;        // parts of products, later parts of the output
var<workgroup> weights: array<f32, 256>;
var<workgroup> peaks: array<f32, 32>;   // parts of maxima, later of l

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

fn exponential(v: f32) -> f32 {
    let nan = (bitcast<u32>(v) & u32(0x7fffffffu)) > u32(0x7f800000u);
    return select(exp(v), v, nan);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let split = group.x;
    let kv_head = group.y / params.rounds;
    let first_head = group.y % params.rounds * 4u;
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
    let head3 = kv_head * params.group + min(first_head + 3u, last_head);
    let q_start = batch * params.q_b + token * params.q_s;
    for (var u = lane; u < 16u; u += 64u) {
        queries[0u + u] = q[q_start + head0 * params.q_h + u];
    }
    for (var u = lane; u < 16u; u += 64u) {
        queries[16u + u] = q[q_start + head1 * params.q_h + u];
    }
    for (var u = lane; u < 16u; u += 64u) {
        queries[32u + u] = q[q_start + head2 * params.q_h + u];
    }
    for (var u = lane; u < 16u; u += 64u) {
        queries[48u + u] = q[q_start + head3 * params.q_h + u];
    }
    var peak0 = LOWEST;
    var total0 = 0.0;
    var o0_0 = vec4<f32>(0.0);
    var peak1 = LOWEST;
    var total1 = 0.0;
    var o1_0 = vec4<f32>(0.0);
    var peak2 = LOWEST;
    var total2 = 0.0;
    var o2_0 = vec4<f32>(0.0);
    var peak3 = LOWEST;
    var total3 = 0.0;
    var o3_0 = vec4<f32>(0.0);
    let quarter = lane % 4u;
    let column = lane % 16u;
    let slice = lane / 16u;
    workgroupBarrier();

    for (var start = begin; start < end; start += 64u) {
        let count = min(end - start, 64u);
        for (var r = lane / 4u; r < count; r += 32u) {
            let at0 = base + (start + min(r + 0u, count - 1u)) * params.k_c;
            let at1 = base + (start + min(r + 16u, count - 1u)) * params.k_c;
            var s0_0 = 0.0;
            var s0_1 = 0.0;
            var s1_0 = 0.0;
            var s1_1 = 0.0;
            var s2_0 = 0.0;
            var s2_1 = 0.0;
            var s3_0 = 0.0;
            var s3_1 = 0.0;
            for (var u = quarter; u < 16u; u += 4u) {
                let k0 = vec4<f32>(k[at0 + u]);
                let k1 = vec4<f32>(k[at1 + u]);
                let q0 = queries[0u + u];
                s0_0 += dot(q0, k0);
                s0_1 += dot(q0, k1);
                let q1 = queries[16u + u];
                s1_0 += dot(q1, k0);
                s1_1 += dot(q1, k1);
                let q2 = queries[32u + u];
                s2_0 += dot(q2, k0);
                s2_1 += dot(q2, k1);
                let q3 = queries[48u + u];
                s3_0 += dot(q3, k0);
                s3_1 += dot(q3, k1);
            }
            if (r + 0u < count) {
                let p = (r + 0u) * 16u + quarter;
                pool[p + 0u] = s0_0;
                pool[p + 4u] = s1_0;
                pool[p + 8u] = s2_0;
                pool[p + 12u] = s3_0;
            }
            if (r + 16u < count) {
                let p = (r + 16u) * 16u + quarter;
                pool[p + 0u] = s0_1;
                pool[p + 4u] = s1_1;
                pool[p + 8u] = s2_1;
                pool[p + 12u] = s3_1;
            }
        }
        workgroupBarrier();
        for (var i = lane; i < count; i += 64u) {
            let p = i * 16u + 0u;
            let product = (pool[p] + pool[p + 1u]) + (pool[p + 2u] + pool[p + 3u]);
            weights[0u + i] = score(product, batch, head0, token, start + i);
        }
        for (var i = lane; i < count; i += 64u) {
            let p = i * 16u + 4u;
            let product = (pool[p] + pool[p + 1u]) + (pool[p + 2u] + pool[p + 3u]);
            weights[64u + i] = score(product, batch, head1, token, start + i);
        }
        for (var i = lane; i < count; i += 64u) {
            let p = i * 16u + 8u;
            let product = (pool[p] + pool[p + 1u]) + (pool[p + 2u] + pool[p + 3u]);
            weights[128u + i] = score(product, batch, head2, token, start + i);
        }
        for (var i = lane; i < count; i += 64u) {
            let p = i * 16u + 12u;
            let product = (pool[p] + pool[p + 1u]) + (pool[p + 2u] + pool[p + 3u]);
            weights[192u + i] = score(product, batch, head3, token, start + i);
        }
        workgroupBarrier();
        for (var p = lane; p < 32u; p += 64u) {
            var peak = LOWEST;
            for (var i = p % 8u; i < count; i += 8u) {
                peak = max(peak, weights[p / 8u * 64u + i]);
            }
            peaks[p] = peak;
        }
        workgroupBarrier();
        var new0 = peak0;
        for (var i = 0u; i < 8u; i++) {
            new0 = max(new0, peaks[0u + i]);
        }
        let shrink0 = exp(peak0 - new0);
        peak0 = new0;
        total0 *= shrink0;
        o0_0 *= shrink0;
        for (var i = lane; i < count; i += 64u) {
            let s = weights[0u + i];
            weights[0u + i] = select(exponential(s - peak0), -1.0, s == LOWEST);
        }
        var new1 = peak1;
        for (var i = 0u; i < 8u; i++) {
            new1 = max(new1, peaks[8u + i]);
        }
        let shrink1 = exp(peak1 - new1);
        peak1 = new1;
        total1 *= shrink1;
        o1_0 *= shrink1;
        for (var i = lane; i < count; i += 64u) {
            let s = weights[64u + i];
            weights[64u + i] = select(exponential(s - peak1), -1.0, s == LOWEST);
        }
        var new2 = peak2;
        for (var i = 0u; i < 8u; i++) {
            new2 = max(new2, peaks[16u + i]);
        }
        let shrink2 = exp(peak2 - new2);
        peak2 = new2;
        total2 *= shrink2;
        o2_0 *= shrink2;
        for (var i = lane; i < count; i += 64u) {
            let s = weights[128u + i];
            weights[128u + i] = select(exponential(s - peak2), -1.0, s == LOWEST);
        }
        var new3 = peak3;
        for (var i = 0u; i < 8u; i++) {
            new3 = max(new3, peaks[24u + i]);
        }
        let shrink3 = exp(peak3 - new3);
        peak3 = new3;
        total3 *= shrink3;
        o3_0 *= shrink3;
        for (var i = lane; i < count; i += 64u) {
            let s = weights[192u + i];
            weights[192u + i] = select(exponential(s - peak3), -1.0, s == LOWEST);
        }
        workgroupBarrier();
        let rest = select(slice, count, slice >= 4u);
        for (var i = rest; i < count; i += 4u) {
            let row = base + (start + i) * params.k_c + column;
            let w0_0 = weights[i + 0u];
            let w1_0 = weights[i + 64u];
            let w2_0 = weights[i + 128u];
            let w3_0 = weights[i + 192u];
            let v0_0 = vec4<f32>(v[row + 0u]);
            if (!(w0_0 == -1.0)) {
                total0 += w0_0;
                o0_0 += w0_0 * v0_0;
            }
            if (!(w1_0 == -1.0)) {
                total1 += w1_0;
                o1_0 += w1_0 * v0_0;
            }
            if (!(w2_0 == -1.0)) {
                total2 += w2_0;
                o2_0 += w2_0 * v0_0;
            }
            if (!(w3_0 == -1.0)) {
                total3 += w3_0;
                o3_0 += w3_0 * v0_0;
            }
        }
    }

    if (slice < 4u) {
        if (column == 0u) {
            peaks[0u + slice] = total0;
        }
        if (column + 0u < 16u) {
            let p = ((slice * 4u + 0u) * 16u + column + 0u) * 4u;
            pool[p + 0u] = o0_0[0];
            pool[p + 1u] = o0_0[1];
            pool[p + 2u] = o0_0[2];
            pool[p + 3u] = o0_0[3];
        }
        if (column == 0u) {
            peaks[4u + slice] = total1;
        }
        if (column + 0u < 16u) {
            let p = ((slice * 4u + 1u) * 16u + column + 0u) * 4u;
            pool[p + 0u] = o1_0[0];
            pool[p + 1u] = o1_0[1];
            pool[p + 2u] = o1_0[2];
            pool[p + 3u] = o1_0[3];
        }
        if (column == 0u) {
            peaks[8u + slice] = total2;
        }
        if (column + 0u < 16u) {
            let p = ((slice * 4u + 2u) * 16u + column + 0u) * 4u;
            pool[p + 0u] = o2_0[0];
            pool[p + 1u] = o2_0[1];
            pool[p + 2u] = o2_0[2];
            pool[p + 3u] = o2_0[3];
        }
        if (column == 0u) {
            peaks[12u + slice] = total3;
        }
        if (column + 0u < 16u) {
            let p = ((slice * 4u + 3u) * 16u + column + 0u) * 4u;
            pool[p + 0u] = o3_0[0];
            pool[p + 1u] = o3_0[1];
            pool[p + 2u] = o3_0[2];
            pool[p + 3u] = o3_0[3];
        }
    }
    workgroupBarrier();
    var l0 = 0.0;
    for (var i = 0u; i < 4u; i++) {
        l0 += peaks[0u + i];
    }
    let row0 = (group.z * params.q_heads + head0) * params.splits + split;
    if (lane == 0u) {
        stats[row0] = vec2f(peak0, l0);
    }
    for (var u = lane; u < 16u; u += 64u) {
        var o = vec4<f32>(0.0);
        for (var i = 0u; i < 4u; i++) {
            let p = ((i * 4u + 0u) * 16u + u) * 4u;
            o += vec4f(pool[p], pool[p + 1u], pool[p + 2u], pool[p + 3u]);
        }
        sums[row0 * 16u + u] = o;
    }
    var l1 = 0.0;
    for (var i = 0u; i < 4u; i++) {
        l1 += peaks[4u + i];
    }
    let row1 = (group.z * params.q_heads + head1) * params.splits + split;
    if (lane == 0u) {
        stats[row1] = vec2f(peak1, l1);
    }
    for (var u = lane; u < 16u; u += 64u) {
        var o = vec4<f32>(0.0);
        for (var i = 0u; i < 4u; i++) {
            let p = ((i * 4u + 1u) * 16u + u) * 4u;
            o += vec4f(pool[p], pool[p + 1u], pool[p + 2u], pool[p + 3u]);
        }
        sums[row1 * 16u + u] = o;
    }
    var l2 = 0.0;
    for (var i = 0u; i < 4u; i++) {
        l2 += peaks[8u + i];
    }
    let row2 = (group.z * params.q_heads + head2) * params.splits + split;
    if (lane == 0u) {
        stats[row2] = vec2f(peak2, l2);
    }
    for (var u = lane; u < 16u; u += 64u) {
        var o = vec4<f32>(0.0);
        for (var i = 0u; i < 4u; i++) {
            let p = ((i * 4u + 2u) * 16u + u) * 4u;
            o += vec4f(pool[p], pool[p + 1u], pool[p + 2u], pool[p + 3u]);
        }
        sums[row2 * 16u + u] = o;
    }
    var l3 = 0.0;
    for (var i = 0u; i < 4u; i++) {
        l3 += peaks[12u + i];
    }
    let row3 = (group.z * params.q_heads + head3) * params.splits + split;
    if (lane == 0u) {
        stats[row3] = vec2f(peak3, l3);
    }
    for (var u = lane; u < 16u; u += 64u) {
        var o = vec4<f32>(0.0);
        for (var i = 0u; i < 4u; i++) {
            let p = ((i * 4u + 3u) * 16u + u) * 4u;
            o += vec4f(pool[p], pool[p + 1u], pool[p + 2u], pool[p + 3u]);
        }
        sums[row3 * 16u + u] = o;
    }
}
