/**
 * tabfire's API in a page: load a bundle, chat with it, free it.
 *
 *     import { Engine } from "./engine.js";
 *
 *     const engine = await Engine.load("models/smollm2/", { onProgress: console.log });
 *     for await (const piece of engine.chat([{ role: "user", content: "Hello" }])) {
 *       document.body.append(piece.text);
 *     }
 *     engine.close();
 *
 * Python, the weights and the GPU live in a dedicated worker that `load` starts and `close` ends. Serve the files of
 * web/ (with web/node_modules and tabfire.zip) from the page's own origin; a Content-Security-Policy needs
 * `script-src 'self' 'wasm-unsafe-eval'` and `worker-src 'self'`, nothing more.
 */

/** Every error that tabfire raises on purpose. */
export class TabfireError extends Error {
  constructor(fields: { code: string; message: string; hint?: string; detail?: string });
  /** Stable name for programs: "webgpu_missing", "bad_bundle", "integrity", "context_full", "aborted", ... */
  readonly code: string;
  /** What to do about it; may be empty. */
  readonly hint: string;
  /** A Python traceback, for reports; usually empty. */
  readonly detail: string;
}

/**
 * How far loading is. Stages: "python" (Pyodide starts), "runtime" (tabfire is unpacked), "download" (the bundle's files,
 * `done` and `total` in bytes, beside "python"), "weights" (bytes on the GPU), "compile" (in pipelines). "weights" and
 * "compile" run side by side. `done` never passes `total`, and reaches it.
 */
export interface Progress {
  stage: string;
  done: number;
  total: number;
}

export interface LoadOptions {
  /** Options of the session, such as `{ replay: "python" }` or `{ debug: 2 }` (lines on the console); an unknown one is an error. */
  options?: Record<string, unknown>;
  onProgress?: (progress: Progress) => void;
  /** Aborting ends the worker; `load` rejects with code "aborted" and nothing is left behind. */
  signal?: AbortSignal;
  /**
   * Whether the bundle's files are kept in the browser's Cache API, by their sha256, for a later load without the
   * network. Default true; a window without room or without the API loads all the same. What is read from there is
   * checked as if it had been downloaded, and fetched again where it was altered. Kept beside them: the WGSL of the
   * bundle's kernels, which compiles while Python starts, and a snapshot of Python (31 MB), the server's or one made
   * here when nothing is asked for some seconds after a load.
   */
  cache?: boolean;
  /** Where worker.js lies, if not beside engine.js. */
  worker?: string | URL;
}

export interface Message {
  role: string;
  content: string | null;
  [more: string]: unknown;
}

/** How a reply is drawn. Left out: greedy, until an end token or the context's end. */
export interface GenerateOptions {
  max_tokens?: number;
  /** 0: the most likely token, always. */
  temperature?: number;
  top_k?: number;
  top_p?: number;
  min_p?: number;
  repetition_penalty?: number;
  /** The same seed, prompt and options give the same text. */
  seed?: number;
  stop?: string[];
  /** Aborting stops the generation as `engine.abort()` does. */
  signal?: AbortSignal;
}

/** What a generation came to. */
export interface Summary {
  prompt_ids: number[];
  ids: number[];
  text: string;
  /** "stop": an end token or stop string; "length": max_tokens or the context; "abort". */
  finish_reason: string;
  /** prompt_tokens, reused_tokens, generated_tokens, prefill_ms, first_token_ms, decode_ms, ..._tok_s */
  timings: Record<string, number>;
  /** Milliseconds between one token and the next. */
  token_ms: number[];
}

/** Some more text. The last piece of a generation carries its summary. */
export interface Piece {
  text: string;
  ids: number[];
  summary: Summary | null;
}

export interface Logits {
  /** `[positions, vocabulary]` */
  shape: number[];
  data: Float32Array;
}

/** GPU time of one step. */
export interface Profile {
  /** Of every dispatch, in order. */
  dispatches: { node: string; kernel: string; key: string; time_ms: number }[];
  /** Of every kernel, the longest first; `share` is the part of the step, 0 to 1. */
  kernels: { kernel: string; dispatches: number; time_ms: number; share: number }[];
}

export interface ModelEntry {
  id: string;
  name: string;
  /** What `Engine.load` takes. */
  url: string;
  size_bytes: number;
}

/** A loaded language model. One generation runs at a time; a second one waits for the first. */
export class Engine {
  /** Return an engine for the bundle at `url`; rejects with `TabfireError`, and then frees all it had made. */
  static load(url: string | URL, options?: LoadOptions): Promise<Engine>;

  /** Free the space of every bundle that `load` kept for this origin; engines that are loaded go on. */
  static clearCache(): Promise<void>;

  /** Of loading: versions, `adapter`, `model` card, `defaults` (the sampling that the bundle recommends), `load_ms`. */
  readonly info: Record<string, any>;

  /** Answer a conversation. Leaving the loop early stops the generation. */
  chat(messages: Message[], options?: GenerateOptions): AsyncGenerator<Piece, void, void>;

  /** Continue a text, or token ids, without a chat template. */
  generate(prompt: string | number[], options?: GenerateOptions): AsyncGenerator<Piece, void, void>;

  /** Return the logits after each of `ids`, the first of them at `inputPos`; for checks and debugging. */
  logits(ids: number[], inputPos?: number): Promise<Logits>;

  /**
   * Run one step over `ids` behind what the cache holds, or at `inputPos` (and forget the cache from there on), with a
   * GPU timestamp around every dispatch. Rejects with code "feature_missing" where the adapter has no timestamps.
   */
  profile(ids: number[], inputPos?: number): Promise<Profile>;

  /**
   * Return what runs and why: adapter, options, programs (node, kernel, key, reason), memory, timings (milliseconds of
   * work), phases ([start, end] of each part of the load, in milliseconds since `load` was called: what overlaps ran
   * side by side).
   */
  report(): Promise<Record<string, any>>;

  /** Return the worker's numbers: `heap_bytes` is the size of Python's memory. */
  stats(): Promise<Record<string, any>>;

  /** Stop the running generation after the token it is at; harmless when none runs. */
  abort(): void;

  /** End the worker and free the GPU memory; a running generation rejects with code "aborted". */
  close(): void;
}

/** Return why this browser cannot run tabfire, or null if it can. */
export function checkWebGPU(): Promise<TabfireError | null>;

/** Return the models that the server offers in `models/index.json`. */
export function listModels(url?: string | URL): Promise<ModelEntry[]>;
