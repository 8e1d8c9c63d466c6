// The conversation on screen.
//
// Input:  what was said, and text that grows. Output: articles in the log, drawn at most once a frame.
// Text is collected whether or not frames are drawn: a hidden tab draws none, and loses nothing.

import { renderMarkdown } from "./markdown.js";

const NEAR_END_PX = 80;

export class Log {
  /** @param {HTMLElement} root @param {HTMLElement} scroller */
  constructor(root, scroller) {
    this.root = root;
    this.scroller = scroller;
  }

  clear() {
    this.root.replaceChildren();
  }

  /** @param {string} text */
  addUser(text) {
    const body = this.add("user", "You");
    body.textContent = text;
    this.toEnd();
  }

  /** Add an answer that will grow. @param {string} name */
  addAnswer(name) {
    const body = this.add("assistant", name);
    return new Answer(body, () => this.isNearEnd(), () => this.toEnd());
  }

  /** @param {string} role @param {string} name @returns {HTMLElement} */
  add(role, name) {
    const article = document.createElement("article");
    article.className = role;
    const heading = document.createElement("h3");
    heading.textContent = name;
    const body = document.createElement("div");
    body.className = "body";
    article.append(heading, body);
    this.root.append(article);
    return body;
  }

  isNearEnd() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
  }

  toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}

export class Answer {
  /** @param {HTMLElement} body @param {() => boolean} isNearEnd @param {() => void} toEnd */
  constructor(body, isNearEnd, toEnd) {
    this.body = body;
    this.isNearEnd = isNearEnd;
    this.toEnd = toEnd;
    this.text = "";
    this.frame = 0;
    body.classList.add("waiting");
    body.setAttribute("aria-busy", "true");
    this.toEnd();
  }

  /** @param {string} text */
  append(text) {
    this.text += text;
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    const follow = this.isNearEnd();
    this.body.classList.toggle("waiting", this.text === "");
    this.body.replaceChildren(renderMarkdown(this.text));
    if (follow) this.toEnd();
  }

  /** Draw for the last time, with a remark under the text if there is one. @param {string} [remark] */
  finish(remark) {
    cancelAnimationFrame(this.frame);
    this.draw();
    this.body.classList.remove("waiting");
    this.body.removeAttribute("aria-busy");
    if (!remark) return;
    const note = document.createElement("p");
    note.className = "remark";
    note.textContent = remark;
    this.body.append(note);
    this.toEnd();
  }
}
