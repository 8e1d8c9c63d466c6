// The files of one bundle, asked for before anybody needs them: while Python starts, they come.
//
// Input:  a bundle's URL. Output: `read(path)` for the files that Python reads, `shard(file)` for those of weights.js.
// Way of the data: core.js begins them when a load is asked for -> downloads -> runtime_py (bundle) and weights.js.
//
// A manifest read here only says what to hurry for. Python reads the same bytes, judges them and checks every hash.

import { fault, fetchFile, fetchShard, held, Shard } from "./shard.js";
import { listFiles, sha256 } from "./store.js";

const MANIFEST = "manifest.json";
const LANES = 3;
const SHARD_BYTES = 1 << 26;
/** No more than this waits in memory for Python; what is left comes when it asks. */
const AHEAD_BYTES = 4 * SHARD_BYTES;

/** @typedef {import("./store.js").Store} Store */

/** The shards of one load in a worker of their own, see fetcher.js. */
export class Fetcher {
  /** Null where there are no workers, or none from here. */
  static start() {
    try {
      return "Worker" in globalThis ? new Fetcher() : null;
    } catch {
      return null; // a script of another origin
    }
  }

  constructor() {
    this.worker = new Worker(new URL("./fetcher.js", import.meta.url), { type: "module" });
    /** @type {Map<number, {tell: (bytes: number) => void, give: (bytes: any) => void, fail: (error: Error) => void}>} */
    this.waiting = new Map();
    this.ids = 0;
    this.worker.onmessage = ({ data }) => this.receive(data);
    this.worker.onerror = (event) => this.end(`fetcher.js stopped: ${event.message ?? "it could not be loaded"}`);
  }

  /** @param {{id: number, came?: number, bytes?: Uint8Array<ArrayBuffer>, fault?: string}} reply */
  receive({ id, came, bytes, fault: problem }) {
    const waiting = this.waiting.get(id);
    if (came !== undefined) return void waiting?.tell(came);
    this.waiting.delete(id);
    if (bytes) waiting?.give(bytes);
    else waiting?.fail(Object.assign(new Error(problem), { name: "TabfireFault" }));
  }

  /**
   * @param {import("./shard.js").ShardFile} file @param {boolean} keep @param {(bytes: number) => void} tell
   * @returns {Promise<Uint8Array<ArrayBuffer>>}
   */
  fetch(file, keep, tell) {
    const id = ++this.ids;
    return new Promise((give, fail) => {
      this.waiting.set(id, { tell, give, fail });
      this.worker.postMessage({ id, file, keep });
    });
  }

  /** @param {string} reason */
  end(reason) {
    this.worker.terminate();
    for (const { fail } of this.waiting.values()) fail(fault("bad_bundle", reason));
    this.waiting.clear();
  }

  close() {
    this.end("the load is over");
  }
}

export class Downloads {
  /**
   * @param {string} url the bundle's folder
   * @param {{store?: Promise<Store | null>, text?: boolean, progress?: (done: number, total: number) => void,
   *   parallel?: boolean}} [options] `parallel`: shards come by a worker of their own
   */
  constructor(url, { store = Promise.resolve(null), text = true, progress, parallel = false } = {}) {
    this.url = url.replace(/\/+$/, "");
    this.store = store;
    this.text = text;
    this.parallel = parallel;
    /** @type {Fetcher | null} */
    this.fetcher = null;
    this.progress = progress;
    this.users = 0;
    this.done = 0;
    this.total = 0;
    this.hurry = true;
    this.stop = new AbortController();
    /** @type {Map<string, Shard>} */
    this.shards = new Map();
    /** @type {Map<string, Promise<ArrayBuffer>>} */
    this.reads = new Map();
    /** @type {Map<string, {path: string, sizeBytes: number, sha256: string}>} */
    this.files = new Map();
    this.span = { start: performance.now(), end: performance.now() };
    /** How to let go of the store. @type {Promise<(() => Promise<void>) | undefined>} */
    this.held = Promise.resolve(undefined);
    /** Settles once the manifest was read. @type {Promise<unknown>} */
    this.listed = Promise.resolve();
  }

