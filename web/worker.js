// The dedicated worker in which Python and the GPU live; all it does is bind core.js to this thread's messages.
//
// Input and output: the messages of core.js, sent by engine.js or by host/page.js.

import { Core } from "./core.js";

const core = new Core((reply, transfer) => self.postMessage(reply, { transfer }), {
  archive: new URL("./tabfire.zip", import.meta.url).href,
  index: new URL("./node_modules/pyodide/", import.meta.url).href,
  snapshot: new URL("./tabfire.snapshot", import.meta.url).href,
  cache: true,
});

self.onmessage = ({ data }) => void core.receive(data);
