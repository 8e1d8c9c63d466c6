// Loading on screen: one line a stage, with bytes and a bar where they are known.
//
// Input: `Progress` of engine.js. Output: a list in the loading panel.

const NAMES = {
  python: "Start Python",
  runtime: "Unpack the runtime",
  download: "Download",
  weights: "Weights to the GPU",
  compile: "Compile kernels",
};

/** @param {number} bytes */
export function megabytes(bytes) {
  return `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
}

export class Stages {
  /** @param {HTMLElement} list */
  constructor(list) {
    this.list = list;
    /** @type {Map<string, {bar: HTMLProgressElement, text: HTMLElement, item: HTMLElement}>} */
    this.rows = new Map();
    list.replaceChildren();
  }

  /** @param {import("../engine.js").Progress} progress */
  show({ stage, done, total }) {
    const { bar, text, item } = this.row(stage);
    const finished = total > 0 && done >= total;
    if (total > 0) {
      bar.max = total;
      bar.value = Math.min(done, total);
      const count = stage === "compile" ? String : megabytes;
      text.textContent = `${count(done)} of ${count(total)}`;
    }
    item.classList.toggle("done", finished);
  }

  /** @param {string} stage */
  row(stage) {
    const known = this.rows.get(stage);
    if (known) return known;
    if (stage === "runtime") this.close("python");
    else if (stage !== "download") this.close("runtime"); // files come while Python starts
    const item = document.createElement("li");
    const name = document.createElement("span");
    name.textContent = NAMES[/** @type {keyof typeof NAMES} */ (stage)] ?? stage;
    const bar = document.createElement("progress");
    bar.setAttribute("aria-label", name.textContent);
    const text = document.createElement("span");
    text.className = "quiet";
    item.append(name, bar, text);
    this.list.append(item);
    const row = { bar, text, item };
    this.rows.set(stage, row);
    return row;
  }

  /** Mark a stage that has no count as done. @param {string} stage */
  close(stage) {
    const row = this.rows.get(stage);
    if (!row) return;
    row.bar.value = row.bar.max;
    row.item.classList.add("done");
  }
}
