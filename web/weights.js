/**
 * Weights travel from `fetch` to `queue.writeBuffer`, shard by shard, and never through the Python heap.
 *
 * Input:  shards (downloads.js) and the GPU buffers that they fill. Output: filled buffers, or a fault.
 * Way of the data: downloads -> weights -> the GPU; runtime_py/device.py calls it as `tabfire_weights`.
 */

import { Downloads, downloadsOf } from "./downloads.js";
import { up4 } from "./shard.js";

/**
 * @typedef {object} Target
 * @property {number} offset first byte in the shard
 * @property {number} size bytes
 * @property {GPUBuffer} buffer
 * @property {number} at first byte in the buffer
 *
 * @typedef {import("./shard.js").ShardFile & {targets: Target[]}} WeightFile
 */

const PARALLEL = 3;

/** The bytes of a file of the bundle at `url`. @param {string} url @param {string} path */
export function readFile(url, path) {
  return downloadsOf(url).read(path);
}

/**
 * Write one shard to its targets, once its size and sha256 are right. A size is padded to a multiple of 4, as
 * writeBuffer demands: buffers have that room.
 * @param {GPUQueue} queue @param {Downloads} downloads @param {WeightFile} file
 */
async function upload(queue, downloads, file) {
  const shard = await downloads.shard(file);
  try {
    const bytes = await shard.bytes;
    if (!bytes) return;
    for (const { offset, size, buffer, at } of file.targets) queue.writeBuffer(buffer, at, bytes, offset, up4(size));
  } finally {
    downloads.release(shard);
  }
}

/**
 * Stream all shards of the bundle at `url`, a few at a time.
 * @param {GPUDevice} device
 * @param {string} url
 * @param {WeightFile[]} files
 * @param {((done: number, total: number) => void) | null} progress
 */
export async function streamWeights(device, url, files, progress) {
  const total = files.reduce((sum, file) => sum + file.sizeBytes, 0);
  const downloads = downloadsOf(url);
  let done = 0;
  let next = 0;
  let failed = false;
  const lane = async () => {
    while (next < files.length && !failed) {
      const file = files[next++];
      await upload(device.queue, downloads, file);
      done += file.sizeBytes;
      if (!failed) progress?.(done, total);
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(PARALLEL, files.length) }, lane));
  } catch (error) {
    failed = true;
    throw error;
  } finally {
    if (downloads.users === 0) await downloads.close(false); // else core.js ends them with the load
  }
}
