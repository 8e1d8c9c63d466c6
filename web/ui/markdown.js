// A model's answer as safe DOM: Markdown by `marked`, sanitised by DOMPurify.
//
// Input: Markdown text, perhaps cut off in the middle. Output: a DocumentFragment of plain text formatting.
// HTML that a model writes is shown as the text it is; what passes is the list below, whatever `marked` makes of it.

// @ts-ignore -- its types are found under the package's name only, which a page cannot resolve
import { Marked } from "../node_modules/marked/lib/marked.esm.js";
import DOMPurify from "../node_modules/dompurify/dist/purify.es.mjs";

const TAGS =
  "p br strong em del code pre blockquote ul ol li h1 h2 h3 h4 h5 h6 hr table thead tbody tr th td a";
const RULES = {
  ALLOWED_TAGS: TAGS.split(" "),
  ALLOWED_ATTR: ["href", "title", "start"],
  RETURN_DOM_FRAGMENT: true,
};

/** @param {string} text */
const escapeHtml = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

const markdown = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: (/** @type {{text: string}} */ { text }) => escapeHtml(text),
    image: (/** @type {{raw: string}} */ { raw }) => escapeHtml(raw),
  },
});

/** @param {string} text @returns {DocumentFragment} */
export function renderMarkdown(text) {
  const clean = DOMPurify.sanitize(markdown.parse(text), RULES);
  const fragment = /** @type {DocumentFragment} */ (/** @type {unknown} */ (clean));
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  return fragment;
}
