// Makes a tokenizer from the text of a tokenizer.json, in the narrow form that runtime_py/tokenizer.py asks for.
//
// Input:  the text of tokenizer.json. Output: {encode, decode, idToToken, outline}, which take and give plain data.
// Way of the data: core.js hands this module to Python as `tabfire_tokenizers`; runtime_py/js_tokenizer.py calls it.
//
// The library gets the file without its special tokens, so that no text can turn into one: Python finds them itself,
// and only where the chat template wrote them.

// @ts-expect-error: the package declares types for its name only, and a browser needs the path
import { Tokenizer } from "./node_modules/@huggingface/tokenizers/dist/tokenizers.mjs";

/**
 * @typedef {{content: string, id: number, special?: boolean}} Added
 * @typedef {Record<string, any>} Json
 */

const AS_IT_IS = { skip_special_tokens: false, clean_up_tokenization_spaces: false };
const NO_FRAME = { add_special_tokens: false };

/** @param {string} text the content of tokenizer.json */
export function create(text) {
  const data = JSON.parse(text);
  const added = /** @type {Added[]} */ (data.added_tokens ?? []);
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
    outline: () => JSON.stringify({ ...data, model: { type: data.model.type }, size: size(data, added) }),
  };
}

/** The file as if it had no special tokens. @param {Json} data @param {Added[]} added @returns {Json} */
function withoutSpecials(data, added) {
  const names = new Set(added.filter((token) => token.special).map((token) => token.content));
  names.delete(data.model.unk_token); // the library looks its id up
  const kept = Object.entries(data.model.vocab).filter(([token]) => !names.has(token));
  const model = { ...data.model, vocab: Object.fromEntries(kept) };
  return { ...data, added_tokens: added.filter((token) => !token.special), post_processor: null, model };
}

/** The pre-tokenizer for text that does not open the prompt. @param {Json} part @returns {Json} */
function unprefixed(part) {
  if (part.pretokenizers) return { ...part, pretokenizers: part.pretokenizers.map(unprefixed) };
  return part.prepend_scheme === "first" ? { ...part, prepend_scheme: "never" } : part;
}

/** @param {Json} data @param {Added[]} added @returns {number} */
function size(data, added) {
  const ids = [...Object.values(data.model.vocab), ...added.map((token) => token.id)];
  return ids.reduce((most, id) => Math.max(most, id + 1), 0);
}
