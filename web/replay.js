/**
 * One step of a program: write what changed, record every dispatch in one pass, submit once, map the outputs.
 *
 * Python prepares the flat lists once (runtime_py/program.py) and fills `words` before each step; the layout of
 * `words` is [parameter blocks | grids, 3 words each | output byte counts | input word counts | input words | wanted].
 * A step runs the dispatches, and brings the outputs, that have a bit in common with `wanted`.
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
 * @property {number[]} serves bits of each dispatch: the outputs that it feeds, and the bit that is always wanted
 * @property {number} wantedAt index into `words` of the wanted bits
 * @property {{buffer: GPUBuffer, at: number, countAt: number}[]} inputs small inputs that travel in `words`
 * @property {{buffer: GPUBuffer, at: number, bytesAt: number, bit: number}[]} outputs where each output goes in `staging`
 * @property {GPUBuffer} staging mappable buffer that receives the outputs
 */

/**
 * Record the dispatches of a step in one pass.
 * @param {GPUCommandEncoder} encoder @param {Spec} spec @param {Int32Array} words @param {number} base where the step's words start
 */
export function record(encoder, spec, words, base) {
  const { pipelines, groups, grids, serves } = spec;
  const wanted = words[base + spec.wantedAt];
  const pass = encoder.beginComputePass();
  let current = null;
  for (let i = 0; i < pipelines.length; i++) {
    const g = base + grids[i];
    if (!(serves[i] & wanted) || !words[g]) continue; // a grid of 0 is a route that this step does not take
    if (pipelines[i] !== current) pass.setPipeline((current = pipelines[i]));
    pass.setBindGroup(0, groups[i]);
    pass.dispatchWorkgroups(words[g], words[g + 1], words[g + 2]);
  }
  pass.end();
}

/** @typedef {(ticket: number, value?: any, error?: unknown) => void} Settle a call of Python: runtime_py/answers.py */

export class Program {
  /** @param {GPUDevice} device @param {Spec} spec @param {Settle} settle */
  constructor(device, spec, settle) {
    this.device = device;
    this.spec = spec;
    this.settle = settle;
    this.words = new Int32Array(spec.wordCount);
    this.bytes = new Uint8Array(this.words.buffer); // what Python assigns to
    this.result = new Uint8Array(spec.staging.size);
    /** Over when no output is on its way to `result` any more. @type {Promise<unknown>} */
    this.reading = Promise.resolve();
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

  /** The outputs that this step wants. */
  wanted() {
    return this.spec.outputs.filter(({ bit }) => bit & this.words[this.spec.wantedAt]);
  }

  /** Copy the wanted outputs to `staging` and submit. @param {GPUCommandEncoder} encoder */
  finish(encoder) {
    for (const { buffer, at, bytesAt } of this.wanted()) {
      encoder.copyBufferToBuffer(buffer, 0, this.spec.staging, at, this.words[bytesAt]);
    }
    this.device.queue.submit([encoder.finish()]);
  }

  /** Wait for the submitted step and copy its wanted outputs to `result`. @returns {Promise<unknown>} */
  read() {
    const reading = this.take();
    this.reading = reading.catch(() => {});
    return reading;
  }

  async take() {
    const { staging } = this.spec;
    const outputs = this.wanted().map(({ at, bytesAt }) => ({ at, size: this.words[bytesAt] }));
    const parts = outputs.filter(({ size }) => size > 0);
    if (!parts.length) return this.device.queue.onSubmittedWorkDone();
    const { at: start } = parts[0];
    const { at: last, size } = parts[parts.length - 1];
    await staging.mapAsync(GPUMapMode.READ, start, last + size - start);
    for (const { at, size } of parts) this.result.set(new Uint8Array(staging.getMappedRange(at, size)), at);
    staging.unmap();
  }

  /** A whole step. @param {number} ticket answered when the outputs are there */
  run(ticket) {
    this.submit();
    this.answer(ticket, this.read());
  }

  /** Answer a ticket with what a promise brings. @param {number} ticket @param {Promise<any>} promise */
  answer(ticket, promise) {
    promise.then(
      (value) => this.settle(ticket, value),
      (error) => this.settle(ticket, undefined, error),
    );
  }

  /** A part of `result`, for Python to copy from. @param {number} at @param {number} size both in bytes */
  view(at, size) {
    return new Uint8Array(this.result.buffer, at, size);
  }

  /** A copy of one output's bytes, for outputs that Python should not copy whole. @param {number} index */
  output(index) {
    const { at, bytesAt } = this.spec.outputs[index];
    return this.result.slice(at, at + this.words[bytesAt]);
  }
}
