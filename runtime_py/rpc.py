"""Answers the worker's messages: the one door through which a page or a test reaches the runtime.

Input:  a method name, JSON params, `emit` (takes JSON text of an event), `blobs` (JS maps `inputs`, `outputs`).
Output: JSON text `{"result": ...}` or `{"error": {code, message, hint}}`; arrays' bytes in `blobs.outputs`.
Way of the data: web/core.js -> rpc -> `session` or `engine`.

What is loaded gets a handle, a small integer; every later call names it. Arrays cross as `{dtype, shape}` in JSON
beside their bytes, a JS buffer, so that large outputs need not pass through the Python heap.

    await handle("load", '{"url": "http://localhost:8000/models/smollm2/"}', emit, blobs)
    # '{"result": {"handle": 1, "model": {...}, "report": {...}}}'
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from runtime_py.errors import InputError, InternalError, TabfireError
from runtime_py.schema import Value
from runtime_py.symbols import evaluate
from runtime_py.tensor import Tensor

Emit: TypeAlias = "Callable[[str], object]"


@dataclass
class Loaded:
    """A session, and the engine on top of it if the bundle is a language model."""

    session: Any
    engine: Any = None


@dataclass(frozen=True)
class Call:
    """One request; `emit` sends an event to whoever asked."""

    params: dict[str, Any]
    emit: Emit
    blobs: Any

    def send(self, kind: str, **fields: Any) -> None:
        self.emit(json.dumps({"type": kind, **fields}))

    @property
    def loaded(self) -> Loaded:
        handle = self.params.get("handle")
        if handle not in _loaded:
            raise InputError(f"nothing is loaded under handle {handle!r}", hint="call load first")
        return _loaded[handle]

    @property
    def engine(self) -> Any:
        engine = self.loaded.engine
        if engine is None:
            raise InputError("this bundle was loaded as a plain session", hint="load it as an engine")
        return engine

    @property
    def symbols(self) -> dict[str, int]:
        return dict(self.params.get("symbols") or {})

    @property
    def arrays(self) -> dict[str, Any]:
        """How the arrays that came along describe themselves: name -> `{dtype, shape}`."""
        return dict(self.params.get("arrays") or {})

    def step_inputs(self) -> dict[str, Any]:
        """Return the arrays as JS buffers, after a check of dtype and shape against the graph."""
        graph, values = self.loaded.session.graph, self.loaded.session.values
        ports = {port.name: values[port.value] for port in graph.inputs}
        for name, found in self.arrays.items():
            if name in ports:
                _check(name, found, _describe(ports[name], self.symbols))
        return {name: self.blobs.inputs.get(name) for name in self.arrays}

    def give(self, name: str, data: Any) -> None:
        """Hand an output's bytes to JS: a JS buffer as it is, Python bytes as a copy."""
        if isinstance(data, (bytes, bytearray, memoryview)):
            from pyodide.ffi import to_js

            data = to_js(memoryview(data))
        self.blobs.outputs.set(name, data)


_loaded: dict[int, Loaded] = {}
_next_handle = 1


async def handle(method: str, params_json: str, emit: Emit, blobs: Any) -> str:
    """Return the JSON reply to one request; never raises."""
    try:
        if method not in METHODS:
            raise InputError(f"unknown method {method!r}", hint=f"one of {', '.join(METHODS)}")
        result = await METHODS[method](Call(json.loads(params_json), emit, blobs))
        return json.dumps({"result": result})
    except TabfireError as error:
        return json.dumps({"error": error.to_dict()})
    except Exception as error:  # the boundary: whatever it is must reach the page, with where it came from
        wrapped = InternalError(f"{type(error).__name__}: {error}", hint="this is a bug in tabfire")
        return json.dumps({"error": {**wrapped.to_dict(), "detail": traceback.format_exc()}})


async def hello(call: Call) -> dict[str, Any]:
    """Return versions and the adapter; raises `WebGPUMissingError` without one."""
    from runtime_py.device import Device

    device = await Device.request("high-performance")
    try:
        return {**_versions(), "adapter": device.describe()}
    finally:
        device.destroy()


