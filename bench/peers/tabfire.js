// tabfire, driven as a page drives it: web/engine.js and nothing below it.

import { Engine } from "/engine.js";

/** @param {import("./common.js").Plan} plan @returns {Promise<import("./common.js").Opened>} */
export async function open(plan) {
  const engine = await Engine.load(plan.url, { options: plan.options });
  const about = { backend: "WebGPU", load_parts: (await engine.report()).timings };
  return {
    about,
    async generate(prompt, count, onTokens) {
      let [total, text] = [0, ""];
      let summary = null;
      for await (const piece of engine.generate(prompt, { max_tokens: count, temperature: 0 })) {
        text += piece.text;
        onTokens((total += piece.ids.length));
        summary = piece.summary ?? summary;
      }
      const { prompt_ids, timings } = summary;
      return { read: prompt_ids.length, prompt_ids, text, reused: timings.reused_tokens };
    },
    async memory() {
      const { weights_bytes, state_bytes, scratch_bytes } = (await engine.report()).memory;
      return weights_bytes + state_bytes + scratch_bytes;
    },
  };
}
