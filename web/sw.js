// The page without a network: answers from the network first, and from what it kept where no network is.
//
// Input:  GET requests of the page and its worker. Output: the network's answer, or the last one that was kept.
// Way of the data: app.js registers it once a model is loaded; then page -> sw -> network, or disk.
//
// A bundle's own files are asked for with `no-store` and pass by, and so does Python's snapshot: store.js keeps those.

const CACHE = "tabfire-page-1";
const PYODIDE = "node_modules/pyodide/";
const SNAPSHOT = "/tabfire.snapshot";
/** What the page needs to start; the test that reloads it without a server fails if one is missing. */
const FILES = [
  ...["./", "style.css", "icon.svg", "tabfire.zip", "models/index.json", "worker.js", "core.js"],
  ...["ahead.js", "downloads.js", "fetcher.js", "groups.js", "loop.js", "modules.js", "profile.js", "replay.js", "shard.js", "snapshot.js", "store.js", "tokenizer.js", "weights.js"],
  ...["pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"].map(
    (name) => PYODIDE + name,
  ),
  "node_modules/@huggingface/tokenizers/dist/tokenizers.mjs",
];

const worker = /** @type {any} */ (self);

/** Put an answer away, unless the same one lies there. @param {Request} request @param {Response} response */
async function keep(request, response) {
  try {
    const cache = await caches.open(CACHE);
    const known = (await cache.match(request))?.headers.get("ETag");
    if (known === null || known === undefined || known !== response.headers.get("ETag")) await cache.put(request, response);
    else await response.body?.cancel();
  } catch {
    // no room, or the answer broke off: the page has its own copy, and there is only no fall-back
  }
}

/** @param {any} event @param {Request} request */
async function answer(event, request) {
  try {
    const response = await fetch(request);
    if (response.ok && response.status === 200) event.waitUntil(keep(request, response.clone()));
    return response;
  } catch (error) {
    const cache = await caches.open(CACHE);
    const kept = await cache.match(request, { ignoreSearch: request.mode === "navigate" });
    if (kept) return kept;
    throw error;
  }
}

/** @param {string} url */
async function fetchAndKeep(url) {
  const request = new Request(url);
  const response = await fetch(request);
  if (response.ok) await keep(request, response);
}

worker.addEventListener("install", (/** @type {any} */ event) => {
  worker.skipWaiting();
  const wanted = new Set(FILES.map((name) => new URL(name, worker.registration.scope).href));
  event.waitUntil(Promise.allSettled([...wanted].map(fetchAndKeep)));
});

worker.addEventListener("activate", (/** @type {any} */ event) => event.waitUntil(worker.clients.claim()));

// What the page itself has loaded by then: app.js tells, so that no list of its modules can be out of date.
worker.addEventListener("message", (/** @type {any} */ event) => {
  const urls = /** @type {string[]} */ (event.data?.keep ?? []);
  const own = urls.filter((url) => url.startsWith(worker.registration.scope));
  const done = Promise.allSettled(own.map(fetchAndKeep)).then(() => event.ports[0]?.postMessage("kept"));
  event.waitUntil(done);
});

worker.addEventListener("fetch", (/** @type {any} */ event) => {
  const { request } = event;
  const own = request.url.startsWith(worker.registration.scope) && !request.url.endsWith(SNAPSHOT);
  if (own && request.method === "GET" && request.cache !== "no-store") event.respondWith(answer(event, request));
});
