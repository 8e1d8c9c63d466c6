// The modules of web/ that Python imports, by the names under which it does.
//
// Way of the data: core.js registers them with Pyodide; snapshot.js finds them again in a snapshot by name.

import * as ahead from "./ahead.js";
import * as groups from "./groups.js";
import * as loop from "./loop.js";
import * as profile from "./profile.js";
import * as replay from "./replay.js";
import * as tokenizers from "./tokenizer.js";
import * as weights from "./weights.js";

/** @type {Record<string, object>} */
export const MODULES = {
  tabfire_ahead: ahead,
  tabfire_groups: groups,
  tabfire_loop: loop,
  tabfire_profile: profile,
  tabfire_replay: replay,
  tabfire_tokenizers: tokenizers,
  tabfire_weights: weights,
};

/** The name of one of them. @param {unknown} module */
export function nameOf(module) {
  const found = Object.entries(MODULES).find(([, known]) => known === module);
  if (!found) throw new Error(`Python holds a JS object that is no module of tabfire: ${String(module)}`);
  return found[0];
}
