// Runs web/tokenizer.js in Node for tests/test_tokenizer_js.py.
//
// Input (stdin, JSON):  {tokenizer, texts, lookup, decode, repeats: [[unit, [n, ...]], ...]}
// Output (stdout, JSON): {ids, later, tokens, decoded, costs, size, has_vocab}

import { create } from "../web/tokenizer.js";

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const job = JSON.parse(Buffer.concat(chunks).toString("utf8"));

const tokenizer = create(JSON.stringify(job.tokenizer));
const ids = (job.texts ?? []).map((text) => [...tokenizer.encode(text, true)]);
const later = (job.texts ?? []).map((text) => [...tokenizer.encode(text, false)]);

/** The least time of this process, in ms, so that a busy machine counts little; and the pairs looked up. */
function cost(text) {
  const stringify = JSON.stringify; // the library looks pairs up under their JSON
  let lookups = 0;
  JSON.stringify = (value) => (lookups++, stringify(value));
  tokenizer.encode(text, true);
  JSON.stringify = stringify;
  const runs = [1, 2, 3].map(() => {
    const start = process.cpuUsage();
    tokenizer.encode(text, true);
    return process.cpuUsage(start).user / 1000;
  });
  return { lookups, ms: Math.min(...runs) };
}

const costs = (job.repeats ?? []).map(([unit, counts]) => counts.map((n) => cost(unit.repeat(n))));
const outline = JSON.parse(tokenizer.outline());
process.stdout.write(
  JSON.stringify({
    ids,
    later,
    costs,
    decoded: (job.decode ?? []).map((list) => tokenizer.decode(list.join(","))),
    tokens: (job.lookup ?? []).map((id) => tokenizer.idToToken(id)),
    size: outline.size,
    has_vocab: "vocab" in outline.model,
  }),
);
