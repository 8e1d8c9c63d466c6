// wllama (llama.cpp compiled to WebAssembly): on the GPU where the adapter has shader-f16, which its WebGPU back end
// needs, on all cores of the processor elsewhere.
//
// Every chunk of its stream carries its own count of tokens; text may be held back, so chunks are not counted.

import { Wllama } from "./files/wllama.js";

const NOTED = /offload|webgpu|backend|buffer size/i;

/** @param {import("./common.js").Plan} plan @returns {Promise<import("./common.js").Opened>} */
export async function open(plan) {
  /** @type {string[]} */
  const log = [];
  const keep = (/** @type {any[]} */ ...words) => void log.push(words.join(" "));
  const logger = { debug: keep, log: keep, warn: keep, error: keep };
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" });
  const gpu = adapter?.features.has("shader-f16") ?? false;
  const threads = navigator.hardwareConcurrency;
  const wllama = new Wllama({ default: "/versus/files/wllama.wasm" }, { logger });
  const model = await (await fetch(plan.url)).blob();
  const place = gpu ? {} : { n_gpu_layers: 0, n_threads: threads };
  await wllama.loadModel([model], { n_ctx: plan.context, ...place, ...plan.options });
  const told = log.filter((line) => NOTED.test(line));
  const offloaded = told.find((line) => /offloaded \d+\/\d+ layers/.test(line));
  const about = {
    backend: gpu ? `WebGPU: ${offloaded ?? "see log"}` : `CPU, ${wllama.getNumThreads()} threads`,
    log: told.slice(0, 20),
  };
  return {
    about,
    async generate(prompt, count, onTokens) {
      const stream = await wllama.createCompletion({
        prompt,
        max_tokens: count,
        temperature: 0,
        stream: true,
        cache_prompt: false,
        timings_per_token: true,
        ignore_eos: true,
      });
      let [text, read] = ["", 0];
      for await (const chunk of stream) {
        text += chunk.choices?.[0]?.text ?? "";
        read = chunk.timings?.prompt_n ?? read;
        if (chunk.timings) onTokens(chunk.timings.predicted_n);
      }
      return { read, text };
    },
    memory: async () => null,
  };
}
