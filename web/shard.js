// One shard on its way, from the network or the store: its bytes once size and sha256 are right.
//
// Input:  URL, path, size and sha256. Output: the bytes, or a fault.
// Way of the data: network or store -> shard (in fetcher.js, or here where there are no workers) -> weights.js.
//
// WebCrypto has no incremental hash, so a shard is held whole until it is checked; it has at most 64 MiB.

import { sha256 } from "./store.js";

/** @typedef {{url: string, path: string, sizeBytes: number, sha256: string}} ShardFile */

/** What all shards of this worker hold, and the most they ever held, in bytes. */
export const held = { bytes: 0, peak: 0 };

/** An error that Python turns into a typed one. @param {string} code @param {string} message */
export function fault(code, message) {
  return Object.assign(new Error(`${code}|${message}`), { name: "TabfireFault" });
}

/** Fetch a file of a bundle; the browser's own cache has no part in it. @param {string} url @param {RequestInit} options */
export async function fetchFile(url, options) {
  try {
    // A Firefox of old ends a stream that outgrows its cache's limit for an entry; the store keeps what is worth it.
    return await fetch(url, { cache: "no-store", ...options });
  } catch (error) {
    if (options.signal?.aborted) throw fault("aborted", "the load was stopped");
    throw fault("bad_bundle", `cannot fetch ${url}: ${error instanceof Error ? error.message : error}`);
  }
}

/** @param {number} n */
export const up4 = (n) => (n + 3) & ~3;

/**
 * The bytes of a shard, padded to a multiple of 4.
 * @param {ShardFile} file
 * @param {import("./store.js").Store | null} store
 * @param {AbortSignal} signal
 * @param {(bytes: number) => void} tell hears of bytes that came, and negative of bytes that proved wrong
 */
export async function fetchShard(file, store, signal, tell) {
  const { url, path, sizeBytes, sha256: stated } = file;
  const bytes = new Uint8Array(up4(sizeBytes));
  const name = `sha256/${stated}`;
  let have = 0;
  const count = (/** @type {number} */ more) => {
    have += more;
    tell(more);
  };
  const kept = await store?.get(name);
  if (kept?.body) {
    const hash = await receive(kept.body, file, bytes, count).catch(() => "");
    if (hash === stated) return bytes;
    tell(-have);
    await store?.drop(name);
  }
  const response = await fetchFile(url, { signal, priority: "low" });
  if (!response.ok || !response.body) throw fault("bad_bundle", `${path}: HTTP status ${response.status}`);
  const hash = await receive(response.body, file, bytes, tell);
  if (hash !== stated) {
    throw fault("integrity", `${path} has sha256 ${hash}, its manifest says ${stated}: the file was altered`);
  }
  await store?.put(name, bytes.subarray(0, sizeBytes));
  return bytes;
}

/**
 * Take a body into `bytes` and return its sha256.
 * @param {ReadableStream<Uint8Array>} body @param {ShardFile} file @param {Uint8Array<ArrayBuffer>} bytes
 * @param {(bytes: number) => void} tell
 */
async function receive(body, { path, sizeBytes }, bytes, tell) {
  const reader = body.getReader();
  let have = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (have + value.length > sizeBytes) {
      await reader.cancel();
      throw fault("integrity", `${path} is longer than the ${sizeBytes} bytes of its manifest`);
    }
    bytes.set(value, have);
    have += value.length;
    tell(value.length);
  }
  if (have !== sizeBytes) {
    throw fault("integrity", `${path} is truncated: ${have} bytes, its manifest says ${sizeBytes}`);
  }
  return sha256(bytes.subarray(0, sizeBytes));
}

/** A shard that somebody waits for. */
export class Shard {
  /** @param {ShardFile} file @param {Promise<Uint8Array<ArrayBuffer>>} coming */
  constructor(file, coming) {
    this.file = file;
    this.users = 0;
    /** @type {Promise<Uint8Array<ArrayBuffer>> | null} */
    this.bytes = coming;
    coming.catch(() => {}); // whoever uploads it hears of it; until then it must not count as unhandled
    held.bytes += up4(file.sizeBytes);
    held.peak = Math.max(held.peak, held.bytes);
  }

  /** Let go of the bytes. */
  drop() {
    if (this.bytes) held.bytes -= up4(this.file.sizeBytes);
    this.bytes = null;
  }
}
