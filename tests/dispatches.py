"""Runs dispatches on a page's own device: kernels alone, without Pyodide, in sizes that no device asks for.

Input:  dispatches of `tests.lowering`, arrays by name, the symbols' values. Output: one array.
Way of the data: `Single.dispatches` -> dispatches -> numbers for an oracle.

    runner = Runner(page)
    y = runner.run(one.dispatches(), {"q": q, "k": k, "v": v}, {"S": 17, "pos": 3}, "y", q.shape)
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from playwright.sync_api import Page

from runtime_py.kernels import KernelLibrary
from runtime_py.ops.base import Binding, Dispatch
from runtime_py.symbols import evaluate

LIBRARY = KernelLibrary()
FORMATS = {"u32": "<I", "i32": "<i", "f32": "<f"}
SETUP = """async () => {
  const adapter = await navigator.gpu.requestAdapter();
  const name = "maxComputeWorkgroupStorageSize";
  const requiredLimits = { [name]: adapter.limits[name] };
  const requiredFeatures = ["subgroups"].filter((feature) => adapter.features.has(feature));
  window.device = await adapter.requestDevice({ requiredFeatures, requiredLimits });
  window.pipelines = new Map();
  return adapter.limits[name];
}"""
RUN = """async ({ arrays, output, bytes, dispatches }) => {
  const { device, pipelines } = window;
  const decode = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const buffers = { [output]: device.createBuffer({ size: bytes, usage }) };
  for (const [name, text] of Object.entries(arrays)) {
    const data = decode(text);
    buffers[name] = device.createBuffer({ size: data.byteLength, usage });
    device.queue.writeBuffer(buffers[name], 0, data);
  }
  device.pushErrorScope("validation");
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  for (const { code, bindings, params, grid } of dispatches) {
    if (!pipelines.has(code)) {
      const compute = { module: device.createShaderModule({ code }) };
      pipelines.set(code, await device.createComputePipelineAsync({ layout: "auto", compute }));
    }
    const data = decode(params);
    const uniform = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
    const fields = device.createBuffer({ size: data.byteLength, usage: uniform });
    device.queue.writeBuffer(fields, 0, data);
    const windows = bindings.map(({ value, offset, size }) => ({ buffer: buffers[value], offset, size }));
    const bound = [...windows, { buffer: fields }];
    const entries = bound.map((resource, binding) => ({ binding, resource }));
    const layout = pipelines.get(code).getBindGroupLayout(0);
    pass.setPipeline(pipelines.get(code));
    pass.setBindGroup(0, device.createBindGroup({ layout, entries }));
    pass.dispatchWorkgroups(...grid);
  }
  pass.end();
  const result = device.createBuffer({
    size: bytes, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
  });
  encoder.copyBufferToBuffer(buffers[output], 0, result, 0, bytes);
  device.queue.submit([encoder.finish()]);
  const error = await device.popErrorScope();
  if (error) throw new Error(error.message);
  await result.mapAsync(GPUMapMode.READ);
  const found = new Uint8Array(result.getMappedRange());
  let text = "";
  for (let at = 0; at < bytes; at += 32768) {
    text += String.fromCharCode(...found.subarray(at, at + 32768));
  }
  for (const buffer of [...Object.values(buffers), result]) buffer.destroy();
  return btoa(text);
}"""


class Runner:
    """A device of a page, with the greatest workgroup memory that its adapter has."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.workgroup_bytes: int = page.evaluate(SETUP)

    def run(
        self,
        dispatches: Sequence[Dispatch],
        arrays: Mapping[str, npt.NDArray[Any]],
        symbols: Mapping[str, int],
        output: str,
        shape: Sequence[int],
        change: Callable[[str], str] = lambda text: text,
    ) -> npt.NDArray[np.float32]:
        """Return `output`, f32 of `shape`, after all dispatches; `change` alters each WGSL text."""
        found = self.page.evaluate(
            RUN,
            {
                "arrays": {name: _text(array.tobytes()) for name, array in arrays.items()},
                "output": output,
                "bytes": 4 * int(np.prod(shape)),
                "dispatches": [_plain(d, symbols, change) for d in dispatches],
            },
        )
        return np.frombuffer(base64.b64decode(found), np.float32).reshape(shape)


def _plain(
    dispatch: Dispatch, symbols: Mapping[str, int], change: Callable[[str], str]
) -> dict[str, object]:
    fields = b""
    for p in dispatch.params:
        value = p.value if isinstance(p.value, float) else evaluate(p.value, symbols)
        fields += struct.pack(FORMATS[p.kind], value)
    return {
        "code": change(LIBRARY.render(dispatch.key)),
        "bindings": [_window(binding) for binding in dispatch.bindings],
        "params": _text(fields + bytes(-len(fields) % 16)),
        "grid": [evaluate(side, symbols) for side in dispatch.grid],
    }


def _window(binding: Binding) -> dict[str, object]:
    """Return a buffer's name and which part of it is bound; without a size, all from the offset on."""
    size = {} if binding.size_bytes is None else {"size": binding.size_bytes}
    return {"value": binding.value, "offset": binding.offset_bytes, **size}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
