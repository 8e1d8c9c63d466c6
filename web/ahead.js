// What the last load of a bundle compiled, compiled again while Python still starts; and its WGSL, not rendered again.
//
// Input:  notes of an earlier load, kept under the hashes of the runtime's archive and of the graph: the device that was
//         asked for, and of every kernel its key, text and bindings. Output: a device, texts, pipelines, where they fit.
// Way of the data: core.js begins it beside downloads.js; runtime_py/device.py takes from it as `tabfire_ahead`.
//
// The archive's hash covers every template and every line of Python that chooses one, so no note can be out of date.
// What does not fit (another adapter, other options) is left, and Python does as it does without notes.

/**
 * @typedef {{power: string, asked: string}} Wanted  `asked`: JSON of what requestDevice was given
 * @typedef {{key: string, text: string, accesses: string}} Kernel  `accesses`: the bindings, spelled by `signature`
 * @typedef {{wanted: Wanted, adapter: string, kernels: Kernel[]}} Notes
 */

/** @param {GPUAdapterInfo} info */
const spell = ({ vendor, architecture, device, description }) =>
  [vendor, architecture, device, description].join("|");

/** @param {string} accesses such as "read,read_write,uniform" */
function layoutEntries(accesses) {
  const types = /** @type {Record<string, GPUBufferBindingType>} */ ({ read: "read-only-storage", uniform: "uniform" });
  return accesses.split(",").map((access, binding) => {
    return { binding, visibility: GPUShaderStage.COMPUTE, buffer: { type: types[access] ?? "storage" } };
  });
}

export class Ahead {
  /**
   * @param {string} url
   * @param {Promise<import("./store.js").Store | null>} store
   * @param {() => Promise<string>} name gives the name of the notes in the store
   * @param {string} power what the load asks for: its adapter comes early also where there are no notes
   */
  constructor(url, store, name, power = "high-performance") {
    this.url = url.replace(/\/+$/, "");
    this.store = store;
    this.name = name;
    this.power = power;
    /** @type {Promise<GPUAdapter | null>} */
    this.adapting = Promise.resolve(null);
    /** @type {GPUAdapter | null} */
    this.adapter = null;
    /** @type {GPUDevice | null} */
    this.device = null;
    /** @type {Notes | null} */
    this.notes = null;
    /** What this load uses, to be the next one's notes. @type {Partial<Notes> & {kernels: Kernel[]}} */
    this.used = { kernels: [] };
    /** @type {Map<string, Promise<GPUComputePipeline>>} */
    this.pipelines = new Map();
    this.made = this.taken = this.over = false;
    this.span = { start: performance.now(), end: performance.now() };
    this.decide = () => {};
    /** Resolves once it is known whether there is a device; its pipelines are under way then. @type {Promise<void>} */
    this.decided = new Promise((resolve) => (this.decide = resolve));
    void this.begin().catch(() => {}).then(this.decide);
  }

  async begin() {
    if (!globalThis.navigator?.gpu) return;
    const powerPreference = /** @type {GPUPowerPreference} */ (this.power);
    this.adapting = navigator.gpu.requestAdapter({ powerPreference }).catch(() => null);
    const store = await this.store;
    const kept = await store?.sealed(await this.name());
    if (!kept) return;
    const notes = /** @type {Notes} */ (JSON.parse(new TextDecoder().decode(kept)));
    this.span.start = performance.now();
    const adapter = await this.adapting;
    if (!adapter || notes.wanted.power !== this.power || spell(adapter.info) !== notes.adapter) return;
    this.made = true;
    const device = await adapter.requestDevice(JSON.parse(notes.wanted.asked));
    if (this.over) return device.destroy();
    Object.assign(this, { notes, device });
    device.pushErrorScope("validation");
    for (const kernel of notes.kernels) this.compile(device, kernel);
    const checked = device.popErrorScope();
    this.decide();
    await checked;
    await Promise.allSettled(this.pipelines.values());
    this.span.end = performance.now();
  }

