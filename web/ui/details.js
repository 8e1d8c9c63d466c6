// The details panel: adapter, memory, timings, and which kernel serves each node and why.
//
// Input: `engine.report()` and `engine.stats()`, the section of ui/profile.js. Output: tables in the panel.

import { megabytes } from "./loading.js";

/** @param {string} tag @param {(string | Node)[]} children @param {string} [className] */
export function element(tag, children, className = "") {
  const node = document.createElement(tag);
  node.append(...children);
  if (className) node.className = className;
  return node;
}

/** @param {[string, unknown][]} pairs */
function pairTable(pairs) {
  const rows = pairs
    .filter(([, value]) => value !== undefined && value !== "")
    .map(([name, value]) => element("tr", [element("th", [name]), element("td", [spell(value)])]));
  return element("table", [element("tbody", rows)], "pairs");
}

/** @param {unknown} value @returns {string} */
function spell(value) {
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : value.toFixed(1);
  if (Array.isArray(value)) return value.map(spell).join(", ") || "none";
  if (value !== null && typeof value === "object") return JSON.stringify(value);
  return String(value);
}

/** @param {Record<string, any>} program */
function programTable(program) {
  const spans = Object.entries(program.ranges).map(([name, [low, high]]) =>
    low === high ? `${name} = ${low}` : `${name} ${low}…${high}`,
  );
  const head = element("tr", ["node", "kernel", "grid", "why"].map((name) => element("th", [name])));
  const rows = program.dispatches.map((/** @type {Record<string, any>} */ dispatch) => {
    const kernel = element("td", [dispatch.kernel]);
    kernel.title = dispatch.key;
    const cells = [dispatch.node, dispatch.grid.join(" × "), dispatch.reason];
    const [node, grid, why] = cells.map((text) => element("td", [text]));
    return element("tr", [node, kernel, grid, why]);
  });
  const table = element("table", [element("thead", [head]), element("tbody", rows)], "routes");
  const title = `${spans.join(", ") || "any step"}: ${rows.length} dispatches`;
  const wrap = element("div", [table], "scroll");
  wrap.tabIndex = 0;
  wrap.setAttribute("role", "region");
  wrap.setAttribute("aria-label", title);
  return element("details", [element("summary", [title]), wrap]);
}

/**
 * @param {HTMLElement} panel
 * @param {Record<string, any>} report
 * @param {Record<string, any>} stats
 * @param {import("../engine.js").Summary | null} summary
 * @param {HTMLElement} profile the section of `ProfileView`
 */
export function showDetails(panel, report, stats, summary, profile) {
  const { adapter = {}, memory = {}, timings = {}, phases = {}, programs = [], options = {} } = report;
  /** @type {[string, unknown][]} */
  const spans = Object.entries(phases).map(([name, [start, end]]) => [name, `${start.toFixed(0)} to ${end.toFixed(0)} ms`]);
  /** @type {[string, unknown][]} */
  const sizes = Object.entries(memory).map(([name, bytes]) => [name.replace(/_bytes$/, ""), megabytes(bytes)]);
  /** @type {(values: Record<string, number>) => [string, unknown][]} */
  const times = (values) =>
    Object.entries(values).map(([name, value]) =>
      name.endsWith("_ms") ? [name.slice(0, -3), `${value.toFixed(1)} ms`] : [name, value],
    );
  const part = (/** @type {string} */ title, /** @type {(string | Node)[]} */ content) =>
    element("section", [element("h2", [title]), ...content]);
  panel.replaceChildren(
    part("Adapter", [
      pairTable([
        ["vendor", adapter.vendor],
        ["architecture", adapter.architecture],
        ["description", adapter.description],
        ["features", adapter.features],
        ["subgroups", adapter.subgroup_sizes],
      ]),
    ]),
    part("Memory", [pairTable([...sizes, ["Python heap", megabytes(stats.heap_bytes ?? 0)]])]),
    part("Loading, since it was asked for", [pairTable(spans)]),
    part("Work while loading", [pairTable([...times({ python_start_ms: stats.boot_ms, ...timings })])]),
    ...(summary ? [part("Last answer", [pairTable(times(summary.timings))])] : []),
    profile,
    part("Options", [pairTable(Object.entries(options)), ...(report.fallbacks ?? []).map(String)]),
    part("Routes", programs.map(programTable)),
  );
}
