// Python's memory after its imports, kept so that the next start skips both; a worker that makes it, and how it is read.
//
// Input:  {archive, index, name} from core.js, once a model is loaded and nothing is asked of it.
// Output: a sealed entry of the store.
// Way of the data: core.js starts this as a worker -> store; at the next start core.js reads it back.
//
// It is made in a Pyodide of its own: one that can be written down hands out recorders in place of JS objects. Pyodide
// refuses a snapshot of another build, and the name holds the hash of all Python in it.

// @ts-ignore -- its types are found under the package's name only, which a worker cannot resolve
import { loadPyodide } from "./node_modules/pyodide/pyodide.mjs";
import { MODULES, nameOf } from "./modules.js";
import { Store } from "./store.js";

export const HOME = "/lib/tabfire";
/** What a load imports, with all that these import. */
const IMPORTS = ["rpc", "engine", "session", "loop", "js_tokenizer"];

/** @param {{archive: string, index: string, name: string}} job */
async function make({ archive, index, name }) {
  const store = await Store.open();
  if (!store) return;
  const bytes = await (await fetch(archive)).arrayBuffer();
  const python = await loadPyodide({ indexURL: index, convertNullToNone: true, _makeSnapshot: true });
  python.unpackArchive(bytes, "zip", { extractDir: HOME });
  for (const [module, object] of Object.entries(MODULES)) python.registerJsModule(module, object);
  python.runPython(
    `import importlib, sys\nsys.path.insert(0, ${JSON.stringify(HOME)})\n` +
      `for name in ${JSON.stringify(IMPORTS)}: importlib.import_module("runtime_py." + name)\n` +
      "del importlib, name",
  );
  const snapshot = python.makeMemorySnapshot({ serializer: nameOf });
  for (const other of await store.names("snapshot/")) await store.drop(other);
  await store.putSealed(name, snapshot);
}

/** Make one in a worker of its own, which ends itself. @param {{archive: string, index: string, name: string}} job */
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
