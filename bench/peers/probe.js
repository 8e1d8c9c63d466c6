// Tells what browser and adapter the comparison runs on, before any engine is loaded.
//
// Output: one message "done" with the adapter, its features and limits that matter, and the browser's own name.

const NOTED = /f16|subgroup|timestamp/;

/** @returns {Promise<import("./common.js").Opened>} */
export async function open() {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" });
  const about = {
    user_agent: navigator.userAgent,
    cores: navigator.hardwareConcurrency,
    isolated: globalThis.crossOriginIsolated,
    f16: adapter?.features.has("shader-f16") ?? false,
    adapter: adapter && {
      vendor: adapter.info.vendor,
      architecture: adapter.info.architecture,
      description: adapter.info.description,
      features: [...adapter.features].filter((name) => NOTED.test(name)),
      max_binding_bytes: adapter.limits.maxStorageBufferBindingSize,
    },
  };
  return { about, generate: async () => ({ read: 0 }), memory: async () => null };
}
