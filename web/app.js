// The demo page: a chat over engine.js, and over nothing else of tabfire.
//
// Input:  what a person types; `?model=ID` picks a model, `?debug=1..5` is handed to the session.
// Output: a conversation, progress, numbers, errors with their hints.

import { checkWebGPU, Engine, listModels, TabfireError } from "./engine.js";
import { showDetails } from "./ui/details.js";
import { megabytes, Stages } from "./ui/loading.js";
import { Log } from "./ui/log.js";
import { keepPage } from "./ui/offline.js";
import { ProfileView } from "./ui/profile.js";

const STARTERS = [
  "What is the capital of France?",
  "Explain in two sentences why the sky is blue.",
  "Write a haiku about a browser tab.",
];

/** @template {HTMLElement} T @param {string} id @param {new () => T} kind @returns {T} */
function get(id, kind) {
  const node = document.getElementById(id);
  if (!(node instanceof kind)) throw new Error(`index.html has no ${kind.name} #${id}`);
  return node;
}

const main = /** @type {HTMLElement} */ (document.querySelector("main"));
const ui = {
  model: get("model", HTMLSelectElement),
  prompt: get("prompt", HTMLTextAreaElement),
  send: get("send", HTMLButtonElement),
  stop: get("stop", HTMLButtonElement),
  newChat: get("new-chat", HTMLButtonElement),
  speed: get("speed", HTMLOutputElement),
  loading: get("loading", HTMLElement),
  welcome: get("welcome", HTMLElement),
  error: get("error", HTMLElement),
  details: get("details", HTMLElement),
  detailsButton: get("details-button", HTMLButtonElement),
};
const log = new Log(get("log", HTMLElement), main);
const query = new URLSearchParams(location.search);
const profile = new ProfileView(profileStep);

/** @type {{engine: Engine | null, messages: {role: string, content: string}[], summary: any, loading: AbortController | null, models: import("./engine.js").ModelEntry[]}} */
const state = { engine: null, messages: [], summary: null, loading: null, models: [] };

/** @param {unknown} error @param {string} title */
function showError(error, title) {
  const known = error instanceof TabfireError ? error : new TabfireError({ code: "page", message: String(error) });
  get("error-title", HTMLElement).textContent = title;
  get("error-message", HTMLElement).textContent = known.message;
  const parts = known.hint.split("`").map((text, i) => {
    const node = document.createElement(i % 2 ? "code" : "span");
    node.textContent = text;
    return node;
  });
  get("error-hint", HTMLElement).replaceChildren(...(known.hint ? parts : []));
  get("error-code", HTMLElement).textContent = known.code;
  ui.error.hidden = false;
  if (known.detail) console.error(known.detail);
}

/** Enable what can be used now. */
function refresh() {
  const ready = state.engine !== null;
  const busy = !ui.stop.hidden;
  ui.prompt.disabled = !ready;
  ui.send.disabled = !ready || busy || ui.prompt.value.trim() === "";
  ui.newChat.disabled = !ready || busy;
  ui.detailsButton.disabled = !ready;
  ui.model.disabled = state.models.length === 0 || busy;
  ui.loading.hidden = state.loading === null;
  ui.welcome.hidden = !ready || state.messages.length > 0;
}

/** Load the picked model in place of the present one. */
async function loadModel() {
  const entry = state.models[ui.model.selectedIndex];
  if (!entry) return;
  state.loading?.abort();
  state.engine?.close();
  const controller = new AbortController();
  Object.assign(state, { engine: null, messages: [], summary: null, loading: controller });
  log.clear();
  profile.clear();
  ui.error.hidden = ui.details.hidden = true;
  const stages = new Stages(get("stages", HTMLElement));
  get("loading-title", HTMLElement).textContent = `Loading ${entry.name}`;
  get("welcome-model", HTMLElement).textContent = entry.name;
  refresh();
  try {
    const debug = Number(query.get("debug") ?? 0);
    const options = debug ? { debug } : {};
    const onProgress = (/** @type {any} */ progress) => stages.show(progress);
    const engine = await Engine.load(entry.url, { options, onProgress, signal: controller.signal });
    if (state.loading !== controller) return engine.close();
    state.engine = engine;
    get("temperature", HTMLInputElement).value = String(engine.info.defaults.temperature ?? 0);
  } catch (error) {
    if (state.loading === controller) showError(error, `${entry.name} could not be loaded`);
  } finally {
    if (state.loading === controller) state.loading = null;
    refresh();
    if (state.engine) {
      ui.prompt.focus();
      void keepPage();
    }
  }
}

function sampling() {
  const seed = get("seed", HTMLInputElement).value;
  return {
    ...state.engine?.info.defaults,
    temperature: get("temperature", HTMLInputElement).valueAsNumber || 0,
    max_tokens: get("max-tokens", HTMLInputElement).valueAsNumber || 512,
    ...(seed && { seed: Number(seed) }),
  };
}

