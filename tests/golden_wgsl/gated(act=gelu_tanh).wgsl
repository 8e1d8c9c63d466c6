@group(0) @binding(0) var<storage, read> h: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
struct Params {
    n: u32,
    width: u32,
}
@group(0) @binding(2) var<uniform> params: Params;

fn activate(gate: f32) -> f32 {
    let inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate);
    return 0.5 * gate * (1.0 + tanh(clamp(inner, -15.0, 15.0)));  // 1 in f32 beyond
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let i = (group.x + group.y * groups.x) * 256u + thread;
    if (i >= params.n) {
        return;
    }
    let gate = i + i / params.width * params.width;
    y[i] = activate(h[gate]) * h[gate + params.width];
}