  /** Ask for everything that a load will need. Never rejects. */
  async begin() {
    this.held = this.store.then((store) => store?.hold());
    const reading = this.read(MANIFEST).catch(() => null);
    this.listed = reading;
    const [manifest] = await Promise.all([reading, this.held]);
    if (!manifest || this.stop.signal.aborted) return;
    const wanted = [...this.files.values()].filter((file) => this.isWanted(file));
    const shards = wanted.filter(isShard);
    this.total = wanted.reduce((sum, file) => sum + file.sizeBytes, 0);
    for (const { path } of wanted) if (!isShard({ path })) this.read(path).catch(() => {});
    const store = await this.store;
    let next = 0;
    const lane = async () => {
      while (this.hurry && next < shards.length && held.bytes < AHEAD_BYTES && !this.stop.signal.aborted) {
        const file = shards[next++];
        await this.open({ ...file, url: `${this.url}/${file.path}` }, store).bytes?.catch(() => {});
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
  }

  /** @param {{path: string, sizeBytes: number}} file */
  isWanted({ path, sizeBytes }) {
    if (path.startsWith("golden/") || sizeBytes > SHARD_BYTES) return false;
    return isShard({ path }) || path === "graph.json" || this.text;
  }

  /**
   * The bytes of a file. Rejects with a fault where it cannot be had; Python checks size and hash.
   * @param {string} path
   */
  read(path) {
    const known = this.reads.get(path);
    this.reads.delete(path);
    if (known) return known;
    const reading = path === MANIFEST ? this.readManifest() : this.readFile(path);
    this.reads.set(path, reading);
    return reading;
  }

  /**
   * The file that the manifest names as the tokenizer, null where it names none.
   * @returns {Promise<import("./store.js").Listed | null>}
   */
  async tokenizer() {
    await this.listed;
    try {
      const { text } = JSON.parse(new TextDecoder().decode(this.manifest ?? new ArrayBuffer(0)));
      return this.files.get(text.tokenizer) ?? null;
    } catch {
      return null; // Python tells what is wrong with it
    }
  }

  /** What the manifest says of a file's sha256, "" where it does not. @param {string} path */
  async hashOf(path) {
    await this.listed;
    return this.files.get(path)?.sha256 ?? "";
  }

  /** The network's manifest, or the kept one where no network is. */
  async readManifest() {
    const url = `${this.url}/${MANIFEST}`;
    const bytes = await fetchFile(url, { signal: this.stop.signal }).then(
      (response) => bodyOf(response, url),
      async (error) => {
        const kept = await (await this.store)?.manifest(this.url);
        if (!kept) throw error;
        return kept;
      },
    );
    for (const file of listFiles(bytes)) this.files.set(file.path, file);
    /** @type {ArrayBuffer | null} */
    this.manifest = bytes;
    return bytes;
  }

  /** @param {string} path */
  async readFile(path) {
    const store = await this.store;
    const file = this.files.get(path);
    const name = `sha256/${file?.sha256}`;
    const kept = file && (await store?.bytes(name));
    if (kept && (await sha256(kept)) === file.sha256) return this.tell(kept.byteLength, kept);
    if (kept) await store?.drop(name);
    const url = `${this.url}/${path}`;
    const bytes = await bodyOf(await fetchFile(url, { signal: this.stop.signal }), url);
    if (file && store && (await sha256(bytes)) === file.sha256) void store.put(name, bytes.slice(0));
    return this.tell(bytes.byteLength, bytes);
  }

  /** The shard, on its way already or from now on; `release` it after use. @param {import("./shard.js").ShardFile} file */
  async shard(file) {
    this.hurry = false; // whoever asks takes them in order; what has begun goes on
    const shard = this.open(file, await this.store);
    shard.users += 1;
    return shard;
  }

  /** @param {import("./shard.js").ShardFile} file @param {Store | null} store */
  open(file, store) {
    const known = this.shards.get(file.path);
    if (known && known.file.sha256 === file.sha256 && known.file.sizeBytes === file.sizeBytes) return known;
    const counted = this.files.has(file.path) && this.total > 0;
    const tell = (/** @type {number} */ bytes) => void (counted && this.tell(bytes, null));
    const { url, path, sizeBytes, sha256: hash } = file;
    const plain = { url, path, sizeBytes, sha256: hash };
    if (this.parallel) this.fetcher ??= Fetcher.start();
    const coming = this.fetcher
      ? this.fetcher.fetch(plain, store !== null, tell)
      : fetchShard(plain, store, this.stop.signal, tell);
    const shard = new Shard(file, coming);
    this.shards.set(file.path, shard);
    return shard;
  }

  /** @param {Shard} shard */
  release(shard) {
    shard.users -= 1;
    if (shard.users > 0) return;
    if (this.shards.get(shard.file.path) === shard) this.shards.delete(shard.file.path);
    shard.drop();
  }

  /** @template T @param {number} bytes @param {T} result */
  tell(bytes, result) {
    this.done += bytes;
    this.span.end = performance.now();
    this.progress?.(Math.min(this.done, this.total), this.total);
    return result;
  }

  /** The load is over: let go of everything; keep the manifest of a bundle that loaded. @param {boolean} good */
  async close(good) {
    this.hurry = false;
    this.stop.abort();
    this.fetcher?.close();
    for (const shard of this.shards.values()) shard.drop();
    this.shards.clear();
    this.reads.clear();
    const store = await this.store;
    if (good && this.manifest) await store?.keepManifest(this.url, this.manifest);
    await (await this.held)?.();
    if (good && this.manifest) await store?.sweep();
  }
}

/** @param {{path: string}} file */
function isShard({ path }) {
  return path.endsWith(".bin");
}

/** @param {Response} response @param {string} url */
function bodyOf(response, url) {
  if (!response.ok) throw fault("bad_bundle", `${url}: HTTP status ${response.status}`);
  return response.arrayBuffer();
}

/** The bundles that are being loaded, by URL. @type {Map<string, Downloads>} */
const live = new Map();

/** Begin the downloads of a load, or join those of a load of the same bundle. @param {Downloads} fresh */
export function beginDownloads(fresh) {
  const known = live.get(fresh.url);
  const downloads = known ?? fresh;
  downloads.users += 1;
  if (!known) {
    live.set(fresh.url, fresh);
    void fresh.begin();
  }
  return downloads;
}

/** @param {Downloads} downloads @param {boolean} good whether the load succeeded */
export async function endDownloads(downloads, good) {
  downloads.users -= 1;
  if (downloads.users > 0) return;
  live.delete(downloads.url);
  await downloads.close(good);
}

/** Those of a bundle that is being loaded, or some of its own for whoever loads by another way. @param {string} url */
export function downloadsOf(url) {
  return live.get(url.replace(/\/+$/, "")) ?? new Downloads(url);
}
