// A model's answer as safe DOM: Markdown by `marked`, sanitised by DOMPurify.
//
// Input: Markdown text, perhaps cut off in the middle. Output: a DocumentFragment without scripts, styles or images.
// A model may write anything, so no attribute survives but links; those open elsewhere.

// @ts-ignore -- its types are found under the package's name only, which a page cannot resolve
import { marked } from "../node_modules/marked/lib/marked.esm.js";
import DOMPurify from "../node_modules/dompurify/dist/purify.es.mjs";

const RULES = {
  USE_PROFILES: { html: true },
  FORBID_TAGS: ["style", "img", "picture", "video", "audio", "form", "input", "button", "textarea", "select"],
  ALLOWED_ATTR: ["href", "title", "start"],
  RETURN_DOM_FRAGMENT: true,
};

/** @param {string} text @returns {DocumentFragment} */
export function renderMarkdown(text) {
  const html = marked.parse(text, { gfm: true, breaks: true });
  const fragment = /** @type {DocumentFragment} */ (/** @type {unknown} */ (DOMPurify.sanitize(html, RULES)));
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  return fragment;
}
