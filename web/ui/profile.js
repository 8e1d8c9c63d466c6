// GPU time of a decode step by kernel: a bar chart, and the same numbers as a table.
//
// Input:  a function that profiles one step (`engine.profile`). Output: a section for the details panel.
// The chart library (208 KB) is fetched when a step is profiled for the first time, and not before.

import { element } from "./details.js";

const ENOUGH_STEPS = 10;
const ENOUGH_MS = 1500;
const BAR_PX = 26;

/**
 * @typedef {import("../engine.d.ts").Profile} Profile
 * @typedef {Profile["kernels"]} Kernels
 */

export class ProfileView {
  /** @param {() => Promise<Profile>} step profiles one step */
  constructor(step) {
    this.step = step;
    this.button = /** @type {HTMLButtonElement} */ (element("button", ["Profile a step"], "plain"));
    this.button.type = "button";
    this.button.addEventListener("click", () => void this.run());
    this.status = element("p", [], "quiet");
    this.status.setAttribute("role", "status");
    this.result = element("div", []);
    const title = element("h2", ["GPU time of a step"]);
    this.element = element("section", [title, this.button, this.status, this.result], "profile");
    /** @type {any} */
    this.chart = null;
  }

  /** Forget what was measured: another model is loaded. */
  clear() {
    this.chart?.destroy();
    this.chart = null;
    this.result.replaceChildren();
    this.status.textContent = "";
  }

  async run() {
    this.button.disabled = true;
    this.status.textContent = "Measuring…";
    try {
      const [Chart, { kernels, steps }] = await Promise.all([loadChart(), measure(this.step)]);
      this.clear();
      this.show(Chart, kernels, steps);
    } catch (error) {
      this.status.textContent = error instanceof Error ? error.message : String(error);
    } finally {
      this.button.disabled = false;
    }
  }

  /** @param {any} Chart @param {Kernels} kernels @param {number} steps */
  show(Chart, kernels, steps) {
    const sum = kernels.reduce((ms, kernel) => ms + kernel.time_ms, 0);
    const count = kernels.reduce((n, kernel) => n + kernel.dispatches, 0);
    this.status.textContent = `One token: ${count} dispatches, ${sum.toFixed(2)} ms, mean of ${steps} steps`;
    const canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "Bar chart of GPU time by kernel; the table below holds the numbers");
    const frame = element("div", [canvas], "chart");
    frame.style.height = `${BAR_PX * kernels.length + 50}px`;
    const flag = element("code", ["--enable-webgpu-developer-features"]);
    const remark = element("p", ["Chrome rounds a dispatch's time to 0.1 ms unless it runs with ", flag, "."], "quiet");
    this.result.replaceChildren(frame, kernelTable(kernels), remark);
    this.chart = new Chart(canvas, chartConfig(kernels, frame));
  }
}

/** The mean of as many steps as pass in a moment. @param {() => Promise<Profile>} step */
async function measure(step) {
  const started = performance.now();
  await step(); // warms up
  /** @type {Map<string, Kernels[number]>} */
  const sums = new Map();
  let steps = 0;
  do {
    for (const found of (await step()).kernels) {
      const sum = sums.get(found.kernel) ?? { ...found, time_ms: 0 };
      sums.set(found.kernel, { ...sum, time_ms: sum.time_ms + found.time_ms });
    }
    steps += 1;
  } while (steps < ENOUGH_STEPS && performance.now() - started < ENOUGH_MS);
  const whole = [...sums.values()].reduce((ms, sum) => ms + sum.time_ms, 0);
  const kernels = [...sums.values()].map((sum) => ({
    ...sum,
    time_ms: sum.time_ms / steps,
    share: whole > 0 ? sum.time_ms / whole : 0,
  }));
  return { steps, kernels: kernels.sort((a, b) => b.time_ms - a.time_ms) };
}

/** @param {Kernels} kernels */
function kernelTable(kernels) {
  const head = ["kernel", "dispatches", "µs", "share"].map((name) => element("th", [name]));
  for (const cell of head) cell.setAttribute("scope", "col");
  const rows = kernels.map(({ kernel, dispatches, time_ms: ms, share }) => {
    const name = element("th", [kernel]);
    name.setAttribute("scope", "row");
    const numbers = [String(dispatches), (1000 * ms).toFixed(0), `${(100 * share).toFixed(1)} %`];
    return element("tr", [name, ...numbers.map((text) => element("td", [text]))]);
  });
  return element("table", [element("thead", [element("tr", head)]), element("tbody", rows)], "numbers");
}

/** A built file without bare imports, which a page without a bundler or an import map could not resolve. */
async function loadChart() {
  // @ts-ignore -- a script for a global, which its types do not describe
  await import("../node_modules/chart.js/dist/chart.umd.min.js");
  return /** @type {any} */ (globalThis).Chart;
}

/** @param {Kernels} kernels @param {HTMLElement} frame whose colours are the page's */
function chartConfig(kernels, frame) {
  const { color: bars, borderColor: grid } = getComputedStyle(frame);
  const { color: text, fontFamily: family } = getComputedStyle(document.body);
  const font = { family, size: 12 };
  const [scale, unit] = (kernels[0]?.time_ms ?? 0) >= 10 ? [1, "ms"] : [1000, "µs"];
  return {
    type: "bar",
    data: {
      labels: kernels.map(({ kernel }) => kernel),
      datasets: [{ data: kernels.map(({ time_ms: ms }) => scale * ms), backgroundColor: bars, maxBarThickness: 16 }],
    },
    options: {
      indexAxis: "y",
      animation: false,
      maintainAspectRatio: false,
      plugins: { legend: { display: false }, tooltip: { callbacks: { label: tooltip(kernels) } } },
      scales: {
        x: {
          title: { display: true, text: `GPU time, ${unit}`, color: text, font },
          ticks: { color: text, font, maxTicksLimit: 6 },
          grid: { color: grid },
        },
        y: { ticks: { color: text, font, autoSkip: false }, grid: { display: false } },
      },
    },
  };
}

/** @param {Kernels} kernels */
function tooltip(kernels) {
  return (/** @type {{dataIndex: number}} */ { dataIndex: at }) => {
    const { time_ms: ms, share, dispatches } = kernels[at];
    return `${(1000 * ms).toFixed(0)} µs, ${(100 * share).toFixed(1)} %, ${dispatches} dispatches`;
  };
}
