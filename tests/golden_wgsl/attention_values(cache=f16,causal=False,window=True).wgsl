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
    n: u32,
    q_heads: u32,
    head_dim: u32,
}

@group(0) @binding(0) var<storage, read> weights: array<f32>;
@group(0) @binding(1) var<storage, read> v: array<f16>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

const LOWEST = -3.4028234e38;

fn end_key(token: u32) -> u32 {
    return params.keys;
}

fn first_key(token: u32) -> u32 {
    let seen = params.position + token + 1u;
    return seen - min(seen, params.window);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
    let item = (group.x + group.y * groups.x) * 64u + lane;
    if (item >= params.n) {
        return;
    }
    let d = item % params.head_dim;
    let row = item / params.head_dim;
    let token = row % params.S;
    let head = row / params.S % params.q_heads;
    let batch = row / params.S / params.q_heads;
    let start = batch * params.k_b + head / params.group * params.k_h + d;
    var o = 0.0;
    for (var j = first_key(token); j < end_key(token); j++) {
        let w = weights[row * params.keys + j];
        if (!(w == -1.0)) {
            o += w * f32(v[start + j * params.k_c]);
        }
    }
    y[batch * params.y_b + token * params.y_s + head * params.y_h + d] = o;
}