  /** @param {GPUDevice} device @param {Kernel} kernel */
  compile(device, { key, text, accesses }) {
    const group = device.createBindGroupLayout({ entries: layoutEntries(accesses) });
    const layout = device.createPipelineLayout({ bindGroupLayouts: [group] });
    const module = device.createShaderModule({ label: key, code: text });
    const compute = { module, entryPoint: "main" };
    const pipeline = device.createComputePipelineAsync({ label: key, layout, compute });
    pipeline.catch(() => {}); // Python compiles it again and reports what is wrong
    this.pipelines.set(accesses + text, pipeline);
  }

  /** The load is over. @param {boolean} good */
  async close(good) {
    this.over = true;
    if (!this.taken) this.device?.destroy();
    const { wanted, adapter, kernels } = this.used;
    const store = await this.store;
    if (!good || !store || !wanted || !adapter) return;
    const text = JSON.stringify({ wanted, adapter, kernels });
    if (this.notes && JSON.stringify(this.notes) === text) return;
    const name = await this.name();
    const [, archive] = name.split("/");
    for (const other of await store.names("kernels/")) {
      if (!other.startsWith(`kernels/${archive}/`)) await store.drop(other); // of a runtime that is gone
    }
    await store.putSealed(name, new TextEncoder().encode(text));
  }
}

/** By URL, as long as the load goes on. @type {Map<string, Ahead>} */
const live = new Map();

/** @param {Ahead} ahead */
export function beginAhead(ahead) {
  live.set(ahead.url, ahead);
  return ahead;
}

/** @param {Ahead} ahead @param {boolean} good whether the load succeeded */
export async function endAhead(ahead, good) {
  if (live.get(ahead.url) === ahead) live.delete(ahead.url);
  await ahead.close(good);
}

/** An adapter of this kind, perhaps one that has its device already. @param {string} url @param {string} power */
export async function adapterFor(url, power) {
  const ahead = live.get(url);
  await ahead?.decided;
  if (ahead && !ahead.taken && ahead.power === power) {
    ahead.adapter = await ahead.adapting;
    if (ahead.adapter) return ahead.adapter;
  }
  return navigator.gpu.requestAdapter({ powerPreference: /** @type {GPUPowerPreference} */ (power) });
}

/**
 * A device of `adapter`, ready with its pipelines if it is what the notes foresaw.
 * @param {string} url @param {GPUAdapter} adapter @param {string} power @param {GPUDeviceDescriptor} descriptor
 */
export async function deviceFor(url, adapter, power, descriptor) {
  const ahead = live.get(url);
  const asked = JSON.stringify(descriptor);
  if (ahead) Object.assign(ahead.used, { wanted: { power, asked }, adapter: spell(adapter.info) });
  if (!ahead || ahead.adapter !== adapter) return adapter.requestDevice(descriptor);
  if (!ahead.made) {
    ahead.made = ahead.taken = true;
    return adapter.requestDevice(descriptor);
  }
  if (ahead.device && !ahead.taken && ahead.notes?.wanted.asked === asked) {
    ahead.taken = true;
    return ahead.device;
  }
  // An adapter makes one device, and this one has made it.
  const powerPreference = /** @type {GPUPowerPreference} */ (power);
  const other = await navigator.gpu.requestAdapter({ powerPreference });
  return (other ?? adapter).requestDevice(descriptor);
}

/** JSON {key: text} of the kernels that need not be rendered. @param {string} url */
export function knownTexts(url) {
  const kernels = live.get(url)?.notes?.kernels ?? [];
  return JSON.stringify(Object.fromEntries(kernels.map(({ key, text }) => [key, text])));
}

/**
 * The pipeline of a kernel, if `device` was made ahead with it; notes the kernel for the next load.
 * @param {string} url @param {GPUDevice} device @param {string} key @param {string} text @param {string} accesses
 */
export function pipelineFor(url, device, key, text, accesses) {
  const ahead = live.get(url);
  ahead?.used.kernels.push({ key, text, accesses });
  return (ahead?.device === device && ahead.pipelines.get(accesses + text)) || null;
}
