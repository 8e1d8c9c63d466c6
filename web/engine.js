// The public API of tabfire in a page; engine.d.ts documents it.
//
// Input:  a bundle's URL, messages or prompts. Output: streams of text, reports, `TabfireError`s.
// Way of the data: a page -> engine.js -> client.js -> worker.js -> core.js -> runtime_py.

import { TabfireError, WorkerClient } from "./client.js";
import { clearStore } from "./store.js";

export { TabfireError };

/**
 * @typedef {import("./engine.d.ts").GenerateOptions} GenerateOptions
 * @typedef {import("./engine.d.ts").Piece} Piece
 * @typedef {import("./engine.d.ts").Engine} Documented
 */

const LINUX_FLAGS =
  "use Chrome 113 or later. On Linux start it with `--enable-unsafe-webgpu --enable-features=Vulkan " +
  "--use-angle=vulkan --ignore-gpu-blocklist`, without a GPU with " +
  "`--enable-unsafe-webgpu --use-webgpu-adapter=swiftshader`";

const GRACE_MS = 1000;

/** @implements {Documented} */
export class Engine {
  /** @param {WorkerClient} client @param {Record<string, any>} info @private */
  constructor(client, info) {
    this.client = client;
    this.info = info;
    this.requests = 0;
    /** Streams whose reader has a piece and has not asked for more, since when. @type {Map<number, number>} */
    this.unread = new Map();
  }

  /** @param {string | URL} url @param {import("./engine.d.ts").LoadOptions} [options] */
  static async load(url, { options = {}, onProgress, signal, worker, cache = true } = {}) {
    if (signal?.aborted) throw aborted();
    const client = new WorkerClient(new URL(worker ?? "./worker.js", import.meta.url));
    const stop = () => client.close(aborted());
    signal?.addEventListener("abort", stop, { once: true });
    try {
      const params = { url: new URL(url, document.baseURI).href, options, cache };
      const { result } = await client.call("load", params, (event) => onProgress?.(event));
      return new Engine(client, result);
    } catch (error) {
      client.close(aborted());
      throw error;
    } finally {
      signal?.removeEventListener("abort", stop);
    }
  }

  static async clearCache() {
    await clearStore();
  }

  /** @param {import("./engine.d.ts").Message[]} messages @param {GenerateOptions} [options] */
  chat(messages, options = {}) {
    return this.stream({ prompt: messages }, options);
  }

  /** @param {string | number[]} prompt @param {GenerateOptions} [options] */
  generate(prompt, options = {}) {
    return this.stream({ prompt }, options);
  }

  /**
   * Run one generation as a stream of pieces. Python gives requests their turn in the order in which they come.
   * @param {object} request @param {GenerateOptions} options
   * @returns {AsyncGenerator<Piece, void, void>}
   */
  async *stream(request, { signal, ...options }) {
    if (signal?.aborted) throw aborted();
    const key = ++this.requests;
    /** @type {Piece[]} */
    const ready = [];
    let wake = () => {};
    let open = true;
    const call = this.ask("generate", { ...request, options, key }, (piece) => {
      ready.push({ summary: null, ...piece });
      wake();
    });
    const end = call.then(({ result }) => void ready.push({ text: "", ids: [], summary: result }));
    const settled = end.catch(() => {}).then(() => ((open = false), wake()));
    const stop = () => this.abort(key);
    signal?.addEventListener("abort", stop, { once: true });
    this.dropUnread();
    try {
      while (open || ready.length > 0) {
        while (ready.length > 0) {
          this.unread.set(key, performance.now());
          yield /** @type {Piece} */ (ready.shift());
          this.unread.delete(key);
        }
        if (open) await new Promise((resolve) => (wake = () => resolve(undefined)));
      }
      await end;
    } finally {
      this.unread.delete(key);
      signal?.removeEventListener("abort", stop);
      if (open) stop();
      await settled;
    }
  }

  /** A stream that somebody has stopped reading, without leaving its loop, must not hold up a new request. */
  dropUnread() {
    const waiting = [...this.unread.keys()];
    if (waiting.length === 0) return;
    setTimeout(() => {
      const long = performance.now() - GRACE_MS;
      for (const key of waiting) if ((this.unread.get(key) ?? Infinity) <= long) this.abort(key);
    }, GRACE_MS);
  }

  /** @param {number[]} ids @param {number} [inputPos] */
  async logits(ids, inputPos = 0) {
    const { result, blobs } = await this.ask("logits", { ids, input_pos: inputPos });
    return { shape: result.arrays.logits.shape, data: new Float32Array(blobs.logits) };
  }

  /** @param {number[]} ids @param {number} [inputPos] */
  async profile(ids, inputPos) {
    return (await this.ask("profile", { ids, input_pos: inputPos ?? null })).result;
  }

  async report() {
    return (await this.ask("report", {})).result;
  }

  async stats() {
    return (await this.ask("stats", {})).result;
  }

  /** @param {number} [key] the request to stop; left out, the one that has its turn */
  abort(key) {
    this.ask("abort", { key }).catch(() => {}); // closed meanwhile: nothing left to stop
  }

  close() {
    this.client.close(aborted());
  }

  /** @param {string} method @param {object} params @param {(event: any) => void} [onEvent] */
  ask(method, params, onEvent) {
    return this.client.call(method, { ...params, handle: this.info.handle }, onEvent);
  }
}

export async function checkWebGPU() {
  if (!globalThis.isSecureContext) {
    const hint = "open it over https, or at http://localhost";
    return new TabfireError({ code: "webgpu_missing", message: "WebGPU needs a secure page", hint });
  }
  const missing = (/** @type {string} */ message) =>
    new TabfireError({ code: "webgpu_missing", message, hint: LINUX_FLAGS });
  if (!navigator.gpu) return missing("this browser has no WebGPU");
  const adapter = await navigator.gpu.requestAdapter().catch(() => null);
  return adapter ? null : missing("WebGPU is there, but the browser offers no adapter");
}

/** @param {string | URL} [url] */
export async function listModels(url = "models/index.json") {
  const response = await fetch(new URL(url, document.baseURI));
  if (response.ok) return (await response.json()).models;
  const hint = "start the server with --models FOLDER";
  throw new TabfireError({ code: "bad_bundle", message: `${url} answered ${response.status}`, hint });
}

function aborted() {
  return new TabfireError({ code: "aborted", message: "the call was stopped", hint: "" });
}
