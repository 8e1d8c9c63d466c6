// Loads a bundle's files with a network and a Cache API of its own making, and says what happened; driven by
// tests/test_downloads.py.
//
// Input:  a JSON job on stdin: {shard_bytes: [n, ...], tokenizer?, loads: [{fault?, kept?, store?, offline?, python_ms?,
//         early?}, ...]}. `tokenizer`: one more file, which Python asks for too, and a load may prepare `early`.
//         fault: "altered" | "long" | "short" | "missing", of the first shard on the network; kept: the same of its copy
//         in the store; store: false or "full"; offline: every fetch rejects; python_ms: how late Python asks.
// Output: JSON, one entry a load: {error, fetched, progress, upload, right, peak, names, ids}.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

const URL_ = "http://models.test/m";
const job = JSON.parse(readFileSync(0, "utf8"));
globalThis.self = /** @type {any} */ ({ origin: "http://models.test" });

const files = new Map();
const hash = (bytes) => createHash("sha256").update(bytes).digest("hex");
job.shard_bytes.forEach((size, i) => {
  files.set(`weights-0000${i + 1}.bin`, Uint8Array.from({ length: size }, (_, at) => (at * 7 + i) & 255));
});
files.set("graph.json", new TextEncoder().encode('{"graph": true}'));
if (job.tokenizer) files.set("tokenizer.json", new TextEncoder().encode(JSON.stringify(job.tokenizer)));
const listed = [...files].map(([path, bytes]) => ({ path, size_bytes: bytes.length, sha256: hash(bytes) }));
const text = { tokenizer: "tokenizer.json" };
files.set("manifest.json", new TextEncoder().encode(JSON.stringify({ files: listed, text })));

/** @type {Map<string, Uint8Array>} */
const disk = new Map();
let load = job.loads[0];
let fetched = [];
let modes = new Set();

const damaged = (bytes, how) => {
  if (how === "altered") return bytes.map((byte, i) => (i === 9 ? byte ^ 1 : byte));
  if (how === "short") return bytes.slice(0, -3);
  return how === "long" ? new Uint8Array([...bytes, 1, 2, 3, 4]) : bytes;
};

/** A body in uneven chunks. */
function body(bytes) {
  let at = 0;
  return new ReadableStream({
    async pull(out) {
      await new Promise((resolve) => setImmediate(resolve));
      if (at >= bytes.length) return out.close();
      out.enqueue(bytes.slice(at, (at += 1021)));
    },
  });
}

globalThis.fetch = async (url, options = {}) => {
  const path = String(url).slice(URL_.length + 1);
  fetched.push(path);
  modes.add(options.cache);
  if (load.offline) throw new TypeError("Failed to fetch");
  const first = path === (job.tokenizer ? "tokenizer.json" : "weights-00001.bin");
  if (!files.has(path) || (first && load.fault === "missing")) return new Response("", { status: 404 });
  return new Response(body(first ? damaged(files.get(path), load.fault) : files.get(path)));
};

const cache = {
  match: async (url) => (disk.has(url) ? new Response(body(disk.get(url))) : undefined),
  put: async (url, response) => {
    if (load.store === "full") throw new DOMException("no room", "QuotaExceededError");
    disk.set(url, new Uint8Array(await response.arrayBuffer()));
  },
  delete: async (url) => disk.delete(url),
  keys: async () => [...disk.keys()].map((url) => ({ url })),
};
globalThis.caches = { open: async () => cache };

const { beginDownloads, Downloads, endDownloads } = await import("../web/downloads.js");
const { held } = await import("../web/shard.js");
const { Store } = await import("../web/store.js");
const tokenizers = await import("../web/tokenizer.js");
const { readFile, streamWeights } = await import("../web/weights.js");

async function once() {
  const shards = listed.filter(({ path }) => path.endsWith(".bin"));
  const buffers = shards.map(({ size_bytes: size }) => new Uint8Array((size + 3) & ~3));
  const device = {
    queue: {
      writeBuffer(buffer, at, data, from, count) {
        if ((at | count) & 3 || from + count > data.length) throw new Error("writeBuffer takes multiples of 4 inside");
        buffer.set(data.subarray(from, from + count), at);
      },
    },
  };
  const weights = shards.map(({ path, size_bytes: size, sha256 }, i) => {
    const cut = (size >> 1) & ~3; // two tensors a shard
    const target = (offset, length) => ({ offset, size: length, buffer: buffers[i], at: offset });
    const targets = [target(0, cut), target(cut, size - cut)];
    return { url: `${URL_}/${path}`, path, sizeBytes: size, sha256, targets };
  });
  const progress = [];
  const upload = [];
  held.peak = held.bytes;
  const store = load.store === false ? Promise.resolve(null) : Store.open();
  const downloads = beginDownloads(
    new Downloads(`${URL_}/`, { store, progress: (done, total) => progress.push(done / total) }),
  );
  let [error, ids] = ["", null];
  try {
    if (load.early) await tokenizers.prepare(downloads);
    if (load.python_ms) await new Promise((resolve) => setTimeout(resolve, load.python_ms));
    await readFile(URL_, "manifest.json");
    await readFile(URL_, "graph.json");
    if (job.tokenizer) {
      const { path, size_bytes: size, sha256 } = listed.find((file) => file.path === "tokenizer.json");
      const tokenizer = await tokenizers.load(URL_, path, size, sha256);
      ids = [...tokenizer.encode("ab", true)];
    }
    await streamWeights(device, URL_, weights, (done, total) => upload.push(done / total));
  } catch (problem) {
    error = problem.message;
  }
  tokenizers.forget(downloads.url);
  await endDownloads(downloads, error === "");
  await new Promise((resolve) => setTimeout(resolve, 20)); // writes to the store end
  const right = buffers.every((buffer, i) => hash(buffer.subarray(0, shards[i].size_bytes)) === shards[i].sha256);
  const names = [...disk.keys()].map((url) => url.split("/.tabfire/")[1]).sort();
  return { error, fetched, modes: [...modes], progress, upload, right, peak: held.peak, left: held.bytes, names, ids };
}

const results = [];
for (load of job.loads) {
  fetched = [];
  modes = new Set();
  if (load.kept) {
    const at = `http://models.test/.tabfire/sha256/${listed[0].sha256}`;
    disk.set(at, damaged(files.get(listed[0].path), load.kept));
  }
  if (load.revised) {
    files.set("graph.json", new TextEncoder().encode('{"graph": 2}'));
    const entry = listed.find(({ path }) => path === "graph.json");
    Object.assign(entry, { size_bytes: 12, sha256: hash(files.get("graph.json")) });
    files.set("manifest.json", new TextEncoder().encode(JSON.stringify({ files: listed })));
  }
  results.push(await once());
}
process.stdout.write(JSON.stringify(results));
