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
@group(0) @binding(3) var<storage, read> mask: array<u32>;
@group(0) @binding(4) var<storage, read_write> sums: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> stats: array<vec2<f32>>;
@group(0) @binding(6) var<uniform> params: Params;

var<workgroup> queries: array<vec4<f32>, 128>;
var<workgroup> quarters: array<f32, 1024>;   // of products, [key][head][quarter]
var<workgroup> scores: array<f32, 256>;
var<workgroup> results: array<vec4<f32>, 512>;
var<workgroup> peaks: array<f32, 16>;
var<workgroup> totals: array<f32, 16>;

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

fn exponential(v: f32) -> f32 {
    let nan = (bitcast<u32>(v) & u32(0x7fffffffu)) > u32(0x7f800000u);
    return select(exp(v), v, nan);
}

@compute @workgroup_size(128)
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
    let group_head = kv_head * params.group;
    let last_head = params.group - 1u;
    let q_start = batch * params.q_b + token * params.q_s;
    let quarter = lane % 4u;
    let column = lane % 32u;
    let slice = min(lane / 32u, 3u);
    let last = max(end, 1u) - 1u;
    let i0 = min(lane, 127u);
    let head0 = group_head + min(first_head + i0 / 32u, last_head);
    let query0 = q[q_start + head0 * params.q_h + i0 % 32u];
    let at0 = base + min(begin + (lane) / 4u, last) * params.k_c;
    var k0_0 = k[at0 + quarter];
    var k0_1 = k[at0 + quarter + 4u];
    var k0_2 = k[at0 + quarter + 8u];
    var k0_3 = k[at0 + quarter + 12u];
    var k0_4 = k[at0 + quarter + 16u];
    var k0_5 = k[at0 + quarter + 20u];
    var k0_6 = k[at0 + quarter + 24u];
    var k0_7 = k[at0 + quarter + 28u];
    let at1 = base + min(begin + (lane + 128u) / 4u, last) * params.k_c;
    var k1_0 = k[at1 + quarter];
    var k1_1 = k[at1 + quarter + 4u];
    var k1_2 = k[at1 + quarter + 8u];
    var k1_3 = k[at1 + quarter + 12u];
    var k1_4 = k[at1 + quarter + 16u];
    var k1_5 = k[at1 + quarter + 20u];
    var k1_6 = k[at1 + quarter + 24u];
    var k1_7 = k[at1 + quarter + 28u];
    var v0 = v[base + min(begin + slice, last) * params.k_c + column];
    var v1 = v[base + min(begin + slice + 4u, last) * params.k_c + column];
    var v2 = v[base + min(begin + slice + 8u, last) * params.k_c + column];
    var v3 = v[base + min(begin + slice + 12u, last) * params.k_c + column];
    var v4 = v[base + min(begin + slice + 16u, last) * params.k_c + column];
    var v5 = v[base + min(begin + slice + 20u, last) * params.k_c + column];
    var v6 = v[base + min(begin + slice + 24u, last) * params.k_c + column];
    var v7 = v[base + min(begin + slice + 28u, last) * params.k_c + column];
    var v8 = v[base + min(begin + slice + 32u, last) * params.k_c + column];
    var v9 = v[base + min(begin + slice + 36u, last) * params.k_c + column];
    var v10 = v[base + min(begin + slice + 40u, last) * params.k_c + column];
    var v11 = v[base + min(begin + slice + 44u, last) * params.k_c + column];
    var v12 = v[base + min(begin + slice + 48u, last) * params.k_c + column];
    var v13 = v[base + min(begin + slice + 52u, last) * params.k_c + column];
    var v14 = v[base + min(begin + slice + 56u, last) * params.k_c + column];
    var v15 = v[base + min(begin + slice + 60u, last) * params.k_c + column];
    if (lane < 128u) {
        queries[lane] = query0;
    }
    var peak0 = LOWEST;
    var total0 = 0.0;
    var o0 = vec4f(0.0);
    var peak1 = LOWEST;
    var total1 = 0.0;
    var o1 = vec4f(0.0);
    var peak2 = LOWEST;
    var total2 = 0.0;
    var o2 = vec4f(0.0);
    var peak3 = LOWEST;
    var total3 = 0.0;
    var o3 = vec4f(0.0);
    workgroupBarrier();

    for (var start = begin; start < end; start += 64u) {
        let count = min(end - start, 64u);
        var p0_0 = 0.0;
        var p0_1 = 0.0;
        var p0_2 = 0.0;
        var p0_3 = 0.0;
        var p1_0 = 0.0;
        var p1_1 = 0.0;
        var p1_2 = 0.0;
        var p1_3 = 0.0;
        {
            let q0 = queries[0u + quarter];
            p0_0 += dot(q0, vec4f(k0_0));
            p1_0 += dot(q0, vec4f(k1_0));
            let q1 = queries[32u + quarter];
            p0_1 += dot(q1, vec4f(k0_0));
            p1_1 += dot(q1, vec4f(k1_0));
            let q2 = queries[64u + quarter];
            p0_2 += dot(q2, vec4f(k0_0));
            p1_2 += dot(q2, vec4f(k1_0));
            let q3 = queries[96u + quarter];
            p0_3 += dot(q3, vec4f(k0_0));
            p1_3 += dot(q3, vec4f(k1_0));
        }
        {
            let q0 = queries[4u + quarter];
            p0_0 += dot(q0, vec4f(k0_1));
            p1_0 += dot(q0, vec4f(k1_1));
            let q1 = queries[36u + quarter];
            p0_1 += dot(q1, vec4f(k0_1));
            p1_1 += dot(q1, vec4f(k1_1));
            let q2 = queries[68u + quarter];
            p0_2 += dot(q2, vec4f(k0_1));
            p1_2 += dot(q2, vec4f(k1_1));
            let q3 = queries[100u + quarter];
            p0_3 += dot(q3, vec4f(k0_1));
            p1_3 += dot(q3, vec4f(k1_1));
        }
        {
            let q0 = queries[8u + quarter];
            p0_0 += dot(q0, vec4f(k0_2));
            p1_0 += dot(q0, vec4f(k1_2));
            let q1 = queries[40u + quarter];
            p0_1 += dot(q1, vec4f(k0_2));
            p1_1 += dot(q1, vec4f(k1_2));
            let q2 = queries[72u + quarter];
            p0_2 += dot(q2, vec4f(k0_2));
            p1_2 += dot(q2, vec4f(k1_2));
            let q3 = queries[104u + quarter];
            p0_3 += dot(q3, vec4f(k0_2));
            p1_3 += dot(q3, vec4f(k1_2));
        }
        {
            let q0 = queries[12u + quarter];
            p0_0 += dot(q0, vec4f(k0_3));
            p1_0 += dot(q0, vec4f(k1_3));
            let q1 = queries[44u + quarter];
            p0_1 += dot(q1, vec4f(k0_3));
            p1_1 += dot(q1, vec4f(k1_3));
            let q2 = queries[76u + quarter];
            p0_2 += dot(q2, vec4f(k0_3));
            p1_2 += dot(q2, vec4f(k1_3));
            let q3 = queries[108u + quarter];
            p0_3 += dot(q3, vec4f(k0_3));
            p1_3 += dot(q3, vec4f(k1_3));
        }
        {
            let q0 = queries[16u + quarter];
            p0_0 += dot(q0, vec4f(k0_4));
            p1_0 += dot(q0, vec4f(k1_4));
            let q1 = queries[48u + quarter];
            p0_1 += dot(q1, vec4f(k0_4));
            p1_1 += dot(q1, vec4f(k1_4));
            let q2 = queries[80u + quarter];
            p0_2 += dot(q2, vec4f(k0_4));
            p1_2 += dot(q2, vec4f(k1_4));
            let q3 = queries[112u + quarter];
            p0_3 += dot(q3, vec4f(k0_4));
            p1_3 += dot(q3, vec4f(k1_4));
        }
        {
            let q0 = queries[20u + quarter];
            p0_0 += dot(q0, vec4f(k0_5));
            p1_0 += dot(q0, vec4f(k1_5));
            let q1 = queries[52u + quarter];
            p0_1 += dot(q1, vec4f(k0_5));
            p1_1 += dot(q1, vec4f(k1_5));
            let q2 = queries[84u + quarter];
            p0_2 += dot(q2, vec4f(k0_5));
            p1_2 += dot(q2, vec4f(k1_5));
            let q3 = queries[116u + quarter];
            p0_3 += dot(q3, vec4f(k0_5));
            p1_3 += dot(q3, vec4f(k1_5));
        }
        {
            let q0 = queries[24u + quarter];
            p0_0 += dot(q0, vec4f(k0_6));
            p1_0 += dot(q0, vec4f(k1_6));
            let q1 = queries[56u + quarter];
            p0_1 += dot(q1, vec4f(k0_6));
            p1_1 += dot(q1, vec4f(k1_6));
            let q2 = queries[88u + quarter];
            p0_2 += dot(q2, vec4f(k0_6));
            p1_2 += dot(q2, vec4f(k1_6));
            let q3 = queries[120u + quarter];
            p0_3 += dot(q3, vec4f(k0_6));
            p1_3 += dot(q3, vec4f(k1_6));
        }
        {
            let q0 = queries[28u + quarter];
            p0_0 += dot(q0, vec4f(k0_7));
            p1_0 += dot(q0, vec4f(k1_7));
            let q1 = queries[60u + quarter];
            p0_1 += dot(q1, vec4f(k0_7));
            p1_1 += dot(q1, vec4f(k1_7));
            let q2 = queries[92u + quarter];
            p0_2 += dot(q2, vec4f(k0_7));
            p1_2 += dot(q2, vec4f(k1_7));
            let q3 = queries[124u + quarter];
            p0_3 += dot(q3, vec4f(k0_7));
            p1_3 += dot(q3, vec4f(k1_7));
        }
        {
            quarters[(lane) / 4u * 16u + 0u + quarter] = p0_0;
            quarters[(lane) / 4u * 16u + 4u + quarter] = p0_1;
            quarters[(lane) / 4u * 16u + 8u + quarter] = p0_2;
            quarters[(lane) / 4u * 16u + 12u + quarter] = p0_3;
        }
        {
            quarters[(lane + 128u) / 4u * 16u + 0u + quarter] = p1_0;
            quarters[(lane + 128u) / 4u * 16u + 4u + quarter] = p1_1;
            quarters[(lane + 128u) / 4u * 16u + 8u + quarter] = p1_2;
            quarters[(lane + 128u) / 4u * 16u + 12u + quarter] = p1_3;
        }
        workgroupBarrier();
        for (var i = lane; i < 256u; i += 128u) {
            let key = i % 64u;
            var s = LOWEST;
            if (key < count) {
                let p = (key * 4u + i / 64u) * 4u;
                let product = (quarters[p] + quarters[p + 1u]) + (quarters[p + 2u] + quarters[p + 3u]);
                let head = group_head + min(first_head + i / 64u, last_head);
                s = score(product, batch, head, token, start + key);
            }
            scores[i] = s;
        }
        workgroupBarrier();
        {
            var top = peak0;
            let s0 = scores[0u + slice];
            top = max(top, s0);
            let s1 = scores[0u + slice + 4u];
            top = max(top, s1);
            let s2 = scores[0u + slice + 8u];
            top = max(top, s2);
            let s3 = scores[0u + slice + 12u];
            top = max(top, s3);
            let s4 = scores[0u + slice + 16u];
            top = max(top, s4);
            let s5 = scores[0u + slice + 20u];
            top = max(top, s5);
            let s6 = scores[0u + slice + 24u];
            top = max(top, s6);
            let s7 = scores[0u + slice + 28u];
            top = max(top, s7);
            let s8 = scores[0u + slice + 32u];
            top = max(top, s8);
            let s9 = scores[0u + slice + 36u];
            top = max(top, s9);
            let s10 = scores[0u + slice + 40u];
            top = max(top, s10);
            let s11 = scores[0u + slice + 44u];
            top = max(top, s11);
            let s12 = scores[0u + slice + 48u];
            top = max(top, s12);
            let s13 = scores[0u + slice + 52u];
            top = max(top, s13);
            let s14 = scores[0u + slice + 56u];
            top = max(top, s14);
            let s15 = scores[0u + slice + 60u];
            top = max(top, s15);
            let shrink = exp(peak0 - top);
            peak0 = top;
            total0 *= shrink;
            o0 *= shrink;
            if (!(s0 == LOWEST)) {
                let w = exponential(s0 - top);
                total0 += w;
                o0 += w * vec4f(v0);
            }
            if (!(s1 == LOWEST)) {
                let w = exponential(s1 - top);
                total0 += w;
                o0 += w * vec4f(v1);
            }
            if (!(s2 == LOWEST)) {
                let w = exponential(s2 - top);
                total0 += w;
                o0 += w * vec4f(v2);
            }
            if (!(s3 == LOWEST)) {
                let w = exponential(s3 - top);
                total0 += w;
                o0 += w * vec4f(v3);
            }
            if (!(s4 == LOWEST)) {
                let w = exponential(s4 - top);
                total0 += w;
                o0 += w * vec4f(v4);
            }
            if (!(s5 == LOWEST)) {
                let w = exponential(s5 - top);
                total0 += w;
                o0 += w * vec4f(v5);
            }
            if (!(s6 == LOWEST)) {
                let w = exponential(s6 - top);
                total0 += w;
                o0 += w * vec4f(v6);
            }
            if (!(s7 == LOWEST)) {
                let w = exponential(s7 - top);
                total0 += w;
                o0 += w * vec4f(v7);
            }
            if (!(s8 == LOWEST)) {
                let w = exponential(s8 - top);
                total0 += w;
                o0 += w * vec4f(v8);
            }
            if (!(s9 == LOWEST)) {
                let w = exponential(s9 - top);
                total0 += w;
                o0 += w * vec4f(v9);
            }
            if (!(s10 == LOWEST)) {
                let w = exponential(s10 - top);
                total0 += w;
                o0 += w * vec4f(v10);
            }
            if (!(s11 == LOWEST)) {
                let w = exponential(s11 - top);
                total0 += w;
                o0 += w * vec4f(v11);
            }
            if (!(s12 == LOWEST)) {
                let w = exponential(s12 - top);
                total0 += w;
                o0 += w * vec4f(v12);
            }
            if (!(s13 == LOWEST)) {
                let w = exponential(s13 - top);
                total0 += w;
                o0 += w * vec4f(v13);
            }
            if (!(s14 == LOWEST)) {
                let w = exponential(s14 - top);
                total0 += w;
                o0 += w * vec4f(v14);
            }
            if (!(s15 == LOWEST)) {
                let w = exponential(s15 - top);
                total0 += w;
                o0 += w * vec4f(v15);
            }
        }
        {
            var top = peak1;
            let s0 = scores[64u + slice];
            top = max(top, s0);
            let s1 = scores[64u + slice + 4u];
            top = max(top, s1);
            let s2 = scores[64u + slice + 8u];
            top = max(top, s2);
            let s3 = scores[64u + slice + 12u];
            top = max(top, s3);
            let s4 = scores[64u + slice + 16u];
            top = max(top, s4);
            let s5 = scores[64u + slice + 20u];
            top = max(top, s5);
            let s6 = scores[64u + slice + 24u];
            top = max(top, s6);
            let s7 = scores[64u + slice + 28u];
            top = max(top, s7);
            let s8 = scores[64u + slice + 32u];
            top = max(top, s8);
            let s9 = scores[64u + slice + 36u];
            top = max(top, s9);
            let s10 = scores[64u + slice + 40u];
            top = max(top, s10);
            let s11 = scores[64u + slice + 44u];
            top = max(top, s11);
            let s12 = scores[64u + slice + 48u];
            top = max(top, s12);
            let s13 = scores[64u + slice + 52u];
            top = max(top, s13);
            let s14 = scores[64u + slice + 56u];
            top = max(top, s14);
            let s15 = scores[64u + slice + 60u];
            top = max(top, s15);
            let shrink = exp(peak1 - top);
            peak1 = top;
            total1 *= shrink;
            o1 *= shrink;
            if (!(s0 == LOWEST)) {
                let w = exponential(s0 - top);
                total1 += w;
                o1 += w * vec4f(v0);
            }
            if (!(s1 == LOWEST)) {
                let w = exponential(s1 - top);
                total1 += w;
                o1 += w * vec4f(v1);
            }
            if (!(s2 == LOWEST)) {
                let w = exponential(s2 - top);
                total1 += w;
                o1 += w * vec4f(v2);
            }
            if (!(s3 == LOWEST)) {
                let w = exponential(s3 - top);
                total1 += w;
                o1 += w * vec4f(v3);
            }
            if (!(s4 == LOWEST)) {
                let w = exponential(s4 - top);
                total1 += w;
                o1 += w * vec4f(v4);
            }
            if (!(s5 == LOWEST)) {
                let w = exponential(s5 - top);
                total1 += w;
                o1 += w * vec4f(v5);
            }
            if (!(s6 == LOWEST)) {
                let w = exponential(s6 - top);
                total1 += w;
                o1 += w * vec4f(v6);
            }
            if (!(s7 == LOWEST)) {
                let w = exponential(s7 - top);
                total1 += w;
                o1 += w * vec4f(v7);
            }
            if (!(s8 == LOWEST)) {
                let w = exponential(s8 - top);
                total1 += w;
                o1 += w * vec4f(v8);
            }
            if (!(s9 == LOWEST)) {
                let w = exponential(s9 - top);
                total1 += w;
                o1 += w * vec4f(v9);
            }
            if (!(s10 == LOWEST)) {
                let w = exponential(s10 - top);
                total1 += w;
                o1 += w * vec4f(v10);
            }
            if (!(s11 == LOWEST)) {
                let w = exponential(s11 - top);
                total1 += w;
                o1 += w * vec4f(v11);
            }
            if (!(s12 == LOWEST)) {
                let w = exponential(s12 - top);
                total1 += w;
                o1 += w * vec4f(v12);
            }
            if (!(s13 == LOWEST)) {
                let w = exponential(s13 - top);
                total1 += w;
                o1 += w * vec4f(v13);
            }
            if (!(s14 == LOWEST)) {
                let w = exponential(s14 - top);
                total1 += w;
                o1 += w * vec4f(v14);
            }
            if (!(s15 == LOWEST)) {
                let w = exponential(s15 - top);
                total1 += w;
                o1 += w * vec4f(v15);
            }
        }
        {
            var top = peak2;
            let s0 = scores[128u + slice];
            top = max(top, s0);
            let s1 = scores[128u + slice + 4u];
            top = max(top, s1);
            let s2 = scores[128u + slice + 8u];
            top = max(top, s2);
            let s3 = scores[128u + slice + 12u];
            top = max(top, s3);
            let s4 = scores[128u + slice + 16u];
            top = max(top, s4);
            let s5 = scores[128u + slice + 20u];
            top = max(top, s5);
            let s6 = scores[128u + slice + 24u];
            top = max(top, s6);
            let s7 = scores[128u + slice + 28u];
            top = max(top, s7);
            let s8 = scores[128u + slice + 32u];
            top = max(top, s8);
            let s9 = scores[128u + slice + 36u];
            top = max(top, s9);
            let s10 = scores[128u + slice + 40u];
            top = max(top, s10);
            let s11 = scores[128u + slice + 44u];
            top = max(top, s11);
            let s12 = scores[128u + slice + 48u];
            top = max(top, s12);
            let s13 = scores[128u + slice + 52u];
            top = max(top, s13);
            let s14 = scores[128u + slice + 56u];
            top = max(top, s14);
            let s15 = scores[128u + slice + 60u];
            top = max(top, s15);
            let shrink = exp(peak2 - top);
            peak2 = top;
            total2 *= shrink;
            o2 *= shrink;
            if (!(s0 == LOWEST)) {
                let w = exponential(s0 - top);
                total2 += w;
                o2 += w * vec4f(v0);
            }
            if (!(s1 == LOWEST)) {
                let w = exponential(s1 - top);
                total2 += w;
                o2 += w * vec4f(v1);
            }
            if (!(s2 == LOWEST)) {
                let w = exponential(s2 - top);
                total2 += w;
                o2 += w * vec4f(v2);
            }
            if (!(s3 == LOWEST)) {
                let w = exponential(s3 - top);
                total2 += w;
                o2 += w * vec4f(v3);
            }
            if (!(s4 == LOWEST)) {
                let w = exponential(s4 - top);
                total2 += w;
                o2 += w * vec4f(v4);
            }
            if (!(s5 == LOWEST)) {
                let w = exponential(s5 - top);
                total2 += w;
                o2 += w * vec4f(v5);
            }
            if (!(s6 == LOWEST)) {
                let w = exponential(s6 - top);
                total2 += w;
                o2 += w * vec4f(v6);
            }
            if (!(s7 == LOWEST)) {
                let w = exponential(s7 - top);
                total2 += w;
                o2 += w * vec4f(v7);
            }
            if (!(s8 == LOWEST)) {
                let w = exponential(s8 - top);
                total2 += w;
                o2 += w * vec4f(v8);
            }
            if (!(s9 == LOWEST)) {
                let w = exponential(s9 - top);
                total2 += w;
                o2 += w * vec4f(v9);
            }
            if (!(s10 == LOWEST)) {
                let w = exponential(s10 - top);
                total2 += w;
                o2 += w * vec4f(v10);
            }
            if (!(s11 == LOWEST)) {
                let w = exponential(s11 - top);
                total2 += w;
                o2 += w * vec4f(v11);
            }
            if (!(s12 == LOWEST)) {
                let w = exponential(s12 - top);
                total2 += w;
                o2 += w * vec4f(v12);
            }
            if (!(s13 == LOWEST)) {
                let w = exponential(s13 - top);
                total2 += w;
                o2 += w * vec4f(v13);
            }
            if (!(s14 == LOWEST)) {
                let w = exponential(s14 - top);
                total2 += w;
                o2 += w * vec4f(v14);
            }
            if (!(s15 == LOWEST)) {
                let w = exponential(s15 - top);
                total2 += w;
                o2 += w * vec4f(v15);
            }
        }
        {
            var top = peak3;
            let s0 = scores[192u + slice];
            top = max(top, s0);
            let s1 = scores[192u + slice + 4u];
            top = max(top, s1);
            let s2 = scores[192u + slice + 8u];
            top = max(top, s2);
            let s3 = scores[192u + slice + 12u];
            top = max(top, s3);
            let s4 = scores[192u + slice + 16u];
            top = max(top, s4);
            let s5 = scores[192u + slice + 20u];
            top = max(top, s5);
            let s6 = scores[192u + slice + 24u];
            top = max(top, s6);
            let s7 = scores[192u + slice + 28u];
            top = max(top, s7);
            let s8 = scores[192u + slice + 32u];
            top = max(top, s8);
            let s9 = scores[192u + slice + 36u];
            top = max(top, s9);
            let s10 = scores[192u + slice + 40u];
            top = max(top, s10);
            let s11 = scores[192u + slice + 44u];
            top = max(top, s11);
            let s12 = scores[192u + slice + 48u];
            top = max(top, s12);
            let s13 = scores[192u + slice + 52u];
            top = max(top, s13);
            let s14 = scores[192u + slice + 56u];
            top = max(top, s14);
            let s15 = scores[192u + slice + 60u];
            top = max(top, s15);
            let shrink = exp(peak3 - top);
            peak3 = top;
            total3 *= shrink;
            o3 *= shrink;
            if (!(s0 == LOWEST)) {
                let w = exponential(s0 - top);
                total3 += w;
                o3 += w * vec4f(v0);
            }
            if (!(s1 == LOWEST)) {
                let w = exponential(s1 - top);
                total3 += w;
                o3 += w * vec4f(v1);
            }
            if (!(s2 == LOWEST)) {
                let w = exponential(s2 - top);
                total3 += w;
                o3 += w * vec4f(v2);
            }
            if (!(s3 == LOWEST)) {
                let w = exponential(s3 - top);
                total3 += w;
                o3 += w * vec4f(v3);
            }
            if (!(s4 == LOWEST)) {
                let w = exponential(s4 - top);
                total3 += w;
                o3 += w * vec4f(v4);
            }
            if (!(s5 == LOWEST)) {
                let w = exponential(s5 - top);
                total3 += w;
                o3 += w * vec4f(v5);
            }
            if (!(s6 == LOWEST)) {
                let w = exponential(s6 - top);
                total3 += w;
                o3 += w * vec4f(v6);
            }
            if (!(s7 == LOWEST)) {
                let w = exponential(s7 - top);
                total3 += w;
                o3 += w * vec4f(v7);
            }
            if (!(s8 == LOWEST)) {
                let w = exponential(s8 - top);
                total3 += w;
                o3 += w * vec4f(v8);
            }
            if (!(s9 == LOWEST)) {
                let w = exponential(s9 - top);
                total3 += w;
                o3 += w * vec4f(v9);
            }
            if (!(s10 == LOWEST)) {
                let w = exponential(s10 - top);
                total3 += w;
                o3 += w * vec4f(v10);
            }
            if (!(s11 == LOWEST)) {
                let w = exponential(s11 - top);
                total3 += w;
                o3 += w * vec4f(v11);
            }
            if (!(s12 == LOWEST)) {
                let w = exponential(s12 - top);
                total3 += w;
                o3 += w * vec4f(v12);
            }
            if (!(s13 == LOWEST)) {
                let w = exponential(s13 - top);
                total3 += w;
                o3 += w * vec4f(v13);
            }
            if (!(s14 == LOWEST)) {
                let w = exponential(s14 - top);
                total3 += w;
                o3 += w * vec4f(v14);
            }
            if (!(s15 == LOWEST)) {
                let w = exponential(s15 - top);
                total3 += w;
                o3 += w * vec4f(v15);
            }
        }
        if (start + 64u < end) {
            let at0 = base + min(start + 64u + (lane) / 4u, last) * params.k_c;
    k0_0 = k[at0 + quarter];
    k0_1 = k[at0 + quarter + 4u];
    k0_2 = k[at0 + quarter + 8u];
    k0_3 = k[at0 + quarter + 12u];
    k0_4 = k[at0 + quarter + 16u];
    k0_5 = k[at0 + quarter + 20u];
    k0_6 = k[at0 + quarter + 24u];
    k0_7 = k[at0 + quarter + 28u];
    let at1 = base + min(start + 64u + (lane + 128u) / 4u, last) * params.k_c;
    k1_0 = k[at1 + quarter];
    k1_1 = k[at1 + quarter + 4u];
    k1_2 = k[at1 + quarter + 8u];
    k1_3 = k[at1 + quarter + 12u];
    k1_4 = k[at1 + quarter + 16u];
    k1_5 = k[at1 + quarter + 20u];
    k1_6 = k[at1 + quarter + 24u];
    k1_7 = k[at1 + quarter + 28u];
    v0 = v[base + min(start + 64u + slice, last) * params.k_c + column];
    v1 = v[base + min(start + 64u + slice + 4u, last) * params.k_c + column];
    v2 = v[base + min(start + 64u + slice + 8u, last) * params.k_c + column];
    v3 = v[base + min(start + 64u + slice + 12u, last) * params.k_c + column];
    v4 = v[base + min(start + 64u + slice + 16u, last) * params.k_c + column];
    v5 = v[base + min(start + 64u + slice + 20u, last) * params.k_c + column];
    v6 = v[base + min(start + 64u + slice + 24u, last) * params.k_c + column];
    v7 = v[base + min(start + 64u + slice + 28u, last) * params.k_c + column];
    v8 = v[base + min(start + 64u + slice + 32u, last) * params.k_c + column];
    v9 = v[base + min(start + 64u + slice + 36u, last) * params.k_c + column];
    v10 = v[base + min(start + 64u + slice + 40u, last) * params.k_c + column];
    v11 = v[base + min(start + 64u + slice + 44u, last) * params.k_c + column];
    v12 = v[base + min(start + 64u + slice + 48u, last) * params.k_c + column];
    v13 = v[base + min(start + 64u + slice + 52u, last) * params.k_c + column];
    v14 = v[base + min(start + 64u + slice + 56u, last) * params.k_c + column];
    v15 = v[base + min(start + 64u + slice + 60u, last) * params.k_c + column];
        }
    }

    if (lane < 128u) {
        results[(slice * 4u + 0u) * 32u + column] = o0;
        if (column == 0u) {
            peaks[0u + slice] = peak0;
            totals[0u + slice] = total0;
        }
        results[(slice * 4u + 1u) * 32u + column] = o1;
        if (column == 0u) {
            peaks[4u + slice] = peak1;
            totals[4u + slice] = total1;
        }
        results[(slice * 4u + 2u) * 32u + column] = o2;
        if (column == 0u) {
            peaks[8u + slice] = peak2;
            totals[8u + slice] = total2;
        }
        results[(slice * 4u + 3u) * 32u + column] = o3;
        if (column == 0u) {
            peaks[12u + slice] = peak3;
            totals[12u + slice] = total3;
        }
    }
    workgroupBarrier();
    for (var i = lane; i < 128u; i += 128u) {
        let g = i / 32u;
        let head = group_head + min(first_head + g, last_head);
        var peak = LOWEST;
        for (var n = 0u; n < 4u; n++) {
            peak = max(peak, peaks[g * 4u + n]);
        }
        var total = 0.0;
        var o = vec4f(0.0);
        for (var n = 0u; n < 4u; n++) {
            let shrink = exp(peaks[g * 4u + n] - peak);
            total += shrink * totals[g * 4u + n];
            o += shrink * results[n * 128u + i];
        }
        let row = (group.z * params.q_heads + head) * params.splits + split;
        sums[row * 32u + i % 32u] = o;
        if (i % 32u == 0u) {
            stats[row] = vec2f(peak, total);
        }
    }
}
