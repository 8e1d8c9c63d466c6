// Boots Pyodide and answers the messages of one client: the part of the worker that no host differs in.
//
// Input:  messages {id, method, params, blobs?}; `blobs` maps a name to an ArrayBuffer.
// Output: any number of {id, event}, then one {id, result, blobs?} or {id, error: {code, message, hint}}.
// Way of the data: engine.js (or host/) -> worker.js -> core -> runtime_py/rpc.py -> session, engine.
//
// `abort` is handed to Python at once, beside a call that is still running; nothing here queues.

// @ts-ignore -- its types are found under the package's name only, which a worker cannot resolve
import { loadPyodide } from "./node_modules/pyodide/pyodide.mjs";
import * as ahead from "./ahead.js";
import { beginDownloads, Downloads, endDownloads } from "./downloads.js";
import { MODULES } from "./modules.js";
import { held } from "./shard.js";
import { ARCHIVE, fetchSnapshot, startMaking, thaw, unpack } from "./snapshot.js";
import { sha256, Store } from "./store.js";
import * as tokenizers from "./tokenizer.js";

/**
 * @typedef {{id: number, method: string, params?: Record<string, any>, blobs?: Record<string, ArrayBuffer>}} Request
 * @typedef {{code: string, message: string, hint: string, detail?: string}} ErrorFields
 * @typedef {{id: number, event?: object, result?: any, error?: ErrorFields, blobs?: Record<string, ArrayBuffer>}} Reply
 * @typedef {(reply: Reply, transfer: ArrayBuffer[]) => void} Post
 * @typedef {import("./snapshot.js").Frozen} Frozen
 * @typedef {object} Setting
 * @property {string} archive  URL of the zip with runtime_py, wgsl and the Python packages they need.
 * @property {string} [index]  Folder of Pyodide's files; left out in Node, which finds them itself.
 * @property {string} [snapshot]  URL of Python's memory after its imports, see snapshot.js; not every server has it.
 * @property {boolean} [cache]  Whether what a load fetched is kept for the next one, see store.js.
 * @property {() => void} [afterPyodide]  Runs between Pyodide's start and the first Python import.
 * @property {(python: any) => object} [watch]  Gives what a test's host adds to `tabfire_worker`.
 */

const TELL_MS = 50;
/** A snapshot of Python is made once nothing was asked for so long. */
const IDLE_MS = 4000;
/** The longest that Python waits for the files and kernels of its load to be asked for: then it keeps this thread busy. */
const HEAD_START_MS = 1000;

export class Core {
  /** @param {Post} post @param {Setting} setting */
  constructor(post, setting) {
    this.post = post;
    this.setting = setting;
    /** @type {Promise<any> | null} */
    this.booting = null;
    /** @type {Promise<Store | null> | null} */
    this.store = null;
    /** @type {Promise<ArrayBuffer> | null} */
    this.archive = null;
    this.running = this.idleSince = 0;
    this.fromSnapshot = this.isKept = false;
    /** Pyodide, once it is up. @type {any} */
    this.python = null;
    /** @type {Promise<unknown>} */
    this.headStart = Promise.resolve();
    /** What a load does here while Python's module compiles elsewhere. */
    this.meanwhile = async () => {};
    /** What loading did when, by `performance.now()`. @type {Record<string, {start: number, end: number}>} */
    this.phases = {};
  }

  /** Answer one request. Never rejects: what goes wrong is posted. @param {Request} request */
  async receive(request) {
    const early = request.method === "load" ? this.hurry(request) : null;
    this.running += 1;
    let good = false;
    try {
      this.booting ??= this.boot(request.id);
      const begin = await this.booting;
      const { reply, transfer } = await this.ask(begin, request);
      good = !("error" in reply);
      this.post(reply, transfer);
    } catch (error) {
      this.post({ id: request.id, error: describe(error) }, []);
    } finally {
      early?.end(good);
      this.running -= 1;
      this.idleSince = performance.now();
    }
  }

