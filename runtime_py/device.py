"""The GPU, as Python drives it: the only file that imports `js`.

Input:  `navigator.gpu` of whatever host runs Pyodide: a Chrome page or worker, headless Chromium,
Node with Dawn.
Output: buffers, pipelines, bind groups, typed errors. Every creation runs inside an error scope.
Way of the data: `session` and `program` stand on it. Whoever creates a JS proxy here destroys it; a
step makes none.

    device = await Device.request("high-performance")
    buffer = device.buffer("weights", 1024, STORAGE)
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import functools
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import js
import tabfire_ahead
import tabfire_groups
import tabfire_loop
import tabfire_profile
import tabfire_replay
import tabfire_weights
from pyodide.ffi import JsException, JsProxy, create_proxy, to_js

from runtime_py.answers import Answers
from runtime_py.device_facts import MATRICES, read_caps, shader_error, typed
from runtime_py.error_scopes import ErrorScopes
from runtime_py.errors import (
    DeviceLostError,
    WebGPUMissingError,
)
from runtime_py.ops.base import DEFAULT_LIMITS, Caps

COPY_SRC, COPY_DST, MAP_READ, UNIFORM_BIT, STORAGE_BIT, QUERY_RESOLVE = 4, 8, 1, 64, 128, 512
STORAGE = STORAGE_BIT | COPY_SRC | COPY_DST
UNIFORM = UNIFORM_BIT | COPY_DST
STAGING = MAP_READ | COPY_DST
COMPUTE_STAGE = 4
LOSS_S = 0.5  # how long after a rejected promise the news of a lost device may come
WANTED_FEATURES = (
    "shader-f16",
    "subgroups",
    "timestamp-query",
    MATRICES,
)
ANSWERS = Answers()
LINUX_HINT = (
    "use Chrome 113 or later; on Linux start it with "
    "--enable-unsafe-webgpu --enable-features=Vulkan"
)


class Device:
    """A GPU device with its capabilities. `calls` counts the calls into JS that steps made, and
    `waited_ms` the time that they waited for it.
    """

    def __init__(self, adapter: Any, handle: Any, caps: Caps, url: str = "") -> None:
        self.adapter, self.handle, self.caps, self.url = adapter, handle, caps, url
        self.queue = handle.queue
        self.calls = 0
        self.pipelines_ahead = 0
        self.waited_ms = 0.0
        self.lost = ""
        self._told_of_loss = asyncio.Event()
        self.errors = ErrorScopes(handle)
        self._layouts: dict[tuple[tuple[str, ...], bool], tuple[Any, Any]] = {}
        self._on_lost = create_proxy(self._remember_loss)
        handle.lost.then(self._on_lost)

    @staticmethod
    async def request(power_preference: str, url: str = "") -> Device:
        """Return a new device, for the bundle at `url`: one that was made ahead for it, if it fits;
        raises `WebGPUMissingError` where there is none.
        """
        gpu = getattr(js.navigator, "gpu", None) if hasattr(js, "navigator") else None
        if gpu is None:
            raise WebGPUMissingError("this host has no navigator.gpu", hint=LINUX_HINT)
        base = url.rstrip("/")
        adapter = await tabfire_ahead.adapterFor(base, power_preference)
        if adapter is None:
            raise WebGPUMissingError("WebGPU is there, but it offers no adapter", hint=LINUX_HINT)
        features = [name for name in WANTED_FEATURES if adapter.features.has(name)]
        limits = {name: int(getattr(adapter.limits, name)) for name in DEFAULT_LIMITS}
        required = {name: value for name, value in limits.items() if not name.startswith("min")}
        descriptor = _object(requiredFeatures=features, requiredLimits=required)
        handle = await tabfire_ahead.deviceFor(base, adapter, power_preference, descriptor)
        return Device(adapter, handle, read_caps(adapter, features, limits), base)

    def describe(self) -> dict[str, Any]:
        """Return the adapter's description and features as plain data."""
        caps = self.caps
        return {
            "vendor": caps.vendor,
            "architecture": caps.architecture,
            "description": caps.description,
            "features": sorted(caps.features),
            "subgroup_sizes": [caps.subgroup_min, caps.subgroup_max],
            "subgroup_matrix": caps.subgroup_matrix,
            "limits": dict(caps.limits),
        }

    def check_alive(self) -> None:
        """Raise `DeviceLostError` if the device is gone."""
        if self.lost:
            raise DeviceLostError(
                f"the GPU device was lost: {self.lost}", hint="load the model again"
            )

    def buffer(self, label: str, size_bytes: int, usage: int) -> Any:
        """Return a new GPU buffer of at least `size_bytes`, owned by the caller."""
        size = max(16, (size_bytes + 3) // 4 * 4)
        return self.handle.createBuffer(_object(label=label, size=size, usage=usage))

    def layouts(self, accesses: Sequence[str], has_params: bool) -> tuple[Any, Any]:
        """Return `(bind group layout, pipeline layout)` for storage `accesses` and a last
        uniform."""
        signature = (tuple(accesses), has_params)
        if signature not in self._layouts:
            kinds = ["read-only-storage" if a == "read" else "storage" for a in accesses]
            kinds += ["uniform"] if has_params else []
            entries = [
                {"binding": i, "visibility": COMPUTE_STAGE, "buffer": {"type": kind}}
                for i, kind in enumerate(kinds)
            ]
            group = self.handle.createBindGroupLayout(_object(entries=entries))
            pipeline = self.handle.createPipelineLayout(_object(bindGroupLayouts=[group]))
            self._layouts[signature] = (group, pipeline)
        return self._layouts[signature]

    async def pipeline(self, label: str, wgsl: str, accesses: Sequence[str], params: bool) -> Any:
        """Return the compiled pipeline, or the one that was made ahead; raises `ShaderError` with
        the compiler's words and the source."""
        spelled = ",".join([*accesses, *(["uniform"] if params else [])])
        ahead = tabfire_ahead.pipelineFor(self.url, self.handle, label, wgsl, spelled)
        if ahead is not None:
            with contextlib.suppress(JsException):  # compiled once more, to tell what is wrong
                pipeline = await ahead
                self.pipelines_ahead += 1
                return pipeline
        layout = self.layouts(accesses, params)[1]
        module = self.handle.createShaderModule(_object(label=label, code=wgsl))
        try:
            return await self.handle.createComputePipelineAsync(
                _object(
                    label=label, layout=layout, compute={"module": module, "entryPoint": "main"}
                )
            )
        except JsException as error:
            raise await shader_error(label, wgsl, module, error) from error

    def known_texts(self) -> dict[str, str]:
        """Return the WGSL that an earlier load with this runtime rendered, by the spelled key."""
        texts: dict[str, str] = json.loads(tabfire_ahead.knownTexts(self.url))
        return texts

    def groups(
        self, groups: Sequence[tuple[Any, Sequence[tuple[Any, int, int | None]]]]
    ) -> list[Any]:
        """Return bind groups, made in one call: of each its layout and, in binding order,
        `(buffer, offset_bytes, size_bytes or None)`.
        """
        seen: dict[int, int] = {}  # by identity: of a JS object there is one proxy here
        objects: list[Any] = []
        numbers = array.array("d")  # an offset may pass 2^31

        def index(item: Any) -> int:
            if id(item) not in seen:
                seen[id(item)] = len(objects)
                objects.append(item)
            return seen[id(item)]

        for layout, resources in groups:
            numbers.extend((index(layout), len(resources)))
            for buffer, offset, size in resources:
                numbers.extend((index(buffer), offset, -1 if size is None else size))
        made = tabfire_groups.makeGroups(self.handle, _convert(objects), to_js(numbers))
        return list(made)

    def program(self, spec: dict[str, Any]) -> Any:
        """Return a `Program` of web/replay.js."""
        return tabfire_replay.Program.new(self.handle, _object(**spec), _settle())

    def loop(self, program: Any, token: Any, capacity: int) -> Any:
        """Return a `Loop` of web/loop.js over a `Program`."""
        return tabfire_loop.Loop.new(program, token, capacity)

    async def profile(self, program: Any) -> list[float]:
        """Run a step of a `Program` and return the GPU nanoseconds of each dispatch."""
        return [float(ns) for ns in await self.guard(tabfire_profile.profile(program))]

    def write(self, buffer: Any, data: Any) -> None:
        """Write `data` (Python bytes, or a JS typed array that stays outside the Python heap)."""
        if isinstance(data, JsProxy):
            self.queue.writeBuffer(buffer, 0, data)
            return
        padded = bytes(data) + bytes(-len(data) % 4)
        self.queue.writeBuffer(buffer, 0, to_js(memoryview(padded)))

    async def read(self, buffer: Any, size_bytes: int) -> bytes:
        """Return the first `size_bytes` of a buffer, after all work submitted so far."""
        size = (size_bytes + 3) // 4 * 4
        async with self.errors.scope(f"creating a buffer to read {size} bytes"):
            staging = self.buffer("read", size, STAGING)
        encoder = self.handle.createCommandEncoder()
        encoder.copyBufferToBuffer(buffer, 0, staging, 0, size)
        self.queue.submit(to_js([encoder.finish()]))
        try:
            await self.guard(staging.mapAsync(MAP_READ))
            data = js.Uint8Array.new(staging.getMappedRange(0, size)).to_bytes()
        finally:
            staging.destroy()
        return bytes(data[:size_bytes])

    def fill(self, pairs: Sequence[tuple[Any, Any | None]]) -> None:
        """Set every buffer to its initial content: a copy of another buffer, or zeros."""
        encoder = self.handle.createCommandEncoder()
        for buffer, source in pairs:
            if source is None:
                encoder.clearBuffer(buffer)
            else:
                encoder.copyBufferToBuffer(source, 0, buffer, 0, min(buffer.size, source.size))
        self.queue.submit(to_js([encoder.finish()]))

    async def ask(self, start: Any, *arguments: int) -> Any:
        """Return the answer of a JS function that takes a ticket before `arguments`; a failure
        becomes a typed error.
        """
        self.calls += 1
        return await self.guard(ANSWERS.ask(start, *arguments))

    async def guard(self, promise: Any) -> Any:
        """Await a promise of the device; a rejection becomes a typed error."""
        start = now_ms()
        try:
            return await promise
        except JsException as error:
            with contextlib.suppress(TimeoutError):  # a loss is told after what it broke
                await asyncio.wait_for(self._told_of_loss.wait(), LOSS_S)
            self.check_alive()
            raise typed(error) from error
        finally:
            self.waited_ms += now_ms() - start

    async def stream(
        self,
        url: str,
        files: list[dict[str, Any]],
        progress: Callable[[int, int], None] | None,
    ) -> None:
        """Stream shards of the bundle at `url` into buffers; web/weights.js has the form of
        `files`."""
        tell = create_proxy(progress) if progress else None
        try:
            await tabfire_weights.streamWeights(self.handle, url, _convert(files), tell)
        except JsException as error:
            raise typed(error) from error
        finally:
            if tell is not None:
                tell.destroy()

    def destroy(self) -> None:
        """Give the device back; its buffers go with it."""
        self.handle.destroy()

    def _remember_loss(self, info: Any) -> None:
        self.lost = str(info.message or info.reason or "unknown reason")
        self._told_of_loss.set()
        self._on_lost.destroy()


def bundle_reader(url: str) -> Callable[[str], Any]:
    """Return a coroutine function that fetches a file of the bundle at `url` into Python bytes."""
    base = url.rstrip("/")

    async def read(path: str) -> bytes:
        try:
            return bytes((await tabfire_weights.readFile(base, path)).to_bytes())
        except JsException as error:
            raise typed(error) from error

    return read


@functools.cache
def _settle() -> Any:
    """Return `ANSWERS.settle` for JS, made once: it outlives any device that may still answer."""
    return create_proxy(ANSWERS.settle)


def is_js(data: Any) -> bool:
    """True if `data` is a JS object (a typed array handed in from outside)."""
    return isinstance(data, JsProxy)


def now_ms() -> float:
    """Return a monotonic clock in milliseconds: Python's, which costs no call into JS."""
    return 1000 * time.perf_counter()


def _object(**fields: Any) -> Any:
    return _convert(fields)


def _convert(data: Any) -> Any:
    return to_js(data, dict_converter=js.Object.fromEntries, create_pyproxies=False)
