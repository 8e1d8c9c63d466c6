// The public API of tabfire in a page; engine.d.ts documents it.
//
// Input:  a bundle's URL, messages or prompts. Output: streams of text, reports, `TabfireError`s.
// Way of the data: a page -> engine.js -> client.js -> worker.js -> core.js -> runtime_py.

import { TabfireError, WorkerClient } from "./client.js";

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

/** @implements {Documented} */
export class Engine {
  /** @param {WorkerClient} client @param {Record<string, any>} info @private */
  constructor(client, info) {
    this.client = client;
    this.info = info;
    /** @type {Promise<unknown>} */
    this.turn = Promise.resolve();
  }

  /** @param {string | URL} url @param {import("./engine.d.ts").LoadOptions} [options] */
  static async load(url, { options = {}, onProgress, signal, worker } = {}) {
    if (signal?.aborted) throw aborted();
    const client = new WorkerClient(new URL(worker ?? "./worker.js", import.meta.url));
    const stop = () => client.close(aborted());
    signal?.addEventListener("abort", stop, { once: true });
    try {
      const params = { url: new URL(url, document.baseURI).href, options };
      const { result } = await client.call("load", params, (event) => onProgress?.(event));
      return new Engine(client, result);
    } catch (error) {
      client.close(aborted());
      throw error;
    } finally {
      signal?.removeEventListener("abort", stop);
    }
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
   * Run one generation as a stream of pieces; its turn comes when the one before it has ended.
   * @param {object} request @param {GenerateOptions} options
   * @returns {AsyncGenerator<Piece, void, void>}
   */
  async *stream(request, { signal, ...options }) {
    const before = this.turn;
    /** @type {() => void} */
    let release = () => {};
    this.turn = new Promise((resolve) => (release = () => resolve(undefined)));
    await before;
    try {
      if (signal?.aborted) throw aborted();
      yield* this.pieces({ ...request, options }, signal);
    } finally {
      release();
    }
  }

  /** @param {object} request @param {AbortSignal} [signal] @returns {AsyncGenerator<Piece, void, void>} */
  async *pieces(request, signal) {
    /** @type {Piece[]} */
    const ready = [];
    let wake = () => {};
    let open = true;
    const call = this.ask("generate", request, (piece) => {
      ready.push({ summary: null, ...piece });
      wake();
    });
    const end = call.then(({ result }) => void ready.push({ text: "", ids: [], summary: result }));
    const settled = end.catch(() => {}).then(() => ((open = false), wake()));
    const stop = () => this.abort();
    signal?.addEventListener("abort", stop, { once: true });
    try {
      while (open || ready.length > 0) {
        while (ready.length > 0) yield /** @type {Piece} */ (ready.shift());
        if (open) await new Promise((resolve) => (wake = () => resolve(undefined)));
      }
      await end;
    } finally {
      signal?.removeEventListener("abort", stop);
      if (open) this.abort();
      await settled;
    }
  }

  /** @param {number[]} ids @param {number} [inputPos] */
  async logits(ids, inputPos = 0) {
    const { result, blobs } = await this.ask("logits", { ids, input_pos: inputPos });
    return { shape: result.arrays.logits.shape, data: new Float32Array(blobs.logits) };
  }

  async report() {
    return (await this.ask("report", {})).result;
  }

  async stats() {
    return (await this.ask("stats", {})).result;
  }

  abort() {
    this.ask("abort", {}).catch(() => {}); // closed meanwhile: nothing left to stop
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
