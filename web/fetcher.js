// A worker beside the one of Python, for the shards: while Python starts, that one's thread is busy and reads nothing.
//
// Input:  {id, file, keep} asks for a shard; {abort: true} ends all that are under way.
// Output: {id, came: bytes} as they come, then {id, bytes} or {id, fault}. The bytes are handed over, not copied.
// Way of the data: network or store -> shard.js -> fetcher -> downloads.js.

import { fetchShard } from "./shard.js";
import { Store } from "./store.js";

const TELL_MS = 30;
const store = Store.open();

/** @typedef {import("./shard.js").ShardFile} ShardFile */

/** @param {{id: number, file: ShardFile, keep: boolean}} request */
async function answer({ id, file, keep }) {
  let came = 0;
  let told = performance.now();
  const flush = () => {
    self.postMessage({ id, came });
    came = 0;
    told = performance.now();
  };
  const tell = (/** @type {number} */ bytes) => {
    came += bytes;
    if (bytes < 0 || performance.now() - told > TELL_MS) flush();
  };
  try {
    const bytes = await fetchShard(file, keep ? await store : null, new AbortController().signal, tell);
    flush();
    self.postMessage({ id, bytes }, { transfer: [bytes.buffer] });
  } catch (error) {
    self.postMessage({ id, fault: error instanceof Error ? error.message : String(error) });
  }
}

self.onmessage = ({ data }) => void answer(data);
