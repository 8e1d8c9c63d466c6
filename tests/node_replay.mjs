// Runs web/replay.js and web/loop.js in Node over a device that writes down what it is asked for.
//
// Input (stdin, JSON):  {grids: [[x, y, z], ...], serves: [...], wanted, steps}
// Output (stdout, JSON): {step: [...], group: [...], writes, submits, abandoned: [...]}: the dispatches of one step and of
//                        a group of `steps`, in order, each "<pipeline>:<x>x<y>x<z>" or "set <pipeline>", what the group
//                        took, and what happened when a step's words were overwritten while its output was on its way

import { Loop } from "../web/loop.js";
import { Program, record } from "../web/replay.js";

globalThis.GPUMapMode = { READ: 1 };
globalThis.GPUBufferUsage = { MAP_READ: 1, COPY_SRC: 4, COPY_DST: 8 };

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const { grids, serves, wanted, steps } = JSON.parse(Buffer.concat(chunks).toString("utf8"));

const words = new Int32Array([7, ...grids.flat(), wanted]); // a parameter, the grids, the wanted bits
const spec = {
  params: "params",
  paramWords: 1,
  wordCount: words.length,
  pipelines: grids.map((_, i) => `p${i}`),
  groups: grids.map((_, i) => `g${i}`),
  grids: grids.map((_, i) => 1 + 3 * i),
  serves,
  wantedAt: words.length - 1,
};

/** @param {string[]} log */
function encoderOf(log) {
  let current = "";
  const pass = {
    setPipeline: (pipeline) => log.push(`set ${(current = pipeline)}`),
    setBindGroup: () => {},
    dispatchWorkgroups: (x, y, z) => log.push(`${current}:${x}x${y}x${z}`),
    end: () => {},
  };
  const copyBufferToBuffer = (from, at, to) => to === "params" && log.push(`${from} ${at} -> ${to}`);
  return { beginComputePass: () => pass, copyBufferToBuffer, finish: () => "commands" };
}

const step = [];
record(encoderOf(step), spec, words, 0);

const group = [];
let [writes, submits] = [0, 0];
const queue = { writeBuffer: () => writes++, submit: () => submits++ };
const device = { queue, createBuffer: ({ label }) => label, createCommandEncoder: () => encoderOf(group) };
const loop = new Loop({ device, spec }, "token", steps);
for (let i = 0; i < steps; i++) loop.words.set(words, i * words.length);
loop.submit(steps);

/** A step of one output of 4 bytes, whose words then say 8. */
async function abandon() {
  const events = [];
  let mapped = () => {};
  const staging = {
    size: 16,
    mapAsync: (_, at, size) => (events.push(`map ${at}+${size}`), new Promise((resolve) => (mapped = resolve))),
    getMappedRange: (at, size) => (events.push(`take ${at}+${size}`), new ArrayBuffer(size)),
    unmap: () => events.push("unmap"),
  };
  const outputs = [{ buffer: "y", at: 0, bytesAt: 4, bit: 1 }];
  const one = { ...spec, pipelines: [], inputs: [], outputs, staging, wantedAt: 5, wordCount: 6 };
  const maker = { queue, createCommandEncoder: () => encoderOf([]) };
  const program = new Program(maker, one, (ticket) => events.push(`answer ${ticket}`));
  program.words.set([7, 1, 1, 1, 4, 1]);
  program.run(9);
  void program.reading.then(() => events.push("over"));
  program.words[4] = 8;
  mapped();
  await program.reading;
  await new Promise((resolve) => setTimeout(resolve));
  return events;
}

console.log(JSON.stringify({ step, group, writes, submits, abandoned: await abandon() }));
