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
@group(0) @binding(5) var<uniform> params: Params;

var<workgroup> queries: array<vec4<f32>, 10>;
var<workgroup> quarters: array<f32, 128>;   // of products, [key][head][quarter]
var<workgroup> scores: array<f32, 32>;
var<workgroup> results: array<vec4<f32>, 60>;
var<workgroup> peaks: array<f32, 6>;
var<workgroup> totals: array<f32, 6>;

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
    let first_head = group.y % params.rounds * 1u;
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
    let column = lane % 10u;
    let slice = min(lane / 10u, 5u);
    let last = max(end, 1u) - 1u;
    let i0 = min(lane, 9u);
    let head0 = group_head + min(first_head + i0 / 10u, last_head);
    let query0 = q[q_start + head0 * params.q_h + i0 % 10u];
    let at0 = base + min(begin + (lane) / 4u, last) * params.k_c;
    var k0_0 = k[at0 + quarter];
    var k0_1 = k[at0 + quarter + 4u];
    var k0_2 = k[at0 + min(quarter + 8u, 9u)];
    let at1 = base + min(begin + (lane + 64u) / 4u, last) * params.k_c;
    var k1_0 = k[at1 + quarter];
    var k1_1 = k[at1 + quarter + 4u];
    var k1_2 = k[at1 + min(quarter + 8u, 9u)];
    var v0 = v[base + min(begin + slice, last) * params.k_c + column];
    var v1 = v[base + min(begin + slice + 6u, last) * params.k_c + column];
    var v2 = v[base + min(begin + slice + 12u, last) * params.k_c + column];
    var v3 = v[base + min(begin + slice + 18u, last) * params.k_c + column];
    var v4 = v[base + min(begin + slice + 24u, last) * params.k_c + column];
    var v5 = v[base + min(begin + slice + 30u, last) * params.k_c + column];
    if (lane < 10u) {
        queries[lane] = query0;
    }
    var peak0 = LOWEST;
    var total0 = 0.0;
    var o0 = vec4f(0.0);
    workgroupBarrier();

    for (var start = begin; start < end; start += 32u) {
        let count = min(end - start, 32u);
        var p0_0 = 0.0;
        var p1_0 = 0.0;
        {
            let q0 = queries[0u + quarter];
            p0_0 += dot(q0, vec4f(k0_0));
            p1_0 += dot(q0, vec4f(k1_0));
        }
        {
            let q0 = queries[4u + quarter];
            p0_0 += dot(q0, vec4f(k0_1));
            p1_0 += dot(q0, vec4f(k1_1));
        }
        if (quarter < 2u) {
            let q0 = queries[8u + quarter];
            p0_0 += dot(q0, vec4f(k0_2));
            p1_0 += dot(q0, vec4f(k1_2));
        }
        {
            quarters[(lane) / 4u * 4u + 0u + quarter] = p0_0;
        }
        {
            quarters[(lane + 64u) / 4u * 4u + 0u + quarter] = p1_0;
        }
        workgroupBarrier();
        for (var i = lane; i < 32u; i += 64u) {
            let key = i % 32u;
            var s = LOWEST;
            if (key < count) {
                let p = (key * 1u + i / 32u) * 4u;
                let product = (quarters[p] + quarters[p + 1u]) + (quarters[p + 2u] + quarters[p + 3u]);
                let head = group_head + min(first_head + i / 32u, last_head);
                s = score(product, batch, head, token, start + key);
            }
            scores[i] = s;
        }
        workgroupBarrier();
        {
            var top = peak0;
            let s0 = scores[0u + slice];
            top = max(top, s0);
            let s1 = scores[0u + slice + 6u];
            top = max(top, s1);
            let s2 = scores[0u + slice + 12u];
            top = max(top, s2);
            let s3 = scores[0u + slice + 18u];
            top = max(top, s3);
            let s4 = scores[0u + slice + 24u];
            top = max(top, s4);
            let at5 = 0u + min(slice + 30u, 31u);
            let s5 = select(LOWEST, scores[at5], slice + 30u < 32u);
            top = max(top, s5);
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
        }
        if (start + 32u < end) {
            let at0 = base + min(start + 32u + (lane) / 4u, last) * params.k_c;
    k0_0 = k[at0 + quarter];
    k0_1 = k[at0 + quarter + 4u];
    k0_2 = k[at0 + min(quarter + 8u, 9u)];
    let at1 = base + min(start + 32u + (lane + 64u) / 4u, last) * params.k_c;
    k1_0 = k[at1 + quarter];
    k1_1 = k[at1 + quarter + 4u];
    k1_2 = k[at1 + min(quarter + 8u, 9u)];
    v0 = v[base + min(start + 32u + slice, last) * params.k_c + column];
    v1 = v[base + min(start + 32u + slice + 6u, last) * params.k_c + column];
    v2 = v[base + min(start + 32u + slice + 12u, last) * params.k_c + column];
    v3 = v[base + min(start + 32u + slice + 18u, last) * params.k_c + column];
    v4 = v[base + min(start + 32u + slice + 24u, last) * params.k_c + column];
    v5 = v[base + min(start + 32u + slice + 30u, last) * params.k_c + column];
        }
    }

    if (lane < 60u) {
        results[(slice * 1u + 0u) * 10u + column] = o0;
        if (column == 0u) {
            peaks[0u + slice] = peak0;
            totals[0u + slice] = total0;
        }
    }
    workgroupBarrier();
    for (var i = lane; i < 10u; i += 64u) {
        let g = i / 10u;
        let head = group_head + min(first_head + g, last_head);
        var peak = LOWEST;
        for (var n = 0u; n < 6u; n++) {
            peak = max(peak, peaks[g * 6u + n]);
        }
        var total = 0.0;
        var o = vec4f(0.0);
        for (var n = 0u; n < 6u; n++) {
            let shrink = exp(peaks[g * 6u + n] - peak);
            total += shrink * totals[g * 6u + n];
            o += shrink * results[n * 10u + i];
        }
        let start = batch * params.y_b + token * params.y_s + head * params.y_h;
        sums[start + i % 10u] = select(o / total, vec4f(0.0), total == 0.0);
    }
}
