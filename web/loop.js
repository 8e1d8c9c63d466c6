/**
 * Several steps of a program in a row, each fed by the token that the one before it chose on the GPU.
 *
 * Nothing comes back between them: a group of steps is submitted, and one `mapAsync` brings its ids. Two groups may be
 * under way at once, each with a staging buffer of its own, so that the GPU has work while the host reads.
 * Given to Python with `registerJsModule`; runtime_py/loop.py fills `words`, one step's after the other, and makes one
 * call a group.
 */

import { record } from "./replay.js";

/** @typedef {import("./replay.js").Program} Program */

const GROUPS = 2;

export class Loop {
  /** @param {Program} program its step reads and writes `token` @param {GPUBuffer} token @param {number} capacity most steps a group */
  constructor(program, token, capacity) {
    this.program = program;
    this.token = token;
    this.step = program.spec.wordCount;
    this.words = new Int32Array(capacity * this.step);
    const usage = GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const size = Math.max(16, this.words.byteLength);
    this.blocks = program.device.createBuffer({ label: "parameters of a group", size, usage });
    this.size = Math.max(16, 4 * capacity);
    /** @type {{count: number, staging: GPUBuffer}[]} groups under way, the oldest first */
    this.pending = [];
    this.free = Array.from({ length: GROUPS }, () => this.staging());
  }

  staging() {
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    return this.program.device.createBuffer({ label: "ids", size: this.size, usage });
  }

  /** The bytes of `words` for a group of `count` steps, for Python to assign to. @param {number} count */
  view(count) {
    return new Uint8Array(this.words.buffer, 0, 4 * count * this.step);
  }

  /** Put the id that the next step reads. @param {number} id */
  put(id) {
    this.program.device.queue.writeBuffer(this.token, 0, new Int32Array([id]));
  }

  /**
   * Submit a group of `count` steps: one write and one command buffer, in which each step first takes its parameters.
   * @param {number} count
   */
  submit(count) {
    const { device, spec } = this.program;
    const staging = this.free.shift() ?? this.staging(); // none is free where a wait was cancelled
    const encoder = device.createCommandEncoder();
    device.queue.writeBuffer(this.blocks, 0, this.words, 0, count * this.step);
    for (let i = 0; i < count; i++) {
      const base = i * this.step;
      encoder.copyBufferToBuffer(this.blocks, 4 * base, spec.params, 0, 4 * spec.paramWords);
      record(encoder, spec, this.words, base);
      encoder.copyBufferToBuffer(this.token, 0, staging, 4 * i, 4);
    }
    device.queue.submit([encoder.finish()]);
    this.pending.push({ count, staging });
  }

  /**
   * Submit a group, unless `count` is 0, and answer with the ids of the oldest one under way.
   * @param {number} ticket @param {number} count
   */
  advance(ticket, count) {
    if (count) this.submit(count);
    this.program.answer(ticket, this.read());
  }

  /** The ids of the oldest group, with commas between: a string costs Python no proxy. @returns {Promise<string>} */
  async read() {
    const { count, staging } = /** @type {{count: number, staging: GPUBuffer}} */ (this.pending.shift());
    await staging.mapAsync(GPUMapMode.READ, 0, this.size);
    const ids = new Int32Array(staging.getMappedRange(0, this.size), 0, count).join();
    staging.unmap();
    this.free.push(staging);
    return ids;
  }

  destroy() {
    for (const { staging } of this.pending) staging.destroy();
    for (const buffer of [...this.free, this.token, this.blocks]) buffer.destroy();
  }
}
