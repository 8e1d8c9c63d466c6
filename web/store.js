// Keeps what a load fetched, in the browser's Cache API, so that the next load needs no network.
//
// Input:  bytes under a name: `sha256/HEX` for a bundle's files, `manifest/URL`, and what core.js adds.
// Output: the same bytes, or null. Whatever fails (no Cache API, a private window, a full disk) reads as "not kept".
// Way of the data: downloads.js, warm.js -> store -> disk.
//
// Nothing read from here is trusted: files are hashed again by whoever reads them, as if they came from the network, and
// what has no hash in its name is sealed: 32 bytes of sha256 before its own.

const CACHE = "tabfire-store-1";
/** Shared by the loads under way in all tabs; whoever has it alone may drop what no kept manifest lists. */
const LOCK = "tabfire-loads";
const HEX = /^[0-9a-f]{64}$/;
const HASH_BYTES = 32;

/** @param {string} name */
const address = (name) => `${self.origin}/.tabfire/${name}`;

/** @param {Uint8Array<ArrayBuffer> | ArrayBuffer} bytes */
export async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Store {
  /** @param {Cache} cache */
  constructor(cache) {
    this.cache = cache;
  }

  /** The store of this origin, null where there is none. @returns {Promise<Store | null>} */
  static async open() {
    if (!("caches" in globalThis)) return null;
    return caches.open(CACHE).then((cache) => new Store(cache), () => null);
  }

  /** @param {string} name */
  async get(name) {
    const found = await this.cache.match(address(name)).catch(() => undefined);
    return found ?? null;
  }

  /** @param {string} name @returns {Promise<ArrayBuffer | null>} */
  async bytes(name) {
    return (await this.get(name))?.arrayBuffer().catch(() => null) ?? null;
  }

  /** True once `data` is on the disk. @param {string} name @param {BodyInit} data */
  async put(name, data) {
    return this.cache.put(address(name), new Response(data)).then(() => true, () => false);
  }

  /** @param {string} name @param {Uint8Array<ArrayBuffer>} bytes */
  async putSealed(name, bytes) {
    return this.put(name, new Blob([await crypto.subtle.digest("SHA-256", bytes), bytes]));
  }

  /**
   * What was sealed under this name; null if that was altered, and then it is dropped.
   * @param {string} name @returns {Promise<Uint8Array<ArrayBuffer> | null>}
   */
  async sealed(name) {
    const kept = await this.bytes(name);
    if (!kept) return null;
    const bytes = new Uint8Array(kept, Math.min(HASH_BYTES, kept.byteLength));
    const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    const stated = new Uint8Array(kept, 0, Math.min(HASH_BYTES, kept.byteLength));
    if (hash.every((byte, i) => byte === stated[i])) return bytes;
    await this.drop(name);
    return null;
  }

  /** @param {string} name */
  async drop(name) {
    await this.cache.delete(address(name)).catch(() => false);
  }

  /** Keep the manifest of a bundle. @param {string} url @param {ArrayBuffer} bytes */
  keepManifest(url, bytes) {
    return this.put(`manifest/${encodeURIComponent(url)}`, bytes);
  }

  /**
   * Tell all tabs that a load keeps files before its manifest; returns how to tell that it is over, as closing the tab
   * does too.
   * @returns {Promise<() => Promise<void>>}
   */
  async hold() {
    const locks = globalThis.navigator?.locks; // not in Node, and not in a page without https
    if (!locks) return async () => {};
    return new Promise((held) => {
      /** @type {Promise<void>} */
      const over = locks
        .request(LOCK, { mode: "shared" }, () => new Promise((end) => held(() => (end(undefined), over))))
        .then(() => {}, () => held(async () => {}));
    });
  }

  /** Of all files keep only those that some kept manifest lists, unless a load is under way that keeps some. */
  async sweep() {
    const locks = globalThis.navigator?.locks;
    if (!locks) return this.dropUnlisted();
    const drop = (/** @type {Lock | null} */ lock) => (lock ? this.dropUnlisted() : undefined);
    await locks.request(LOCK, { ifAvailable: true }, drop).catch(() => {});
  }

  async dropUnlisted() {
    const wanted = new Set();
    for (const key of await this.names("manifest/")) {
      const data = await this.bytes(key);
      for (const { sha256: hash } of data ? listFiles(data) : []) wanted.add(`sha256/${hash}`);
    }
    for (const key of await this.names("sha256/")) if (!wanted.has(key)) await this.drop(key);
  }

  /** @param {string} url @returns {Promise<ArrayBuffer | null>} */
  manifest(url) {
    return this.bytes(`manifest/${encodeURIComponent(url)}`);
  }

  /** The names that begin with `prefix`. @param {string} prefix */
  async names(prefix) {
    const start = address(prefix);
    const keys = await this.cache.keys().catch(() => []);
    const found = keys.map(({ url }) => url).filter((url) => url.startsWith(start));
    return found.map((url) => prefix + url.slice(start.length));
  }
}

/** Delete everything that this origin keeps for tabfire. */
export async function clearStore() {
  if (!("caches" in globalThis)) return;
  for (const name of await caches.keys()) if (name.startsWith("tabfire-")) await caches.delete(name);
}

/** @typedef {{path: string, sizeBytes: number, sha256: string}} Listed a file as a manifest lists it */

/**
 * The files of a manifest that are safe to ask for, none if it cannot be read: Python judges it, this only hurries.
 * @param {ArrayBuffer} manifest
 * @returns {Listed[]}
 */
export function listFiles(manifest) {
  try {
    /** @type {{path: unknown, size_bytes: unknown, sha256: unknown}[]} */
    const files = JSON.parse(new TextDecoder().decode(manifest)).files;
    return files.flatMap(({ path, size_bytes: sizeBytes, sha256: hash }) =>
      isPath(path) && isSize(sizeBytes) && HEX.test(String(hash))
        ? [{ path, sizeBytes, sha256: String(hash) }]
        : [],
    );
  } catch {
    return [];
  }
}

/** @param {unknown} path @returns {path is string} */
function isPath(path) {
  return typeof path === "string" && /^[\w-][\w.-]*(\/[\w-][\w.-]*)*$/.test(path);
}

/** @param {unknown} size @returns {size is number} */
function isSize(size) {
  return typeof size === "number" && Number.isSafeInteger(size) && size >= 0;
}