  /** Let a bundle's files come, and its kernels compile, while Python starts. @param {Request} request */
  hurry({ id, params = {} }) {
    const keeps = this.setting.cache && params.cache !== false;
    const store = (this.store ??= keeps ? Store.open() : Promise.resolve(null)); // a worker's first load decides
    let told = -Infinity;
    const progress = (/** @type {number} */ done, /** @type {number} */ total) => {
      const now = performance.now();
      if (done < total && now - told < TELL_MS) return;
      told = now;
      this.stage(id, "download", done, total);
    };
    const parallel = !this.python; // until Python is up it keeps this thread busy
    const options = { store, text: params.kind !== "session", progress, parallel };
    const downloads = beginDownloads(new Downloads(String(params.url), options));
    const power = params.options?.power_preference;
    const foreseen = new ahead.Ahead(downloads.url, store, () => this.notesName(downloads), power);
    ahead.beginAhead(foreseen);
    Object.assign(this.phases, { download: downloads.span, ahead: foreseen.span });
    if (options.text && parallel) this.meanwhile = () => tokenizers.prepare(downloads);
    const bound = new Promise((resolve) => setTimeout(resolve, HEAD_START_MS));
    this.headStart = Promise.race([Promise.all([downloads.listed, foreseen.decided]), bound]);
    return {
      end: (/** @type {boolean} */ good) => {
        tokenizers.forget(downloads.url);
        void endDownloads(downloads, good);
        void ahead.endAhead(foreseen, good);
      },
    };
  }

  /** The zip of the runtime. */
  fetchRuntime() {
    return (this.archive ??= fetchArchive(this.setting.archive));
  }

  /** Where the notes on a bundle's kernels lie: under the hashes of all that decides them. @param {Downloads} downloads */
  async notesName(downloads) {
    const runtime = await sha256(await this.fetchRuntime());
    return `kernels/${runtime}/${await downloads.hashOf("graph.json")}`;
  }

  /** Start Python and import the runtime. @param {number} id the call that sees the progress */
  async boot(id) {
    const archive = this.fetchRuntime();
    archive.catch(() => {}); // awaited below; must not count as unhandled while Pyodide starts
    const start = performance.now();
    this.stage(id, "python");
    if (this.setting.index) void importModule().catch(() => {}); // awaited by startModule; it may come meanwhile
    const python = (this.python = await this.startFrom(await this.frozen().catch(() => null)));
    void this.whenIdle();
    this.setting.afterPyodide?.();
    this.phase("python", start);
    this.stage(id, "runtime");
    const imports = performance.now();
    if (this.fromSnapshot) python.FS.writeFile(ARCHIVE, new Uint8Array(await archive)); // it has all that a load needs
    else unpack(python, await archive);
    this.register(python, performance.now() - start);
    const { begin } = python.pyimport("runtime_py.rpc");
    this.phase("imports", imports);
    return begin;
  }

  /** Pyodide, from its snapshot if that works. @param {Frozen | null} frozen @returns {Promise<any>} */
  async startFrom(frozen) {
    if (!frozen) return this.start(null);
    held.bytes += frozen.bytes.byteLength;
    held.peak = Math.max(held.peak, held.bytes);
    try {
      const python = await this.start(frozen);
      this.fromSnapshot = true;
      for (const name of ["_loadSnapshot", "createPyodideModule"]) delete python._api?.config?.[name]; // 31 MB
      return python;
    } catch (error) {
      console.info(`Python starts without its snapshot: ${error}`);
      this.isKept = false; // it is damaged: to be kept anew
      for (const name of (await (await this.store)?.names("snapshot/")) ?? []) await (await this.store)?.drop(name);
      return this.start(null);
    } finally {
      held.bytes -= frozen.bytes.byteLength;
    }
  }

  /** @param {Frozen | null} frozen @returns {Promise<any>} */
  start(frozen) {
    return loadPyodide({
      ...(this.setting.index && { indexURL: this.setting.index }),
      ...(frozen && { _loadSnapshot: frozen.bytes, _snapshotDeserializer: (/** @type {string} */ name) => MODULES[name] }),
      convertNullToNone: true, // WebGPU says null for "no adapter" and "no error"
      createPyodideModule: (/** @type {any} */ settings) => this.startModule(settings, frozen),
    });
  }

