// A worker as a thing that can be asked: numbers the requests, pairs the replies, turns failures into TabfireErrors.
//
// Input:  a method of runtime_py/rpc.py with its params. Output: a promise of its result; events to a callback.
// Way of the data: engine.js -> client.js -> worker.js.

export class TabfireError extends Error {
  /** @param {{code: string, message: string, hint?: string, detail?: string}} fields */
  constructor({ code, message, hint = "", detail = "" }) {
    super(message);
    this.name = "TabfireError";
    this.code = code;
    this.hint = hint;
    this.detail = detail;
  }
}

const WORKER_HINT =
  "serve web/ from the page's own origin, with `Content-Security-Policy: script-src 'self' 'wasm-unsafe-eval'; " +
  "worker-src 'self'`; from another origin its server must send `Access-Control-Allow-Origin` and " +
  "`Cross-Origin-Resource-Policy: cross-origin`, and the page must allow `worker-src blob:`";

/**
 * @typedef {{result: any, blobs: Record<string, ArrayBuffer>}} Answer
 * @typedef {{resolve: (answer: Answer) => void, reject: (error: Error) => void, onEvent?: (event: any) => void}} Pending
 */

export class WorkerClient {
  /** @param {URL} url */
  constructor(url) {
    /** @type {Map<number, Pending>} */
    this.pending = new Map();
    this.ids = 0;
    /** @type {Error | null} */
    this.closed = null;
    this.worker = startWorker(url);
    this.worker.onmessage = ({ data }) => this.receive(data);
    this.worker.onerror = (event) => {
      event.preventDefault();
      const message = `the worker ${url.href} stopped: ${event.message ?? "it could not be loaded"}`;
      this.close(new TabfireError({ code: "worker", message, hint: WORKER_HINT }));
    };
  }

  /**
   * @param {string} method @param {object} params @param {(event: any) => void} [onEvent]
   * @returns {Promise<Answer>}
   */
  call(method, params, onEvent) {
    if (this.closed) return Promise.reject(this.closed);
    const id = ++this.ids;
    return new Promise((resolve, reject) => {
      this.pending.set(id, { resolve, reject, onEvent });
      this.worker.postMessage({ id, method, params });
    });
  }

  /** @param {import("./core.js").Reply} reply */
  receive({ id, event, result, error, blobs = {} }) {
    const waiting = this.pending.get(id);
    if (!waiting) return;
    if (event) {
      const told = /** @type {any} */ (event);
      if (told.type === "debug") console.log(told.text);
      else waiting.onEvent?.(told);
      return;
    }
    this.pending.delete(id);
    if (error) waiting.reject(new TabfireError(error));
    else waiting.resolve({ result, blobs });
  }

  /** End the worker; every call, now and later, is rejected with `reason`. @param {Error} reason */
  close(reason) {
    this.closed ??= reason;
    this.worker.terminate();
    for (const { reject } of this.pending.values()) reject(this.closed);
    this.pending.clear();
  }
}

/** A browser refuses a worker script of another origin, but not a local one that imports it. @param {URL} url */
function startWorker(url) {
  try {
    if (url.origin === location.origin) return new Worker(url, { type: "module" });
    const script = new Blob([`import ${JSON.stringify(url.href)};`], { type: "text/javascript" });
    const local = URL.createObjectURL(script);
    return new Worker(local, { type: "module" });
  } catch (error) {
    const message = `the worker ${url.href} is refused: ${error}`;
    throw new TabfireError({ code: "worker", message, hint: WORKER_HINT });
  }
}
