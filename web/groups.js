// The bind groups of a program, made in one call: hundreds, each of which would cost Python several.
//
// Input:  layouts and buffers, and a flat list of numbers that says which belong together. Output: GPUBindGroups.
// Way of the data: runtime_py/program.py -> device.py -> groups -> the lists that replay.js goes through.

/**
 * @param {GPUDevice} device
 * @param {any[]} objects layouts and buffers
 * @param {Float64Array} numbers of each group: index of its layout, count; then of each resource index, offset, size or -1
 */
export function makeGroups(device, objects, numbers) {
  const groups = [];
  for (let at = 0; at < numbers.length; ) {
    const layout = objects[numbers[at]];
    const entries = Array.from({ length: numbers[at + 1] }, (_, binding) => {
      const [index, offset, size] = numbers.subarray(at + 2 + 3 * binding, at + 5 + 3 * binding);
      return { binding, resource: { buffer: objects[index], offset, ...(size >= 0 && { size }) } };
    });
    groups.push(device.createBindGroup({ layout, entries }));
    at += 2 + 3 * entries.length;
  }
  return groups;
}
