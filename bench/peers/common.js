// What every page of the comparison does: load an engine, ask it the plan's questions, post each answer.
//
// Input:  /versus/plan (see bench/visits.py). Output: messages posted to /versus/result: "load", "answer", "sample" for
//         every generation, "fault" for a case that fails, "done"; or "error".
// Way of the data: bench/versus.py -> plan -> a page -> messages -> bench/table.py.
//
// Only the public API of an engine is timed, from the call to the arrival of a token in the page.

/**
 * @typedef {object} Case
 * @property {number} prompt tokens of the prompt
 * @property {number} tokens tokens to generate
 *
 * @typedef {object} Plan
 * @property {number} visit
 * @property {string} then the page to open afterwards, "" for none
 * @property {number} round
 * @property {string} url of the engine's model
 * @property {object} options of the engine
 * @property {number} context positions of the KV cache
 * @property {Record<string, number[]>} ids of prompts, by the key of a sample, for a page that cannot read text
 * @property {string} text the prompt of the first answer; its ids have the key "text"
 * @property {number} text_tokens tokens of the first answer
 * @property {number} warmups first runs of a case, told apart from the rest
 * @property {number} repeats
 * @property {Case[]} cases
 *
 * `generate` calls `onTokens` with how many tokens there are by now, whenever that grows, and returns what it can tell:
 * `read`, the tokens of the prompt; text, ids, prompt_ids, `reused` tokens of the prompt.
 * It goes on past end tokens where the engine can; a reply that ended early is retried with another prompt.
 * @typedef {object} Opened
 * @property {object} about backend, and what else belongs in the report
 * @property {(prompt: string | number[], count: number, onTokens: (total: number) => void) => Promise<any>} generate
 * @property {() => Promise<number | null>} memory bytes on the GPU, null where the engine cannot say
 * @property {number} [framing] tokens that the engine puts before a text by itself
 */

import { bringUpClock } from "./clock.js";

const ATTEMPTS = 4;
// What engines do in the background after a load (tabfire keeps files and writes a snapshot of Python) is over by then.
const SETTLE_MS = 8000;
const WORDS = (
  "time people water world house school night music paper story money field power light class state north south " +
  "river green black white small large early young great stone glass table chair floor bread fruit horse metal " +
  "cloud storm ocean plant grass forest winter summer spring market street bridge window doctor teacher student " +
  "letter number system machine engine planet animal center"
).split(" ");

/** Run a page. @param {(plan: Plan) => Promise<Opened>} open */
export async function run(open) {
  const plan = /** @type {Plan} */ (await (await fetch("/versus/plan")).json());
  const post = (/** @type {object} */ message) =>
    fetch("/versus/result", {
      method: "POST",
      body: JSON.stringify({ visit: plan.visit, ...message }),
    });
  try {
    const engine = await open(plan);
    await post({ kind: "load", load_ms: performance.now(), ...engine.about });
    await post({ kind: "answer", ...(await answer(engine, plan)) });
    if (plan.cases.length) await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    for (const one of plan.cases) await runCase(engine, one, plan, post);
    await post({ kind: "done", memory_bytes: await engine.memory() });
    if (plan.then) location.replace(plan.then);
  } catch (error) {
    const fault = /** @type {any} */ (error);
    await post({ kind: "error", message: String(fault?.message ?? fault), stack: fault?.stack });
  }
}

/**
 * Run one case as often as the plan says; the next case is tried also where this one fails.
 * @param {Opened} engine @param {Case} one @param {Plan} plan @param {(message: object) => Promise<any>} post
 */
async function runCase(engine, one, plan, post) {
  try {
    for (let i = 0; i < plan.warmups + plan.repeats; i++) {
      await bringUpClock();
      const sample = await measure(engine, one, plan, i);
      await post({ kind: "sample", warm: i >= plan.warmups, ...sample });
    }
  } catch (error) {
    await post({ kind: "fault", message: `prompt of ${one.prompt}: ${error}` });
  }
}

/** @param {Opened} engine @param {Plan} plan */
async function answer(engine, plan) {
  const { arrivals, said } = await timed(engine, plan.ids.text ?? plan.text, plan.text_tokens);
  return { key: "text", first_ms: arrivals[0]?.ms ?? null, ...said };
}

/** Time one generation; another prompt is tried where the reply ended early, or its first token came late. */
async function measure(
  /** @type {Opened} */ engine,
  /** @type {Case} */ { prompt, tokens },
  /** @type {Plan} */ plan,
  /** @type {number} */ run,
) {
  for (let attempt = 0; ; attempt++) {
    const key = `${prompt} ${plan.round} ${run} ${attempt}`;
    const seed = 1000 * plan.round + 10 * run + attempt;
    const text = plan.ids[key] ?? makeText(prompt - (engine.framing ?? 0), seed);
    const { arrivals, said } = await timed(engine, text, tokens);
    const [first, last] = [arrivals[0], arrivals.at(-1)];
    if (said.read !== prompt) engine.framing = (engine.framing ?? 0) + said.read - prompt;
    const whole = said.read === prompt && first?.total === 1 && last?.total === tokens;
    if (!whole && attempt + 1 < ATTEMPTS) continue;
    if (!first || !last) throw new Error(`no token came for a prompt of ${prompt}`);
    return {
      key,
      prompt: said.read,
      tokens: last.total,
      asked: tokens,
      arrivals: arrivals.length,
      first_ms: first.total === 1 ? first.ms : null,
      token_ms: last.total > first.total ? (last.ms - first.ms) / (last.total - first.total) : null,
      reused: said.reused ?? 0,
      prompt_ids: said.prompt_ids ?? [],
    };
  }
}

/**
 * Call the engine and note when tokens come.
 * @param {Opened} engine @param {string | number[]} prompt @param {number} count
 */
async function timed(engine, prompt, count) {
  /** @type {{total: number, ms: number}[]} */
  const arrivals = [];
  const started = performance.now();
  const said = await engine.generate(prompt, count, (total) => {
    if (total > (arrivals.at(-1)?.total ?? 0)) {
      arrivals.push({ total, ms: performance.now() - started });
    }
  });
  return { arrivals, said };
}

/**
 * Return a text without a pattern, the same for the same seed, that byte-pair tokenizers read as one token a word.
 * The next seed's text begins with another word, so that no engine finds it in its cache.
 * @param {number} count @param {number} seed
 */
export function makeText(count, seed) {
  let state = Math.imul(seed + 1, 0x9e3779b1) >>> 0 || 1;
  const words = Array.from({ length: count }, () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return WORDS[(state >>> 0) % WORDS.length];
  });
  return [WORDS[seed % WORDS.length], ...words.slice(1)].join(" ");
}
