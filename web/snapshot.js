// Python's memory after its imports, with every template compiled: a start that finds it skips all of these.
//
// Input:  the runtime's archive. Output: a file: "TFPY", a size, the archive's sha256, its own, then Pyodide's snapshot.
// Way of the data: Node (host/freeze.js) -> the server -> core.js; or a worker of this module -> store -> core.js.
//
// It is made in a Pyodide of its own: one that can be written down hands out recorders in place of JS objects. Pyodide
// refuses a snapshot of another build, and one of another archive is left.

// @ts-ignore -- its types are found under the package's name only, which a worker cannot resolve
import { loadPyodide } from "./node_modules/pyodide/pyodide.mjs";
import { MODULES, nameOf } from "./modules.js";
import { sha256, Store } from "./store.js";

const HOME = "/lib/tabfire";
/** Where a Python that comes from a snapshot finds the modules that no load imports: in the zip itself. */
export const ARCHIVE = "/lib/tabfire.zip";
const MAGIC = "TFPY";
const HASH_BYTES = 32;
const HEADER_BYTES = MAGIC.length + 4 + 2 * HASH_BYTES;
const EMPTY = new Uint8Array(0);
/** What a load imports, with all that these import. */
const IMPORTS = ["rpc", "engine", "session", "loop", "js_tokenizer"];

/**
 * @typedef {object} Frozen
 * @property {Uint8Array<ArrayBuffer>} bytes the snapshot, of its full size from the start; they come while others wait
 * @property {Promise<void>} whole settles once they have come; rejects where they are not what was written
 *
 * @typedef {{archive: string, index: string, snapshot?: string}} Job URLs, see core.js
 */

/**
 * The memory of a Python that has imported the runtime in `archive`, as a file.
 * @param {ArrayBuffer} archive @param {object} settings of loadPyodide
 */
export async function freeze(archive, settings = {}) {
  const python = await loadPyodide({ ...settings, convertNullToNone: true, _makeSnapshot: true });
  unpack(python, archive);
  for (const [module, object] of Object.entries(MODULES)) python.registerJsModule(module, object);
  python.runPython(
    "import importlib\n" +
      `for name in ${JSON.stringify(IMPORTS)}: importlib.import_module("runtime_py." + name)\n` +
      'importlib.import_module("runtime_py.kernels").compile_templates()\n' +
      "del importlib, name",
  );
  return seal(archive, python.makeMemorySnapshot({ serializer: nameOf }));
}

/** Put the runtime on Python's path. @param {any} python @param {ArrayBuffer} archive */
export function unpack(python, archive) {
  python.unpackArchive(archive, "zip", { extractDir: HOME });
  const added = JSON.stringify([HOME, ARCHIVE]);
  python.runPython(`import sys\nif ${JSON.stringify(HOME)} not in sys.path: sys.path[:0] = ${added}`);
}

/** The parts of the file. @param {ArrayBuffer} archive @param {Uint8Array<ArrayBuffer>} snapshot */
async function seal(archive, snapshot) {
  const header = new Uint8Array(HEADER_BYTES);
  header.set(new TextEncoder().encode(MAGIC));
  new DataView(header.buffer).setUint32(MAGIC.length, snapshot.byteLength, true);
  header.set(new Uint8Array(await crypto.subtle.digest("SHA-256", archive)), HEADER_BYTES - 2 * HASH_BYTES);
  header.set(new Uint8Array(await crypto.subtle.digest("SHA-256", snapshot)), HEADER_BYTES - HASH_BYTES);
  return [header, snapshot];
}

/**
 * The snapshot in a file that is coming, as soon as its size is known; null if it is none of the runtime with this hash.
 * @param {ReadableStream<Uint8Array>} body @param {string} runtime @returns {Promise<Frozen | null>}
 */
export async function thaw(body, runtime) {
  const header = new Uint8Array(HEADER_BYTES);
  const { reader, first } = await unzipped(body);
  const rest = await fill(header, first, reader);
  const hex = Array.from(header.subarray(MAGIC.length + 4), (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (!rest || new TextDecoder().decode(header.subarray(0, MAGIC.length)) !== MAGIC || !hex.startsWith(runtime)) {
    void reader.cancel().catch(() => {});
    return null;
  }
  const bytes = new Uint8Array(new DataView(header.buffer).getUint32(MAGIC.length, true));
  const whole = fill(bytes, rest, reader).then(async (left) => {
    if (left?.length !== 0 || runtime + (await sha256(bytes)) !== hex) throw new Error("the snapshot is damaged");
  });
  whole.catch(() => {}); // whoever starts from it hears of it
  return { bytes, whole };
}

/**
 * A reader of what a file holds: a server that does not say that it is packed leaves that to us.
 * @param {ReadableStream<Uint8Array>} body
 */
async function unzipped(body) {
  const reader = body.getReader();
  const { value: first = EMPTY } = await reader.read();
  if (first[0] !== 0x1f || first[1] !== 0x8b) return { reader, first };
  reader.releaseLock();
  const unzip = new DecompressionStream("gzip");
  const packed = /** @type {WritableStream<Uint8Array>} */ (unzip.writable);
  const writer = packed.getWriter();
  void writer.write(first).catch(() => {});
  writer.releaseLock();
  body.pipeTo(packed).catch(() => {}); // the reader hears of it too
  return { reader: unzip.readable.getReader(), first: EMPTY };
}

/**
 * Fill `target` with `rest`, then from the reader; return what is left over, null where too little came.
 * @param {Uint8Array} target @param {Uint8Array} rest @param {ReadableStreamDefaultReader<Uint8Array>} reader
 */
async function fill(target, rest, reader) {
  for (let at = 0; ; ) {
    const part = rest.subarray(0, target.length - at);
    target.set(part, at);
    at += part.length;
    if (at === target.length) return rest.subarray(part.length);
    const { done, value } = await reader.read();
    if (done) return null;
    rest = value;
  }
}

/**
 * The snapshot that the server has of this runtime, null where it has none.
 * @param {string} url @param {string} runtime
 */
export async function fetchSnapshot(url, runtime) {
  const response = await fetch(url).catch(() => null);
  return response?.status === 200 && response.body ? thaw(response.body, runtime) : null;
}

/** Keep a snapshot for the next start: the server's, or one made here. @param {Job} job */
async function make({ archive, index, snapshot }) {
  const store = await Store.open();
  if (!store) return;
  const bytes = await (await fetch(archive)).arrayBuffer();
  const runtime = await sha256(bytes);
  const found = snapshot ? await fetchSnapshot(snapshot, runtime) : null;
  const came = await found?.whole.then(() => true, () => false);
  const parts = found && came ? await seal(bytes, found.bytes) : await freeze(bytes, { indexURL: index });
  for (const other of await store.names("snapshot/")) await store.drop(other);
  await store.put(`snapshot/${runtime}`, new Blob(parts));
}

/** Make one in a worker of its own, which ends itself. @param {Job} job */
export function startMaking(job) {
  const worker = new Worker(new URL("./snapshot.js", import.meta.url), { type: "module", name: "tabfire-snapshot" });
  worker.onmessage = () => worker.terminate();
  worker.onerror = () => worker.terminate();
  worker.postMessage(job);
}

if (globalThis.self?.name === "tabfire-snapshot") {
  self.onmessage = ({ data }) =>
    void make(data).catch((error) => console.info(`no snapshot of Python: ${error}`)).then(() => self.postMessage({}));
}