/** The conversation as the model gets it. */
function conversation() {
  const system = get("system", HTMLTextAreaElement).value.trim();
  return system ? [{ role: "system", content: system }, ...state.messages] : state.messages;
}

/** @param {string} text */
async function ask(text) {
  const engine = state.engine;
  if (!engine || text.trim() === "" || !ui.stop.hidden) return;
  ui.error.hidden = true;
  ui.prompt.value = "";
  ui.prompt.rows = 1;
  ui.stop.hidden = false;
  ui.send.hidden = true;
  state.messages.push({ role: "user", content: text });
  log.addUser(text);
  refresh();
  const answer = log.addAnswer(state.models[ui.model.selectedIndex]?.name ?? "Model");
  let remark = "";
  try {
    remark = await stream(engine, answer);
    state.messages.push({ role: "assistant", content: answer.text });
  } catch (error) {
    state.messages.pop();
    showError(error, "No answer");
    if (engine === state.engine && error instanceof TabfireError && error.code === "device_lost") state.engine = null;
  } finally {
    answer.finish(remark);
    ui.stop.hidden = true;
    ui.send.hidden = false;
    refresh();
    ui.prompt.focus();
    if (!ui.details.hidden) void updateDetails();
  }
}

/** Show an answer as it comes; return a remark on how it ended. @param {Engine} engine @param {import("./ui/log.js").Answer} answer */
async function stream(engine, answer) {
  const asked = performance.now();
  let first = 0;
  let tokens = 0;
  for await (const piece of engine.chat(conversation(), sampling())) {
    answer.append(piece.text);
    tokens += piece.ids.length;
    if (piece.summary) state.summary = piece.summary;
    else first ||= performance.now();
    const seconds = (performance.now() - first) / 1000;
    const rate = tokens > 1 && seconds > 0 ? `${((tokens - 1) / seconds).toFixed(1)} tokens/s, ` : "";
    if (first) ui.speed.textContent = `${rate}${tokens} tokens, first after ${((first - asked) / 1000).toFixed(2)} s`;
  }
  const reason = state.summary?.finish_reason;
  if (reason === "length") return "Cut off at the longest answer, or at the end of the context.";
  return reason === "abort" ? "Stopped." : "";
}

async function updateDetails() {
  if (!state.engine) return;
  const [report, stats] = await Promise.all([state.engine.report(), state.engine.stats()]);
  showDetails(ui.details, report, stats, state.summary, profile.element);
}

/** GPU times of the step that would decode the next token. */
async function profileStep() {
  if (!state.engine) throw new TabfireError({ code: "page", message: "no model is loaded" });
  return state.engine.profile([0]);
}

function bind() {
  get("composer", HTMLFormElement).addEventListener("submit", (event) => {
    event.preventDefault();
    void ask(ui.prompt.value);
  });
  ui.prompt.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    void ask(ui.prompt.value);
  });
  ui.prompt.addEventListener("input", () => {
    ui.prompt.rows = Math.min(8, ui.prompt.value.split("\n").length);
    refresh();
  });
  ui.stop.addEventListener("click", () => state.engine?.abort());
  ui.model.addEventListener("change", () => void loadModel());
  get("cancel", HTMLButtonElement).addEventListener("click", () => state.loading?.abort());
  get("retry", HTMLButtonElement).addEventListener("click", () => void (state.engine ? (ui.error.hidden = true) : start()));
  ui.newChat.addEventListener("click", () => {
    state.messages = [];
    log.clear();
    refresh();
    ui.prompt.focus();
  });
  ui.detailsButton.addEventListener("click", () => {
    ui.details.hidden = !ui.details.hidden;
    ui.detailsButton.setAttribute("aria-expanded", String(!ui.details.hidden));
    void updateDetails();
  });
  for (const text of STARTERS) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.addEventListener("click", () => void ask(text));
    get("starters", HTMLElement).append(button);
  }
}

/** Look for WebGPU and for models, and load the first or the one that `?model=` names. */
async function start() {
  ui.error.hidden = true;
  const missing = await checkWebGPU();
  if (missing) return showError(missing, "WebGPU is missing");
  try {
    state.models = await listModels();
  } catch (error) {
    return showError(error, "No models");
  }
  if (state.models.length === 0) {
    const hint = "make one: `python -m exporter llama MODEL -o models/NAME`, or run `make demo`";
    return showError(new TabfireError({ code: "no_models", message: "the models folder is empty", hint }), "No models");
  }
  ui.model.replaceChildren(
    ...state.models.map(({ id, name, size_bytes: bytes }) => new Option(`${name} (${megabytes(bytes)})`, id)),
  );
  if (state.models.some(({ id }) => id === query.get("model"))) ui.model.value = query.get("model") ?? "";
  await loadModel();
}

bind();
refresh();
void start();