async def load(call: Call) -> dict[str, Any]:
    """Open a bundle. `kind` is "session", "engine" or (left out) whatever the bundle is."""
    global _next_handle
    url, options = call.params["url"], call.params.get("options") or {}
    started = time.perf_counter()

    def progress(stage: str, done: int = 0, total: int = 0) -> None:
        call.send("progress", stage=stage, done=done, total=total)

    if call.params.get("kind") == "session":
        from runtime_py.session import Session

        loaded = Loaded(await Session.load(url, options, progress))
    else:
        from runtime_py.engine import Engine

        engine = await Engine.load(url, options, progress)
        loaded = Loaded(engine.session, engine)
    number, _next_handle = _next_handle, _next_handle + 1
    _loaded[number] = loaded
    load_ms = 1000 * (time.perf_counter() - started)
    return {"handle": number, **_versions(), "load_ms": load_ms, "report": loaded.session.report()}


async def run(call: Call) -> dict[str, Any]:
    """Run one step; `symbols` by name, inputs and outputs as arrays that stay outside the Python heap."""
    session, symbols = call.loaded.session, call.symbols
    wanted = call.params.get("outputs")
    outputs = await session.run(call.step_inputs(), outputs=wanted, raw=True, **symbols)
    described = {}
    for port in session.graph.outputs:
        if port.name in outputs:
            described[port.name] = _describe(session.values[port.value], symbols)
            call.give(port.name, outputs[port.name])
    return {"arrays": described}


async def reset(call: Call) -> dict[str, Any]:
    """Put the mutable buffers back to their first values."""
    call.loaded.session.reset()
    return {}


async def state(call: Call) -> dict[str, Any]:
    """Return the mutable buffers as arrays."""
    buffers: dict[str, Tensor] = await call.loaded.session.state()
    for name, tensor in buffers.items():
        call.give(name, tensor.data)
    return {"arrays": {n: {"dtype": t.dtype, "shape": list(t.shape)} for n, t in buffers.items()}}


async def restore(call: Call) -> dict[str, Any]:
    """Write arrays of an earlier `state` back."""
    buffers = {name: call.blobs.inputs.get(name).to_bytes() for name in call.arrays}
    call.loaded.session.restore(buffers)
    return {}


async def report(call: Call) -> dict[str, Any]:
    """Return what the session decided and counted, as plain data."""
    return dict(call.loaded.session.report())


async def abort(call: Call) -> dict[str, Any]:
    """Stop the call that is running; harmless when none is."""
    if call.params.get("handle") in _loaded:
        call.engine.abort()
    return {}


async def close(call: Call) -> dict[str, Any]:
    """Free what a handle holds; harmless when it holds nothing."""
    loaded = _loaded.pop(call.params.get("handle", 0), None)
    if loaded is not None:
        (loaded.engine or loaded.session).close()
    return {}


async def stats(call: Call) -> dict[str, Any]:
    """Return the size of the Python heap (the WebAssembly memory) in bytes, and the versions."""
    import tabfire_worker

    return {**_versions(), "heap_bytes": tabfire_worker.heap_bytes(), "loaded": len(_loaded)}


METHODS: dict[str, Callable[[Call], Awaitable[dict[str, Any]]]] = {
    f.__name__: f for f in (hello, load, run, reset, state, restore, report, abort, close, stats)
}


def _versions() -> dict[str, Any]:
    import tabfire_worker

    return {
        "python": sys.version.split()[0],
        "pyodide": tabfire_worker.pyodide_version,
        "boot_ms": tabfire_worker.boot_ms,
    }


def _describe(value: Value, symbols: dict[str, int]) -> dict[str, Any]:
    """Return `{dtype, shape}` of a graph value at these symbol values."""
    return {"dtype": value.dtype, "shape": [evaluate(dim, symbols) for dim in value.shape]}


def _check(name: str, found: dict[str, Any], expected: dict[str, Any]) -> None:
    if found != expected:
        raise InputError(
            f"input {name!r} is {found['dtype']} {found['shape']}, "
            f"this step needs {expected['dtype']} {expected['shape']}"
        )
