// The same core in Node, with Dawn as the WebGPU implementation: no browser, and shader-f16 on a CPU.
//
// Input:  argv[2] = origin of the local server, argv[3] = channel key. Output: the channel's messages.
// Pyodide starts first: once `navigator` exists it takes Node for a browser.

import { watch } from "./counting.js";
import { Core } from "../core.js";
import { Channel } from "./channel.js";
import { answerTiming } from "./timing.js";

const [origin, key] = process.argv.slice(2);

async function main() {
  const { create, globals } = await import("webgpu");
  const core = new Core((reply) => channel.post(reply), {
    archive: `${origin}/tabfire.zip`,
    watch,
    afterPyodide: () => {
      Object.assign(globalThis, globals);
      const value = { gpu: create([]), userAgent: `Node ${process.version} (Dawn)` };
      Object.defineProperty(globalThis, "navigator", { value, configurable: true });
    },
  });
  const channel = new Channel(`${origin}/channel/${key}`, (request) => {
    if (!answerTiming(request, (reply) => channel.post(reply))) void core.receive(request);
  });
  await channel.serve();
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
