/**
 * GPU time of every dispatch of a step: one compute pass each, between two timestamps.
 *
 * A query set holds at most 4096 queries, two a dispatch; a longer program takes several sets, one submission each.
 * Chrome rounds timestamps to 100 us unless it runs with `--enable-webgpu-developer-features`.
 */

/** @typedef {import("./replay.js").Program} Program */

const QUERIES_A_SET = 4096;

/**
 * Run one step and return the nanoseconds of each dispatch.
 * @param {Program} program
 * @returns {Promise<Float64Array>}
 */
export async function profile(program) {
  const { device, spec } = program;
  const times = new Float64Array(spec.pipelines.length);
  program.upload();
  for (let first = 0; first < times.length; first += QUERIES_A_SET / 2) {
    const last = Math.min(times.length, first + QUERIES_A_SET / 2);
    times.set(await timeRange(program, first, last), first);
  }
  program.finish(device.createCommandEncoder());
  await program.read();
  return times;
}

/** @param {Program} program @param {number} first @param {number} last */
async function timeRange(program, first, last) {
  const { device, spec, words } = program;
  const count = 2 * (last - first);
  const querySet = device.createQuerySet({ type: "timestamp", count });
  const resolved = device.createBuffer({
    size: 8 * count,
    usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC,
  });
  const staging = device.createBuffer({
    size: 8 * count,
    usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
  });
  const encoder = device.createCommandEncoder();
  for (let i = first; i < last; i++) {
    const at = 2 * (i - first);
    const pass = encoder.beginComputePass({
      timestampWrites: { querySet, beginningOfPassWriteIndex: at, endOfPassWriteIndex: at + 1 },
    });
    const g = spec.grids[i];
    if (spec.serves[i] & words[spec.wantedAt] && words[g]) {
      pass.setPipeline(spec.pipelines[i]);
      pass.setBindGroup(0, spec.groups[i]);
      pass.dispatchWorkgroups(words[g], words[g + 1], words[g + 2]);
    }
    pass.end();
  }
  encoder.resolveQuerySet(querySet, 0, count, resolved, 0);
  encoder.copyBufferToBuffer(resolved, 0, staging, 0, 8 * count);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const stamps = new BigUint64Array(staging.getMappedRange());
  const times = Float64Array.from({ length: last - first }, (_, i) =>
    Number(stamps[2 * i + 1] - stamps[2 * i]),
  );
  for (const resource of [querySet, resolved, staging]) resource.destroy();
  return times;
}
