// Boots Pyodide and answers the messages of one client: the part of the worker that no host differs in.
//
// Input:  messages {id, method, params, blobs?}; `blobs` maps a name to an ArrayBuffer.
// Output: any number of {id, event}, then one {id, result, blobs?} or {id, error: {code, message, hint}}.
// Way of the data: engine.js (or host/) -> worker.js -> core -> runtime_py/rpc.py -> session, engine.
//
// `abort` is handed to Python at once, beside a call that is still running; nothing here queues.

// @ts-ignore -- its types are found under the package's name only, which a worker cannot resolve
import { loadPyodide } from "./node_modules/pyodide/pyodide.mjs";
import * as tokenizers from "./tokenizer.js";
import * as loop from "./loop.js";
import * as profile from "./profile.js";
import * as replay from "./replay.js";
import * as weights from "./weights.js";

/**
 * @typedef {{id: number, method: string, params?: Record<string, any>, blobs?: Record<string, ArrayBuffer>}} Request
 * @typedef {{code: string, message: string, hint: string, detail?: string}} ErrorFields
 * @typedef {{id: number, event?: object, result?: any, error?: ErrorFields, blobs?: Record<string, ArrayBuffer>}} Reply
 * @typedef {(reply: Reply, transfer: ArrayBuffer[]) => void} Post
 * @typedef {object} Setting
 * @property {string} archive  URL of the zip with runtime_py, wgsl and the Python packages they need.
 * @property {string} [index]  Folder of Pyodide's files; left out in Node, which finds them itself.
 * @property {() => void} [afterPyodide]  Runs between Pyodide's start and the first Python import.
 * @property {(python: any) => object} [watch]  Gives what a test's host adds to `tabfire_worker`.
 */

const HOME = "/lib/tabfire";

export class Core {
  /** @param {Post} post @param {Setting} setting */
  constructor(post, setting) {
    this.post = post;
    this.setting = setting;
    /** @type {Promise<any> | null} */
    this.booting = null;
  }

  /** Answer one request. Never rejects: what goes wrong is posted. @param {Request} request */
  async receive(request) {
    try {
      this.booting ??= this.boot(request.id);
      const handle = await this.booting;
      const { reply, transfer } = await this.ask(handle, request);
      this.post(reply, transfer);
    } catch (error) {
      this.post({ id: request.id, error: describe(error) }, []);
    }
  }

  /** Start Python and import the runtime. @param {number} id the call that sees the progress */
  async boot(id) {
    const started = performance.now();
    const archive = fetchArchive(this.setting.archive);
    archive.catch(() => {}); // awaited below; must not count as unhandled while Pyodide starts
    this.stage(id, "python");
    const python = await loadPyodide({
      ...(this.setting.index && { indexURL: this.setting.index }),
      convertNullToNone: true, // WebGPU says null for "no adapter" and "no error"
    });
    this.setting.afterPyodide?.();
    this.stage(id, "runtime");
    python.unpackArchive(await archive, "zip", { extractDir: HOME });
    const bootMs = performance.now() - started;
    this.register(python, bootMs);
    python.runPython(`import sys; sys.path.insert(0, ${JSON.stringify(HOME)})`);
    return python.pyimport("runtime_py.rpc").handle;
  }

  /** Give Python the modules that it cannot import from files. @param {any} python @param {number} bootMs */
  register(python, bootMs) {
    const heapBytes = () => python._module.HEAPU8.byteLength;
    const worker = {
      heap_bytes: heapBytes,
      pyodide_version: python.version,
      user_agent: globalThis.navigator?.userAgent,
      boot_ms: bootMs,
      ...this.setting.watch?.(python),
    };
    python.registerJsModule("tabfire_worker", worker);
    python.registerJsModule("tabfire_loop", loop);
    python.registerJsModule("tabfire_profile", profile);
    python.registerJsModule("tabfire_replay", replay);
    python.registerJsModule("tabfire_weights", weights);
    python.registerJsModule("tabfire_tokenizers", tokenizers);
  }

  /** @param {number} id @param {string} stage */
  stage(id, stage) {
    this.post({ id, event: { type: "progress", stage, done: 0, total: 0 } }, []);
  }

  /**
   * Call `rpc.handle` and return the reply to post with what to transfer.
   * @param {any} handle @param {Request} request
   */
  async ask(handle, request) {
    const given = Object.entries(request.blobs ?? {});
    const inputs = new Map(given.map(([name, buffer]) => [name, new Uint8Array(buffer)]));
    const blobs = { inputs, outputs: new Map() };
    const emit = (/** @type {string} */ text) =>
      this.post({ id: request.id, event: JSON.parse(text) }, []);
    const params = JSON.stringify(request.params ?? {});
    const running = handle(request.method, params, emit, blobs);
    try {
      const reply = JSON.parse(await running);
      const out = [...blobs.outputs].map(([name, data]) => [name, ownBuffer(data)]);
      const transfer = out.map(([, buffer]) => buffer);
      return { reply: { id: request.id, ...reply, blobs: Object.fromEntries(out) }, transfer };
    } finally {
      running.destroy?.();
    }
  }
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
