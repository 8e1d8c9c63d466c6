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
    n: u32,
    q_heads: u32,
    head_dim: u32,
}

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> mask: array<u32>;
@group(0) @binding(3) var<storage, read_write> scores: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

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

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let item = (group.x + group.y * groups.x) * 64u + lane;
    if (item >= params.n) {
        return;
    }
    let key = item % params.keys;
    let row = item / params.keys;
    let token = row % params.S;
    let head = row / params.S % params.q_heads;
    let batch = row / params.S / params.q_heads;
    if (key < first_key(token) || key >= end_key(token)) {
        scores[item] = LOWEST;
        return;
    }
    let row_q = batch * params.q_b + token * params.q_s + head * params.q_h;
    let row_k = batch * params.k_b + key * params.k_c + head / params.group * params.k_h;
    var product = 0.0;
    for (var d = 0u; d < params.head_dim; d++) {
        product += q[row_q + d] * f32(k[row_k + d]);
    }
    scores[item] = score(product, batch, head, token, key);
}
