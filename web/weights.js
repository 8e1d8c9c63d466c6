/**
 * Weights travel from `fetch` to `queue.writeBuffer`, chunk by chunk, and never through the Python heap.
 *
 * A shard is kept until its end only to be hashed by WebCrypto (which has no incremental form); a shard has at most
 * 64 MiB, so that is the bound on the memory that a download in flight holds.
 */

/**
 * @typedef {object} Target
 * @property {number} offset first byte in the shard
 * @property {number} size bytes
 * @property {GPUBuffer} buffer
 * @property {number} at first byte in the buffer
 */

/** An error that Python turns into a typed one. @param {string} code @param {string} message */
function fault(code, message) {
  return Object.assign(new Error(`${code}|${message}`), { name: "TabfireFault" });
}

/** @param {number} n */
const up4 = (n) => (n + 3) & ~3;

/**
 * Write the bytes `[from, to)` of a shard that have arrived to every target they touch.
 * Offsets within a target stay multiples of 4, as writeBuffer demands: `from` and `to` are, or `to` is the end.
 * @param {GPUQueue} queue @param {Uint8Array<ArrayBuffer>} shard @param {Target[]} targets @param {number} from @param {number} to
 */
function write(queue, shard, targets, from, to) {
  for (const { offset, size, buffer, at } of targets) {
    const first = Math.max(from, offset);
    const last = Math.min(to, offset + size);
    if (first >= last) continue;
    queue.writeBuffer(buffer, at + first - offset, shard, first, up4(last - first));
  }
}

/**
 * Fetch one shard, write it to its targets as it comes, check size and sha256.
 * @param {GPUDevice} device
 * @param {{url: string, path: string, sizeBytes: number, sha256: string, targets: Target[]}} file
 * @param {(bytes: number) => void} progress told the bytes of each chunk
 * @param {AbortSignal} [signal]
 */
export async function streamShard(device, file, progress, signal) {
  const { url, path, sizeBytes, sha256, targets } = file;
  const response = await fetch(url, { cache: "no-store", signal });
  if (!response.ok || !response.body) throw fault("bad_bundle", `${path}: HTTP status ${response.status}`);
  const shard = new Uint8Array(up4(sizeBytes));
  const reader = response.body.getReader();
  let have = 0;
  let written = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (have + value.length > sizeBytes) {
      await reader.cancel();
      throw fault("integrity", `${path} is longer than the ${sizeBytes} bytes of its manifest`);
    }
    shard.set(value, have);
    have += value.length;
    const ready = have === sizeBytes ? have : have & ~3;
    write(device.queue, shard, targets, written, ready);
    written = ready;
    progress(value.length);
  }
  if (have !== sizeBytes) {
    throw fault("integrity", `${path} is truncated: ${have} bytes, its manifest says ${sizeBytes}`);
  }
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", shard.subarray(0, sizeBytes)));
  const hex = Array.from(digest, (b) => b.toString(16).padStart(2, "0")).join("");
  if (hex !== sha256) {
    throw fault("integrity", `${path} has sha256 ${hex}, its manifest says ${sha256}: the file was altered`);
  }
}

/**
 * Stream all shards, a few at a time.
 * @param {GPUDevice} device
 * @param {Parameters<typeof streamShard>[1][]} files
 * @param {((done: number, total: number) => void) | null} progress
 * @param {number} [parallel]
 */
export async function streamWeights(device, files, progress, parallel = 3) {
  const total = files.reduce((sum, file) => sum + file.sizeBytes, 0);
  const controller = new AbortController();
  let done = 0;
  let next = 0;
  const tell = (/** @type {number} */ bytes) => {
    done += bytes;
    progress?.(done, total);
  };
  const lane = async () => {
    while (next < files.length) await streamShard(device, files[next++], tell, controller.signal);
  };
  try {
    await Promise.all(Array.from({ length: Math.min(parallel, files.length) }, lane));
  } catch (error) {
    controller.abort();
    throw error;
  }
}
