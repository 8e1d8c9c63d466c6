// Times kernels for benchmarks: any WGSL, over buffers of random numbers, by timestamps around one compute pass.
//
// Input:  a request "time_kernels" of the channel with a `Job`. Output: the nanoseconds of every run.
// Way of the data: bench/timing.py -> channel -> worker.js or node.js -> timing, on a device of its own.
//
// A round is all dispatches once; a run is all rounds in one pass. Round i takes copy i of a buffer that has copies,
// so weights are read from memory and not from a cache. Rounds that write one buffer wait for each other.

/**
 * @typedef {{name: string, bytes: number, copies: number, fill: "zeros" | "bits" | "numbers" | "halves"}} BufferSpec
 * @typedef {{buffer: string, access: "read" | "read_write", offset: number, size: number | null}} BindingSpec
 * @typedef {{label: string, code: string, bindings: BindingSpec[], params: number[], grid: number[]}} DispatchSpec
 * @typedef {object} Job
 * @property {string[]} features those to ask for, as far as the adapter has them
 * @property {BufferSpec[]} buffers
 * @property {DispatchSpec[]} dispatches
 * @property {number} rounds
 * @property {number} runs
 * @property {number} settle_ms how long to run before, at least: an idle GPU stands at a fraction of its clock
 * @property {string} sample the buffer whose first floats come back
 */

const FILL_WORDS = 1 << 20;
const UNIFORM_BYTES = 256;
const SAMPLE_WORDS = 64;

/** @type {Promise<GPUDevice> | null} */
let opened = null;

/**
 * Answer a request if it is one to time kernels; return whether it was.
 * @param {import("../core.js").Request} request @param {(reply: import("../core.js").Reply) => void} post
 */
export function answerTiming(request, post) {
  if (request.method !== "time_kernels") return false;
  timeKernels(/** @type {Job} */ (request.params)).then(
    (result) => post({ id: request.id, result }),
    (error) => post({ id: request.id, error: { code: "shader", message: String(error.message ?? error), hint: "" } }),
  );
  return true;
}

/** @param {Job} job @returns {Promise<{ns: number[], sample: (number | null)[]}>} */
async function timeKernels(job) {
  opened ??= openDevice(job.features);
  const device = await opened;
  /** @type {Map<string, GPUBuffer[]>} */
  const buffers = new Map();
  device.pushErrorScope("validation");
  device.pushErrorScope("out-of-memory");
  try {
    return await timeRuns(device, job, buffers);
  } finally {
    for (const made of buffers.values()) for (const buffer of made) buffer.destroy();
    for (const kind of ["out of memory", "invalid"]) {
      const error = await device.popErrorScope();
      if (error) throw new Error(`${kind}: ${error.message}`);
    }
  }
}

/** @param {GPUDevice} device @param {Job} job @param {Map<string, GPUBuffer[]>} buffers receives what is made */
async function timeRuns(device, job, buffers) {
  for (const spec of job.buffers) buffers.set(spec.name, makeBuffers(device, spec));
  const steps = await Promise.all(job.dispatches.map((spec) => prepare(device, spec, buffers, job.rounds)));
  if (job.settle_ms) await settle(device, steps, job);
  const ns = [];
  for (let run = 0; run < job.runs; run++) ns.push(await timePass(device, steps, job.rounds));
  const [sampled] = /** @type {GPUBuffer[]} */ (buffers.get(job.sample));
  return { ns, sample: await readSample(device, sampled) };
}

/**
 * Run until the clock is up: for `settle_ms`, and until a run takes no less than the one before.
 * @param {GPUDevice} device @param {Awaited<ReturnType<typeof prepare>>[]} steps @param {Job} job
 */
async function settle(device, steps, { rounds, settle_ms }) {
  const started = performance.now();
  for (let before = Infinity; performance.now() - started < 10 * settle_ms; ) {
    const now = await timePass(device, steps, rounds);
    if (performance.now() - started > settle_ms && now > 0.97 * before) return;
    before = now;
  }
}

/** @param {string[]} wanted */
async function openDevice(wanted) {
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new Error("no adapter");
  const names = ["maxStorageBufferBindingSize", "maxBufferSize", "maxComputeWorkgroupStorageSize"];
  names.push("maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX", "maxStorageBuffersPerShaderStage");
  const limits = Object.fromEntries(names.map((name) => [name, /** @type {any} */ (adapter.limits)[name]]));
  const features = /** @type {GPUFeatureName[]} */ (wanted.filter((name) => adapter.features.has(name)));
  return adapter.requestDevice({ requiredFeatures: features, requiredLimits: limits });
}

