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

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read> mask: array<u32>;
@group(0) @binding(4) var<storage, read_write> sums: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

var<workgroup> queries: array<f32, 6>;
var<workgroup> pool: array<f32, 256>;        // parts of products, later parts of the output
var<workgroup> weights: array<f32, 64>;
var<workgroup> peaks: array<f32, 10>;   // parts of maxima, later of l

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
    let last_head = params.group - 1u;
    let head0 = kv_head * params.group + min(first_head + 0u, last_head);
    let q_start = batch * params.q_b + token * params.q_s;
    for (var u = lane; u < 6u; u += 64u) {
        queries[0u + u] = q[q_start + head0 * params.q_h + u];
    }
    var peak0 = LOWEST;
    var total0 = 0.0;
    var o0_0 = f32(0.0);
    let quarter = lane % 4u;
    let column = lane % 6u;
    let slice = lane / 6u;
    workgroupBarrier();

    for (var start = begin; start < end; start += 64u) {
        let count = min(end - start, 64u);
        for (var r = lane / 4u; r < count; r += 32u) {
            let at0 = base + (start + min(r + 0u, count - 1u)) * params.k_c;
            let at1 = base + (start + min(r + 16u, count - 1u)) * params.k_c;
            var s0_0 = 0.0;
            var s0_1 = 0.0;
            for (var u = quarter; u < 6u; u += 4u) {
                let k0 = f32(k[at0 + u]);
                let k1 = f32(k[at1 + u]);
                let q0 = queries[0u + u];
                s0_0 += q0 * k0;
                s0_1 += q0 * k1;
            }
            if (r + 0u < count) {
                let p = (r + 0u) * 4u + quarter;
                pool[p + 0u] = s0_0;
            }
            if (r + 16u < count) {
                let p = (r + 16u) * 4u + quarter;
                pool[p + 0u] = s0_1;
            }
        }
        workgroupBarrier();
        for (var i = lane; i < count; i += 64u) {
            let p = i * 4u + 0u;
            let product = (pool[p] + pool[p + 1u]) + (pool[p + 2u] + pool[p + 3u]);
            weights[0u + i] = score(product, batch, head0, token, start + i);
        }
        workgroupBarrier();
        for (var p = lane; p < 8u; p += 64u) {
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
        workgroupBarrier();
        let rest = select(slice, count, slice >= 10u);
        for (var i = rest; i < count; i += 10u) {
            let row = base + (start + i) * params.k_c + column;
            let w0_0 = weights[i + 0u];
            let v0_0 = f32(v[row + 0u]);
            if (!(w0_0 == -1.0)) {
                total0 += w0_0;
                o0_0 += w0_0 * v0_0;
            }
        }
    }

    if (slice < 10u) {
        if (column == 0u) {
            peaks[0u + slice] = total0;
        }
        if (column + 0u < 6u) {
            let p = ((slice * 1u + 0u) * 6u + column + 0u) * 1u;
            pool[p + 0u] = o0_0;
        }
    }
    workgroupBarrier();
    var l0 = 0.0;
    for (var i = 0u; i < 10u; i++) {
        l0 += peaks[0u + i];
    }
    for (var u = lane; u < 6u; u += 64u) {
        var o = f32(0.0);
        for (var i = 0u; i < 10u; i++) {
            let p = ((i * 1u + 0u) * 6u + u) * 1u;
            o += pool[p];
        }
        let y = batch * params.y_b + token * params.y_s + head0 * params.y_h + u;
        sums[y] = select(o / l0, f32(0.0), l0 == 0.0);
    }
}
