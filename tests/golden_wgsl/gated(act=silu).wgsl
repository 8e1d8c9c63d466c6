@group(0) @binding(0) var<storage, read> h: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
struct Params {
    n: u32,
    width: u32,
}
@group(0) @binding(2) var<uniform> params: Params;

fn activate(gate: f32) -> f32 {
    return gate / (1.0 + exp(min(-gate, 88.0)));  // e^88 is the last that f32 holds
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
