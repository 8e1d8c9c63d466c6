// Starts Python from a file of exporter/hosts/snapshot.py and tells what is in its memory; for tests/test_snapshot.py.
//
// Input:  argv[2] = the file, packed, argv[3] = the archive's sha256. Output: JSON {modules, templates, headers}.

import { readFileSync } from "node:fs";

import { MODULES } from "../web/modules.js";
import { loadPyodide } from "../web/node_modules/pyodide/pyodide.mjs";
import { thaw } from "../web/snapshot.js";

const [file, runtime] = process.argv.slice(2);
const { bytes, whole } = await thaw(new Blob([readFileSync(file)]).stream(), runtime);
await whole;
const python = await loadPyodide({
  convertNullToNone: true,
  _loadSnapshot: bytes,
  _snapshotDeserializer: (name) => MODULES[name],
});
for (const [name, module] of Object.entries(MODULES)) python.registerJsModule(name, module);
const found = python.runPython(`
import json, sys
from runtime_py.kernels import DEFAULT_ROOT, templates
shared = templates(DEFAULT_ROOT)
json.dumps({
    "modules": [name for name in sys.modules if name.startswith("runtime_py.")],
    "templates": [name for _, name in shared.environment.cache.keys()],
    "headers": shared.header.cache_info().currsize,
})
`);
process.stdout.write(found, () => process.exit(0)); // Pyodide keeps Node alive
