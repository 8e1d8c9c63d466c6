// Carries core.js messages between a local server and a worker, so that a program outside the browser can drive it.
//
// Input:  GET  BASE/next          -> the next request (204: none yet, ask again; 410: the host closes)
//         GET  BASE/blob/NAME     -> an input's bytes
// Output: POST BASE/blob/NAME     <- an output's bytes, before the reply that names it
//         POST BASE/messages      <- a JSON list of replies and events, in order
// Bytes never travel as text. Used by page.js (browser) and node.js (Node); exporter/hosts/channel.py is the other end.

/** @typedef {import("../core.js").Reply} Reply */

export class Channel {
  /** @param {string} base @param {(request: any, transfer: ArrayBuffer[]) => void} deliver */
  constructor(base, deliver) {
    this.base = base;
    this.deliver = deliver;
    /** @type {Reply[]} */
    this.waiting = [];
    this.sending = false;
  }

  /** Fetch requests and deliver them until the server closes the channel. */
  async serve() {
    for (;;) {
      const response = await fetch(`${this.base}/next`, { cache: "no-store" });
      if (response.status === 410) return;
      if (response.status !== 200) continue;
      const { blob_names: names, ...request } = await response.json();
      request.blobs = Object.fromEntries(await Promise.all(names.map(this.download, this)));
      this.deliver(request, Object.values(request.blobs));
    }
  }

  /** @param {string} name @returns {Promise<[string, ArrayBuffer]>} */
  async download(name) {
    const response = await fetch(`${this.base}/blob/${encodeURIComponent(name)}`, { cache: "no-store" });
    return [name, await response.arrayBuffer()];
  }

  /** Queue a reply or event; what gathers while a POST is under way goes out in the next one. @param {Reply} reply */
  post(reply) {
    this.waiting.push(reply);
    if (!this.sending) void this.flush();
  }

  async flush() {
    this.sending = true;
    while (this.waiting.length > 0) {
      const batch = this.waiting.splice(0);
      for (const reply of batch) await this.upload(reply);
      await this.send("messages", JSON.stringify(batch.map(({ blobs, ...rest }) => rest)));
    }
    this.sending = false;
  }

  /** @param {Reply} reply */
  async upload(reply) {
    for (const [name, bytes] of Object.entries(reply.blobs ?? {})) {
      await this.send(`blob/${encodeURIComponent(name)}`, bytes);
    }
  }

  /** @param {string} path @param {string | ArrayBuffer} body */
  async send(path, body) {
    const response = await fetch(`${this.base}/${path}`, { method: "POST", body });
    await response.arrayBuffer(); // frees the connection
  }
}
