// The page that a headless browser opens for tests and the command line: a worker, and a channel to the local server.
//
// Input: `?key=` names the channel. A worker that cannot start answers the first request with an error.

import { Channel } from "./channel.js";

const key = new URLSearchParams(location.search).get("key");
const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
const channel = new Channel(`/channel/${key}`, (request, transfer) =>
  worker.postMessage(request, transfer),
);
worker.onmessage = ({ data }) => channel.post(data);
worker.onerror = (event) => {
  const message = `the worker stopped: ${event.message ?? "its script could not be loaded"}`;
  channel.post({ id: -1, error: { code: "host", message, hint: "see the browser's console" } });
};
await channel.serve();
worker.terminate();
