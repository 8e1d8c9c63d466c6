// Breaks the GPU on request, for the tests of what happens then.
//
// Input:  a request of the channel. Output: true if it was `lose_devices`, which destroys every device made so far.
// Way of the data: web/host/worker.js -> faults, before core.js sees the request.

/** @type {GPUDevice[]} */
const devices = [];

const adapters = /** @type {any} */ (globalThis.GPUAdapter?.prototype);
if (adapters) {
  const plain = adapters.requestDevice;
  adapters.requestDevice = async function requestDevice(/** @type {any[]} */ ...args) {
    const device = await plain.apply(this, args);
    devices.push(device);
    return device;
  };
}

/** @param {import("../core.js").Request} request */
export function isFault(request) {
  if (request.method !== "lose_devices") return false;
  for (const device of devices.splice(0)) device.destroy();
  return true;
}
