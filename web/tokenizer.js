// Makes a tokenizer from a tokenizer.json, in the narrow form that runtime_py/tokenizer.py asks for.
//
// Input:  the file, checked by its sha256. Output: {encode, decode, idToToken, outline}, which take and give plain data.
// Way of the data: downloads -> tokenizer -> Python, which knows this module as `tabfire_tokenizers` (js_tokenizer.py).
//
// The library gets the file without its special tokens, so that no text can turn into one: Python finds them itself,
// and only where the chat template wrote them.

// @ts-expect-error: the package declares types for its name only, and a browser needs the path
import { Tokenizer } from "./node_modules/@huggingface/tokenizers/dist/tokenizers.mjs";
import { downloadsOf } from "./downloads.js";
import { fault } from "./shard.js";
import { sha256 } from "./store.js";

/**
 * @typedef {{content: string, id: number, special?: boolean}} Added
 * @typedef {Record<string, any>} Json
 * @typedef {import("./store.js").Listed} Listed
 */

const AS_IT_IS = { skip_special_tokens: false, clean_up_tokenization_spaces: false };
const NO_FRAME = { add_special_tokens: false };

/** Made before Python asked, by the bundle's URL. @type {Map<string, {sha256: string, made: Promise<object>}>} */
const early = new Map();

/**
 * Make the tokenizer of a load already, of the file that its manifest names.
 * @param {import("./downloads.js").Downloads} downloads
 */
export async function prepare(downloads) {
  const file = await downloads.tokenizer();
  if (!file || early.has(downloads.url)) return;
  const made = make(downloads, file);
  early.set(downloads.url, { sha256: file.sha256, made });
  await made.catch(() => {}); // Python asks again and hears why
}

/** The load is over. @param {string} url */
export function forget(url) {
  early.delete(url);
}

/**
 * The tokenizer in a file of the bundle at `url`.
 * @param {string} url @param {string} path @param {number} sizeBytes @param {string} hash
 */
export async function load(url, path, sizeBytes, hash) {
  const known = early.get(url);
  early.delete(url);
  const made = known?.sha256 === hash ? await known.made.catch(() => null) : null;
  return made ?? make(downloadsOf(url), { path, sizeBytes, sha256: hash });
}

/** @param {import("./downloads.js").Downloads} downloads @param {Listed} file */
async function make(downloads, { path, sizeBytes, sha256: stated }) {
  const bytes = await downloads.read(path);
  if (bytes.byteLength !== sizeBytes) {
    throw fault("integrity", `${path} has ${bytes.byteLength} bytes, its manifest says ${sizeBytes}`);
  }
  const hash = await sha256(bytes);
  if (hash !== stated) {
    throw fault("integrity", `${path} has sha256 ${hash}, its manifest says ${stated}: the file was altered`);
  }
  return create(new TextDecoder().decode(bytes));
}

/** @param {string} text the content of tokenizer.json */
export function create(text) {
  const data = JSON.parse(text);
  const added = /** @type {Added[]} */ (data.added_tokens ?? []);
  const outline = { ...data, model: { type: data.model.type }, size: size(data, added) };
  const plain = withoutSpecials(data, added);
  const opening = new Tokenizer(plain, {});
  const rest = JSON.stringify(plain.pre_tokenizer ?? null).includes('"prepend_scheme":"first"')
    ? new Tokenizer({ ...plain, pre_tokenizer: unprefixed(plain.pre_tokenizer) }, {})
    : opening;
  for (const token of added) opening.model.vocab[token.id] = token.content; // ids to text, nothing else

  return {
    /** Ids of `text`; `first` says that it opens the prompt. @param {string} text @param {boolean} first */
    encode: (text, first) => Int32Array.from((first ? opening : rest).encode(text, NO_FRAME).ids),
    /** @param {string} ids separated by commas */
    decode: (ids) => (ids === "" ? "" : opening.decode(ids.split(",").map(Number), AS_IT_IS)),
    /** @param {number} id */
    idToToken: (id) => opening.id_to_token(id) ?? null,
    /** What tokenizer.json says beside the vocabulary, as JSON; `size` is one more than the largest id. */
    outline: () => JSON.stringify(outline),
  };
}

/**
 * The file as if it had no special tokens; they leave its vocabulary too.
 * @param {Json} data @param {Added[]} added @returns {Json}
 */
function withoutSpecials(data, added) {
  for (const { content, special } of added) {
    if (special && content !== data.model.unk_token) delete data.model.vocab[content]; // the library looks that one up
  }
  return { ...data, added_tokens: added.filter((token) => !token.special), post_processor: null };
}

/** The pre-tokenizer for text that does not open the prompt. @param {Json} part @returns {Json} */
function unprefixed(part) {
  if (part.pretokenizers) return { ...part, pretokenizers: part.pretokenizers.map(unprefixed) };
  return part.prepend_scheme === "first" ? { ...part, prepend_scheme: "never" } : part;
}

/** @param {Json} data @param {Added[]} added @returns {number} */
function size(data, added) {
  const { vocab } = data.model;
  let most = -1;
  for (const id of Array.isArray(vocab) ? vocab.keys() : Object.values(vocab)) most = Math.max(most, id);
  return added.reduce((last, token) => Math.max(last, token.id), most) + 1;
}
