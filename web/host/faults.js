// Breaks the GPU on request, for the tests of what happens then.
//
// Input:  a request of the channel. Output: true if it was `lose_devices`, which destroys every device made so far, or
//         `spoil_buffer`, after which a device refuses the next buffer.
// A device tells of its loss late, as a busy browser does: after the promises that the loss broke.
// Way of the data: web/host/worker.js -> faults, before core.js sees the request.

const TELL_LATE_MS = 50;

/** @type {GPUDevice[]} */
const devices = [];

const adapters = /** @type {any} */ (globalThis.GPUAdapter?.prototype);
if (adapters) {
  const plain = adapters.requestDevice;
  adapters.requestDevice = async function requestDevice(/** @type {any[]} */ ...args) {
    const device = await plain.apply(this, args);
    const told = device.lost.then((/** @type {GPUDeviceLostInfo} */ info) => later(info));
    Object.defineProperty(device, "lost", { value: told });
    devices.push(device);
    return device;
  };
}

let spoils = false;
const buffers = /** @type {any} */ (globalThis.GPUDevice?.prototype);
if (buffers) {
  const plain = buffers.createBuffer;
  buffers.createBuffer = function createBuffer(/** @type {GPUBufferDescriptor} */ descriptor) {
    const usage = spoils ? 3 : descriptor.usage; // mapped for both reading and writing: there is no such buffer
    spoils = false;
    return plain.call(this, { ...descriptor, usage });
  };
}

/** @template T @param {T} value @returns {Promise<T>} */
function later(value) {
  return new Promise((resolve) => setTimeout(resolve, TELL_LATE_MS, value));
}

/** @param {import("../core.js").Request} request */
export function isFault(request) {
  if (request.method === "spoil_buffer") return (spoils = true);
  if (request.method !== "lose_devices") return false;
  for (const device of devices.splice(0)) device.destroy();
  return true;
}
