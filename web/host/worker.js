// The worker of the page that programs drive: ../worker.js with counters around Python and the GPU, and faults on request.
//
// Input and output: the messages of core.js. `counting` comes first: it must be there when Pyodide starts.

import { watch } from "./counting.js";
import { isFault } from "./faults.js";
import { answerTiming } from "./timing.js";
import { Core } from "../core.js";

const core = new Core((reply, transfer) => self.postMessage(reply, { transfer }), {
  archive: new URL("../tabfire.zip", import.meta.url).href,
  index: new URL("../node_modules/pyodide/", import.meta.url).href,
  watch,
});

self.onmessage = ({ data }) => {
  if (isFault(data)) self.postMessage({ id: data.id, result: {} });
  else if (!answerTiming(data, (reply) => self.postMessage(reply))) void core.receive(data);
};
