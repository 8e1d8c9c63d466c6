// Counts what a step costs, for the tests: a host's worker imports this module before Pyodide starts.
//
// Input:  WebAssembly.instantiate*, GPUDevice.prototype and Pyodide's table of proxies, each wrapped to count.
// Output: `watch(python)`, which gives `counts()`: JSON of
//         calls    {name: n}  JS functions, methods and constructors that Python called, at the imports of its wasm
//         reads    {name: n}  JS attributes that Python read or set, at the same place
//         created  {name: n}  calls of each `create...` of a GPU device, and of its `destroy`, whoever made them
//         in_flight           the most compute pipelines that were being compiled at one time
//         proxies, live       Python objects that were given to JS so far, and those not destroyed yet
// Way of the data: web/host/worker.js, web/host/node.js -> counting -> `stats` of runtime_py/rpc.py.
//
// Pyodide's wasm reaches JS only through functions that it imports, so nothing that Python does escapes the count.

/** @typedef {Record<string, number>} Tally */

/** @type {{calls: Tally, reads: Tally, created: Tally}} */
const tally = { calls: {}, reads: {}, created: {} };

/** @param {Tally} counts @param {string} name */
function count(counts, name) {
  counts[name] = (counts[name] ?? 0) + 1;
}

/** How each import names what it calls; the arguments are those of the function of Pyodide with that name. */
const CALLS = /** @type {Record<string, (...args: any[]) => string>} */ ({
  JsvFunction_CallBound: (func) => func.name,
  JsvFunction_Call_OneArg: (func) => func.name,
  JsvFunction_Construct: (func) => `new ${func.name}`,
  JsvObject_CallMethod: (_, name) => name,
  JsvObject_CallMethod_NoArgs: (_, name) => name,
  JsvObject_CallMethod_OneArg: (_, name) => name,
  JsvObject_CallMethod_TwoArgs: (_, name) => name,
  JsvBuffer_assignToPtr: () => "assign_to",
  JsvBuffer_assignFromPtr: () => "assign",
});
const READS = /** @type {Record<string, (...args: any[]) => string>} */ ({
  JsProxy_GetAttr_js: () => "get",
  JsProxy_SetAttr_js: () => "set",
  JsProxy_subscript_js: () => "subscript",
});

/** @param {Record<string, any>} env @param {Tally} counts @param {Record<string, (...args: any[]) => string>} names */
function wrapAll(env, counts, names) {
  for (const [name, describe] of Object.entries(names)) {
    const plain = env[name];
    if (typeof plain !== "function") throw new Error(`Pyodide has no ${name}: the count would miss calls`);
    env[name] = (/** @type {any[]} */ ...args) => {
      count(counts, describe(...args));
      return plain(...args);
    };
  }
}

/** A copy of Pyodide's imports that counts; other modules pass as they are. @param {any} imports */
function counted(imports) {
  if (imports?.env?.JsvFunction_CallBound === undefined) return imports;
  const env = { ...imports.env };
  wrapAll(env, tally.calls, CALLS);
  wrapAll(env, tally.reads, READS);
  return { ...imports, env };
}

for (const name of /** @type {const} */ (["instantiate", "instantiateStreaming"])) {
  const plain = /** @type {any} */ (WebAssembly[name]);
  if (plain === undefined) continue;
  /** @type {any} */ (WebAssembly)[name] = (/** @type {any} */ source, /** @type {any} */ imports) =>
    plain.call(WebAssembly, source, counted(imports));
}

let compiling = 0;
let inFlight = 0;

/** @param {Promise<unknown>} promise of a pipeline */
function follow(promise) {
  compiling += 1;
  inFlight = Math.max(inFlight, compiling);
  const end = () => void (compiling -= 1);
  promise.then(end, end);
}

/** Count what is created on any GPU device; WebGPU's classes exist by now. */
function watchDevices() {
  const methods = /** @type {any} */ (globalThis.GPUDevice?.prototype ?? {});
  for (const name of Object.getOwnPropertyNames(methods)) {
    if (!name.startsWith("create") && name !== "destroy") continue;
    const plain = methods[name];
    methods[name] = function (/** @type {any[]} */ ...args) {
      count(tally.created, name);
      const made = plain.apply(this, args);
      if (name === "createComputePipelineAsync") follow(made);
      return made;
    };
    Object.defineProperty(methods[name], "name", { value: name }); // `calls` counts by it
  }
}

/**
 * Count from now on; what is returned becomes part of the module `tabfire_worker` that Python imports.
 * @param {any} python Pyodide
 */
export function watch(python) {
  watchDevices();
  const module = python._module;
  module.enable_pyproxy_allocation_tracing();
  const alive = module.pyproxy_alloc_map;
  let proxies = 0;
  alive.set = function (/** @type {any} */ key) {
    proxies += 1;
    return Map.prototype.set.call(this, key, true);
  };
  return { counts: () => JSON.stringify({ ...tally, in_flight: inFlight, proxies, live: alive.size }) };
}
