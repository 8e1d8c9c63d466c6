// Makes a tokenizer from the text of a tokenizer.json, in the narrow form that runtime_py/tokenizer.py asks for.
//
// Input:  the text of tokenizer.json. Output: {encode, decode, idToToken, outline}, which take and give plain data.
// Way of the data: core.js hands this module to Python as `tabfire_tokenizers`; runtime_py/js_tokenizer.py calls it.
//
// The library gets the file without its special tokens, so that no text can turn into one: Python finds them itself,
// and only where the chat template wrote them.

import { Tokenizer } from "./node_modules/@huggingface/tokenizers/dist/tokenizers.mjs";

/**
 * @typedef {{content: string, id: number, special?: boolean}} Added
 * @typedef {Record<string, any>} Json
 */

const AS_IT_IS = { skip_special_tokens: false, clean_up_tokenization_spaces: false };
const NO_FRAME = { add_special_tokens: false };
const UNREACHABLE = "\uFFFF"; // a noncharacter: no text that reaches a tokenizer holds one

/** @param {string} text the content of tokenizer.json */
export function create(text) {
  const data = JSON.parse(text);
  const added = /** @type {Added[]} */ (data.added_tokens ?? []);
  const names = new Map(added.map((token) => [token.id, token.content]));
  const plain = withoutSpecials(data, added);
  const opening = new Tokenizer(plain, {});
  const rest = JSON.stringify(plain.pre_tokenizer ?? null).includes('"prepend_scheme":"first"')
    ? new Tokenizer({ ...plain, pre_tokenizer: unprefixed(plain.pre_tokenizer) }, {})
    : opening;

  return {
    /** Ids of `text`; `first` says that it opens the prompt. @param {string} text @param {boolean} first */
    encode: (text, first) => Int32Array.from((first ? opening : rest).encode(text, NO_FRAME).ids),
    /** @param {string} ids separated by commas */
    decode: (ids) => (ids === "" ? "" : opening.decode(ids.split(",").map(Number), AS_IT_IS)),
    /** @param {number} id */
    idToToken: (id) => names.get(id) ?? opening.id_to_token(id) ?? null,
    /** What tokenizer.json says beside the vocabulary, as JSON; `size` is one more than the largest id. */
    outline: () => JSON.stringify({ ...data, model: { type: data.model.type }, size: size(data, added) }),
  };
}

/** The file as if it had no special tokens. @param {Json} data @param {Added[]} added @returns {Json} */
function withoutSpecials(data, added) {
  const names = new Set(added.filter((token) => token.special).map((token) => token.content));
  names.delete(data.model.unk_token);
  const { vocab } = data.model;
  const kept = Array.isArray(vocab)
    ? vocab.map(([token, score]) => [names.has(token) ? UNREACHABLE + token : token, score])
    : Object.fromEntries(Object.entries(vocab).filter(([token]) => !names.has(token)));
  const added_tokens = added.filter((token) => !token.special);
  return { ...data, added_tokens, post_processor: null, model: { ...data.model, vocab: kept } };
}

/** The pre-tokenizer for text that does not open the prompt. @param {Json} part @returns {Json} */
function unprefixed(part) {
  if (part.pretokenizers) return { ...part, pretokenizers: part.pretokenizers.map(unprefixed) };
  return part.prepend_scheme === "first" ? { ...part, prepend_scheme: "never" } : part;
}

/** @param {Json} data @param {Added[]} added */
function size(data, added) {
  const { vocab } = data.model;
  const ids = Array.isArray(vocab) ? [vocab.length - 1] : Object.values(vocab);
  return 1 + [...ids, ...added.map((token) => token.id)].reduce((a, b) => Math.max(a, b), -1);
}
