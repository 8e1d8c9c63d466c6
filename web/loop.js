/**
 * Several steps of a program in a row, each fed by the token that the one before it chose on the GPU.
 *
 * Nothing comes back between them: a group of steps is submitted, and one `mapAsync` brings its ids. Two groups may be
 * under way at once (two `slots`), so that the GPU has work while the host reads.
 * Given to Python with `registerJsModule`; runtime_py/loop.py fills `words`, one step's after the other.
 */

import { record } from "./replay.js";

/** @typedef {import("./replay.js").Program} Program */

export const SLOTS = 2;

export class Loop {
  /** @param {Program} program its step reads and writes `token` @param {GPUBuffer} token @param {number} capacity most steps a group */
  constructor(program, token, capacity) {
    this.program = program;
    this.token = token;
    this.step = program.spec.wordCount;
    this.words = new Int32Array(capacity * this.step);
    this.ids = new Int32Array(capacity);
    this.id_bytes = new Uint8Array(this.ids.buffer); // what Python copies from
    this.stagings = Array.from({ length: SLOTS }, () =>
      program.device.createBuffer({
        label: "ids",
        size: Math.max(16, 4 * capacity),
        usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
      }),
    );
  }

  /** The bytes of `words` for a group of `count` steps, for Python to assign to. @param {number} count */
  view(count) {
    return new Uint8Array(this.words.buffer, 0, 4 * count * this.step);
  }

  /** Put the id that the next step reads. @param {number} id */
  put(id) {
    this.program.device.queue.writeBuffer(this.token, 0, new Int32Array([id]));
  }

  /** Submit `count` steps whose ids go to `slot`. @param {number} count @param {number} slot */
  submit(count, slot) {
    const { device, spec } = this.program;
    for (let i = 0; i < count; i++) {
      const base = i * this.step;
      device.queue.writeBuffer(spec.params, 0, this.words, base, spec.paramWords);
      const encoder = device.createCommandEncoder();
      record(encoder, spec, this.words, base);
      encoder.copyBufferToBuffer(this.token, 0, this.stagings[slot], 4 * i, 4);
      device.queue.submit([encoder.finish()]);
    }
  }

  /** Wait for a submitted group and copy its ids to `ids`. @param {number} count @param {number} slot */
  async read(count, slot) {
    const staging = this.stagings[slot];
    await staging.mapAsync(GPUMapMode.READ);
    this.ids.set(new Int32Array(staging.getMappedRange(0, Math.max(16, 4 * count)), 0, count));
    staging.unmap();
  }

  destroy() {
    for (const buffer of [...this.stagings, this.token]) buffer.destroy();
  }
}
