// Starts the page's engine; whatever goes wrong, also in reading its files, is posted.
//
// Input:  `?engine=` names a module of this folder that exports `open(plan)`. Output: see common.js.

import { run } from "./common.js";

const engine = new URLSearchParams(location.search).get("engine");
await run(async (plan) => (await import(`./${engine}.js`)).open(plan));
