// The most likely token, found on the GPU: one workgroup walks the row, then halves its candidates; the lower id wins.
//
// Input:  a buffer of logits, f32 or pairs of f16. Output: the id as int64 in a buffer, for the next step to read, and
//         on the host by `read`.

const THREADS = 256;

/** @param {number} count @param {boolean} half logits are f16, two to a word */
function shader(count, half) {
  const value = half
    ? "unpack2x16float(logits[i / 2u])[i % 2u]"
    : "logits[i]";
  return `
@group(0) @binding(0) var<storage, read> logits: array<${half ? "u32" : "f32"}>;
@group(0) @binding(1) var<storage, read_write> chosen: array<u32, 2>;
var<workgroup> best: array<f32, ${THREADS}>;
var<workgroup> where_is: array<u32, ${THREADS}>;

@compute @workgroup_size(${THREADS})
fn main(@builtin(local_invocation_index) lane: u32) {
  var most = -3.4e38;
  var at = 0u;
  for (var i = lane; i < ${count}u; i += ${THREADS}u) {
    let value = ${value};
    if (value > most) {
      most = value;
      at = i;
    }
  }
  best[lane] = most;
  where_is[lane] = at;
  workgroupBarrier();
  for (var half = ${THREADS / 2}u; half > 0u; half /= 2u) {
    if (lane < half) {
      let other = lane + half;
      let tie = best[other] == best[lane] && where_is[other] < where_is[lane];
      if (best[other] > best[lane] || tie) {
        best[lane] = best[other];
        where_is[lane] = where_is[other];
      }
    }
    workgroupBarrier();
  }
  if (lane == 0u) {
    chosen[0] = where_is[0];
    chosen[1] = 0u;
  }
}`;
}

export class Argmax {
  /** @param {GPUDevice} device @param {{logits: GPUBuffer, id: GPUBuffer}} buffers @param {number} count @param {boolean} half */
  constructor(device, buffers, count, half) {
    this.device = device;
    this.id = buffers.id;
    const module = device.createShaderModule({ code: shader(count, half) });
    this.pipeline = device.createComputePipeline({ layout: "auto", compute: { module } });
    this.group = device.createBindGroup({
      layout: this.pipeline.getBindGroupLayout(0),
      entries: [buffers.logits, buffers.id].map((buffer, binding) => ({ binding, resource: { buffer } })),
    });
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    this.staging = device.createBuffer({ size: 4, usage });
  }

  /** Choose, and wait for the id. */
  async read() {
    const encoder = this.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(this.pipeline);
    pass.setBindGroup(0, this.group);
    pass.dispatchWorkgroups(1);
    pass.end();
    encoder.copyBufferToBuffer(this.id, 0, this.staging, 0, 4);
    this.device.queue.submit([encoder.finish()]);
    await this.staging.mapAsync(GPUMapMode.READ);
    const [id] = new Uint32Array(this.staging.getMappedRange().slice(0));
    this.staging.unmap();
    return id;
  }
}