/** @param {GPUDevice} device @param {BufferSpec} spec */
function makeBuffers(device, { bytes, copies, fill }) {
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC;
  const size = Math.ceil(bytes / 16) * 16;
  const words = randomWords(fill, Math.min(FILL_WORDS, size / 4));
  return Array.from({ length: copies }, () => {
    const buffer = device.createBuffer({ size, usage });
    for (let at = 0; words && at < size; at += words.byteLength) {
      device.queue.writeBuffer(buffer, at, words, 0, Math.min(words.byteLength, size - at) / 4);
    }
    return buffer;
  });
}

/**
 * Words of noise: any bits; floats in -1..1; or pairs of halves of 2^-6..2^-5.
 * @param {BufferSpec["fill"]} fill @param {number} count
 */
function randomWords(fill, count) {
  if (fill === "zeros") return null;
  const words = new Uint32Array(count);
  let state = 0x9e3779b9;
  for (let i = 0; i < count; i++) {
    state ^= state << 13; // xorshift32: Marsaglia 2003
    state ^= state >>> 17;
    state ^= state << 5;
    words[i] = fill === "halves" ? 0x24002400 | (state & 0x03ff03ff) : state;
  }
  if (fill !== "numbers") return words;
  return new Uint32Array(Float32Array.from(words, (word) => word / 2 ** 31 - 1).buffer);
}

/**
 * Compile one dispatch and bind it once a round.
 * @param {GPUDevice} device @param {DispatchSpec} spec @param {Map<string, GPUBuffer[]>} buffers @param {number} rounds
 */
async function prepare(device, { label, code, bindings, params, grid }, buffers, rounds) {
  /** @type {GPUBufferBindingType[]} */
  const kinds = bindings.map(({ access }) => (access === "read" ? "read-only-storage" : "storage"));
  if (params.length) kinds.push("uniform");
  const entries = kinds.map((type, binding) => ({
    binding,
    visibility: GPUShaderStage.COMPUTE,
    buffer: { type },
  }));
  const layout = device.createBindGroupLayout({ entries });
  const module = device.createShaderModule({ label, code });
  const pipeline = await device.createComputePipelineAsync({
    layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
    compute: { module, entryPoint: "main" },
  });
  const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
  const uniform = device.createBuffer({ size: UNIFORM_BYTES, usage });
  buffers.set(`params of ${label} ${buffers.size}`, [uniform]);
  device.queue.writeBuffer(uniform, 0, Uint32Array.from(params));
  const groups = Array.from({ length: rounds }, (_, round) => {
    const resources = bindings.map(({ buffer: name, offset, size }) => {
      const copies = /** @type {GPUBuffer[]} */ (buffers.get(name));
      return { buffer: copies[round % copies.length], offset, ...(size !== null && { size }) };
    });
    if (params.length) resources.push({ buffer: uniform, offset: 0, size: UNIFORM_BYTES });
    return device.createBindGroup({ layout, entries: resources.map((resource, binding) => ({ binding, resource })) });
  });
  return { pipeline, groups, grid };
}

/**
 * Run all rounds in one pass and return its nanoseconds.
 * @param {GPUDevice} device @param {Awaited<ReturnType<typeof prepare>>[]} steps @param {number} rounds
 */
async function timePass(device, steps, rounds) {
  const querySet = device.createQuerySet({ type: "timestamp", count: 2 });
  const resolved = device.createBuffer({ size: 16, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
  const staging = device.createBuffer({ size: 16, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass({
    timestampWrites: { querySet, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 },
  });
  for (let round = 0; round < rounds; round++) {
    for (const { pipeline, groups, grid } of steps) {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, groups[round]);
      pass.dispatchWorkgroups(grid[0], grid[1], grid[2]);
    }
  }
  pass.end();
  encoder.resolveQuerySet(querySet, 0, 2, resolved, 0);
  encoder.copyBufferToBuffer(resolved, 0, staging, 0, 16);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const [start, end] = new BigUint64Array(staging.getMappedRange());
  for (const resource of [querySet, resolved, staging]) resource.destroy();
  return Number(end - start);
}

/**
 * The first floats of a buffer, null for NaN: a kernel that computed nothing, or NaN, is no measurement.
 * @param {GPUDevice} device @param {GPUBuffer} buffer
 */
async function readSample(device, buffer) {
  const size = Math.min(buffer.size, 4 * SAMPLE_WORDS);
  const staging = device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, 0, staging, 0, size);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const values = Array.from(new Float32Array(staging.getMappedRange()));
  staging.destroy();
  return values.map((value) => (Number.isFinite(value) ? value : null));
}
