// onnxruntime-web with its native WebGPU execution provider, used as an application would use it for greedy decoding.
//
// Input:  a folder with model.onnx, model.onnx.data and genai_config.json, as onnxruntime-genai's model builder writes
//         it: int4 weights, the KV cache as inputs and outputs, logits of the last position only.
// The caches are GPU buffers of the full context, each handed over as past and as present, so that nothing is copied.
// The next id is chosen on the GPU by argmax.js and stays there as the next step's input; 4 bytes are read back a token.

import { Argmax } from "./argmax.js";
import * as ort from "./files/ort.jspi.min.mjs";

const LIMITS = [
  "maxBufferSize",
  "maxStorageBufferBindingSize",
  "maxStorageBuffersPerShaderStage",
  "maxComputeWorkgroupStorageSize",
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupSizeX",
  "maxComputeWorkgroupSizeY",
  "maxComputeWorkgroupSizeZ",
  "maxComputeWorkgroupsPerDimension",
];
const WANTED = /f16|subgroup/;

/** Return a device with all that the adapter offers and the engine may use. */
async function openDevice() {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new Error("no adapter");
  const requiredLimits = Object.fromEntries(
    LIMITS.map((name) => [name, /** @type {any} */ (adapter.limits)[name]]),
  );
  const requiredFeatures = /** @type {GPUFeatureName[]} */ (
    [...adapter.features].filter((name) => WANTED.test(name))
  );
  return adapter.requestDevice({ requiredFeatures, requiredLimits });
}

class Model {
  /** @param {GPUDevice} device @param {any} session @param {any} decoder @param {number} context */
  constructor(device, session, decoder, context) {
    this.device = device;
    this.session = session;
    this.ones = new BigInt64Array(context).fill(1n);
    const { type } = session.inputMetadata.find((/** @type {any} */ i) => /key/.test(i.name));
    const dims = [1, decoder.num_key_value_heads, context, decoder.head_size];
    this.past = /** @type {Record<string, any>} */ ({});
    this.present = /** @type {Record<string, any>} */ ({});
    for (let layer = 0; layer < decoder.num_hidden_layers; layer++) {
      for (const part of ["key", "value"]) {
        const cache = this.tensor(type, dims);
        const named = (/** @type {string} */ names) => names.replace("%d", String(layer));
        this.past[named(decoder.inputs[`past_${part}_names`])] = cache;
        this.present[named(decoder.outputs[`present_${part}_names`])] = cache;
      }
    }
    const logits = session.outputMetadata.find((/** @type {any} */ o) => o.name === "logits");
    this.logits = this.tensor(logits.type, [1, 1, decoder.vocabulary]);
    this.next = this.tensor("int64", [1, 1]);
    const buffers = { logits: this.logits.gpuBuffer, id: this.next.gpuBuffer };
    this.argmax = new Argmax(device, buffers, decoder.vocabulary, logits.type === "float16");
  }

  /** A tensor in a GPU buffer of its own. @param {string} type @param {number[]} dims */
  tensor(type, dims) {
    const width = { float16: 2, float32: 4, int64: 8 }[type] ?? 4;
    const bytes = dims.reduce((product, dim) => product * dim, width);
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const buffer = this.device.createBuffer({ size: Math.ceil(bytes / 16) * 16, usage });
    return ort.Tensor.fromGpuBuffer(buffer, { dataType: /** @type {any} */ (type), dims });
  }

  /** Run one step whose last token stands before position `end`, and return the id after it. */
  async step(/** @type {any} */ ids, /** @type {number} */ end) {
    const mask = new ort.Tensor("int64", this.ones.subarray(0, end), [1, end]);
    const feeds = { input_ids: ids, attention_mask: mask, ...this.past };
    await this.session.run(feeds, { logits: this.logits, ...this.present });
    return this.argmax.read();
  }

  /** @param {number[]} prompt @param {number} count @param {(total: number) => void} onTokens */
  async generate(prompt, count, onTokens) {
    const given = new ort.Tensor("int64", BigInt64Array.from(prompt, BigInt), [1, prompt.length]);
    const ids = [await this.step(given, prompt.length)];
    onTokens(1);
    while (ids.length < count) {
      ids.push(await this.step(this.next, prompt.length + ids.length));
      onTokens(ids.length);
    }
    return ids;
  }
}

/** @param {import("./common.js").Plan} plan @returns {Promise<import("./common.js").Opened>} */
export async function open(plan) {
  const file = (/** @type {string} */ name) => new URL(`/versus/files/${name}`, location.href).href;
  const name = "ort-wasm-simd-threaded.jspi";
  ort.env.wasm.wasmPaths = { mjs: file(`${name}.mjs`), wasm: file(`${name}.wasm`) };
  ort.env.wasm.numThreads = 1;
  const get = (/** @type {string} */ path) => fetch(plan.url + path);
  const bytes = async (/** @type {string} */ path) => new Uint8Array(await (await get(path)).arrayBuffer());
  const [config, graph, data, device] = await Promise.all([
    get("genai_config.json").then((response) => response.json()),
    bytes("model.onnx"),
    bytes("model.onnx.data"),
    openDevice(),
  ]);
  const session = await ort.InferenceSession.create(graph, {
    executionProviders: [/** @type {any} */ ({ name: "webgpu", device })],
    externalData: [{ path: "model.onnx.data", data }],
    preferredOutputLocation: "gpu-buffer",
    graphOptimizationLevel: "all",
  });
  const decoder = { ...config.model.decoder, vocabulary: config.model.vocab_size };
  const model = new Model(device, session, decoder, plan.context);
  return {
    about: { backend: "WebGPU (JSPI build)", features: [...device.features] },
    async generate(prompt, count, onTokens) {
      if (!Array.isArray(prompt)) throw new Error("this page takes ids only: run tabfire before it");
      return { read: prompt.length, ids: await model.generate(prompt, count, onTokens) };
    },
    memory: async () => null,
  };
}
