/**
 * One step of a program: write what changed, record every dispatch in one pass, submit once, map the outputs.
 *
 * Python prepares the flat lists once (runtime_py/program.py) and fills `words` before each step; the layout of
 * `words` is [parameter blocks | grids, 3 words each | output byte counts | input word counts | input words].
 * Given to Python with `registerJsModule`; needs no `eval`, so a strict CSP holds.
 */

/**
 * @typedef {object} Spec
 * @property {GPUBuffer} params uniform buffer of all parameter blocks
 * @property {number} paramWords words of `words` that go to `params`
 * @property {number} wordCount length of `words`
 * @property {GPUComputePipeline[]} pipelines one a dispatch
 * @property {GPUBindGroup[]} groups one a dispatch
 * @property {number[]} grids index into `words` of each dispatch's grid
 * @property {{buffer: GPUBuffer, at: number, countAt: number}[]} inputs small inputs that travel in `words`
 * @property {{buffer: GPUBuffer, at: number, bytesAt: number}[]} outputs where each output goes in `staging`
 * @property {GPUBuffer} staging mappable buffer that receives the outputs
 */

/**
 * Record every dispatch of a step in one pass.
 * @param {GPUCommandEncoder} encoder @param {Spec} spec @param {Int32Array} words @param {number} base where the step's words start
 */
export function record(encoder, spec, words, base) {
  const { pipelines, groups, grids } = spec;
  const pass = encoder.beginComputePass();
  let current = null;
  for (let i = 0; i < pipelines.length; i++) {
    if (pipelines[i] !== current) pass.setPipeline((current = pipelines[i]));
    pass.setBindGroup(0, groups[i]);
    const g = base + grids[i];
    pass.dispatchWorkgroups(words[g], words[g + 1], words[g + 2]);
  }
  pass.end();
}

export class Program {
  /** @param {GPUDevice} device @param {Spec} spec */
  constructor(device, spec) {
    this.device = device;
    this.spec = spec;
    this.words = new Int32Array(spec.wordCount);
    this.bytes = new Uint8Array(this.words.buffer); // what Python assigns to
    this.result = new Uint8Array(spec.staging.size);
  }

  /** Write the parameters and small inputs of this step. */
  upload() {
    const { queue } = this.device;
    const { params, paramWords, inputs } = this.spec;
    if (paramWords) queue.writeBuffer(params, 0, this.words, 0, paramWords);
    for (const { buffer, at, countAt } of inputs) {
      queue.writeBuffer(buffer, 0, this.words, at, this.words[countAt]);
    }
  }

  /** Record all dispatches and output copies and submit them. */
  submit() {
    this.upload();
    const encoder = this.device.createCommandEncoder();
    record(encoder, this.spec, this.words, 0);
    this.finish(encoder);
  }

  /** Copy the outputs to `staging` and submit. @param {GPUCommandEncoder} encoder */
  finish(encoder) {
    const { outputs, staging } = this.spec;
    for (const { buffer, at, bytesAt } of outputs) {
      encoder.copyBufferToBuffer(buffer, 0, staging, at, this.words[bytesAt]);
    }
    this.device.queue.submit([encoder.finish()]);
  }

  /** Wait for the submitted step and copy its outputs to `result`. */
  async read() {
    const { staging } = this.spec;
    await staging.mapAsync(GPUMapMode.READ);
    for (const { at, bytesAt } of this.spec.outputs) {
      this.result.set(new Uint8Array(staging.getMappedRange(at, this.words[bytesAt])), at);
    }
    staging.unmap();
  }

  /** A whole step. */
  async run() {
    this.submit();
    await this.read();
  }

  /** A copy of one output's bytes, for outputs that Python should not copy whole. @param {number} index */
  output(index) {
    const { at, bytesAt } = this.spec.outputs[index];
    return this.result.slice(at, at + this.words[bytesAt]);
  }
}
