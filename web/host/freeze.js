// Writes down Python's memory after the runtime's imports, for a server to hand out: `node freeze.js ARCHIVE FILE`.
//
// Input:  tabfire.zip. Output: the file of ../snapshot.js, packed. Way of the data: exporter/hosts/snapshot.py runs it.

import { readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

import { freeze } from "../snapshot.js";

const [archive, file] = process.argv.slice(2);
const parts = await freeze(new Uint8Array(readFileSync(archive)).buffer);
writeFileSync(file, gzipSync(Buffer.concat(parts)));
process.exit(0); // Pyodide keeps Node alive