  /** Python's memory after an earlier start, kept here or by the server. @returns {Promise<Frozen | null>} */
  async frozen() {
    const { index, snapshot } = this.setting;
    if (!index) return null;
    const runtime = await sha256(await this.fetchRuntime());
    const kept = (await (await this.store)?.get(`snapshot/${runtime}`))?.body;
    const frozen = kept ? await thaw(kept, runtime) : null;
    this.isKept = frozen !== null;
    return frozen ?? (snapshot ? fetchSnapshot(snapshot, runtime) : null);
  }

  /** What may wait until nothing is asked: files for tracebacks, Python's memory for the next start. */
  async whenIdle() {
    const { archive, index, snapshot } = this.setting;
    do await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
    while (this.running > 0 || performance.now() - this.idleSince < IDLE_MS);
    if (this.fromSnapshot) unpack(this.python, await this.fetchRuntime());
    if (index && !this.isKept && (await this.store)) startMaking({ archive, index, snapshot });
  }

  /** Start Pyodide's module while its snapshot comes. @param {any} settings @param {Frozen | null} frozen */
  async startModule(settings, frozen) {
    const { default: create } = await importModule();
    await this.headStart;
    const creating = create(settings);
    void this.meanwhile().catch(() => {});
    const [module] = await Promise.all([creating, frozen?.whole]);
    return module;
  }

  /** Note a phase of loading that ends now. @param {string} name @param {number} start */
  phase(name, start) {
    this.phases[name] = { start, end: performance.now() };
  }

  /** Give Python the modules that it cannot import from files. @param {any} python @param {number} bootMs */
  register(python, bootMs) {
    const heapBytes = () => python._module.HEAPU8.byteLength;
    const worker = {
      heap_bytes: heapBytes,
      pyodide_version: python.version,
      user_agent: globalThis.navigator?.userAgent,
      boot_ms: bootMs,
      clock_ms: () => performance.now(),
      phases: () => JSON.stringify(this.phases),
      held_peak_bytes: () => held.peak,
      from_snapshot: () => this.fromSnapshot,
      ...this.setting.watch?.(python),
    };
    python.registerJsModule("tabfire_worker", worker);
    for (const [name, module] of Object.entries(MODULES)) python.registerJsModule(name, module);
  }

  /** @param {number} id @param {string} stage @param {number} [done] @param {number} [total] */
  stage(id, stage, done = 0, total = 0) {
    this.post({ id, event: { type: "progress", stage, done, total } }, []);
  }

  /**
   * Call `rpc.begin` and return the reply to post with what to transfer.
   * @param {any} begin @param {Request} request
   */
  async ask(begin, request) {
    const given = Object.entries(request.blobs ?? {});
    const inputs = new Map(given.map(([name, buffer]) => [name, new Uint8Array(buffer)]));
    const blobs = { inputs, outputs: new Map() };
    const emit = (/** @type {string} */ text) =>
      this.post({ id: request.id, event: JSON.parse(text) }, []);
    const params = JSON.stringify(request.params ?? {});
    const told = await new Promise((resolve) => begin(request.method, params, emit, blobs, resolve));
    const out = [...blobs.outputs].map(([name, data]) => [name, ownBuffer(data)]);
    const transfer = out.map(([, buffer]) => buffer);
    return { reply: { id: request.id, ...JSON.parse(told), blobs: Object.fromEntries(out) }, transfer };
  }
}

/** @returns {Promise<any>} */
function importModule() {
  // @ts-ignore -- a file of Pyodide that has no types
  return import("./node_modules/pyodide/pyodide.asm.mjs");
}

/** @param {string} url @returns {Promise<ArrayBuffer>} */
async function fetchArchive(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
  return response.arrayBuffer();
}

/** The bytes of `data` as a buffer that may be transferred. @param {ArrayBuffer | ArrayBufferView} data */
function ownBuffer(data) {
  if (data instanceof ArrayBuffer) return data;
  const whole = data.byteOffset === 0 && data.byteLength === data.buffer.byteLength;
  return whole ? data.buffer : data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
}

/** @param {unknown} error @returns {ErrorFields} */
function describe(error) {
  const text = error instanceof Error ? error.message : String(error);
  const lines = text.trim().split("\n");
  const message = `the runtime could not answer: ${lines[lines.length - 1]}`;
  return { code: "internal", message, hint: "load again; if it recurs, report it", detail: text };
}
