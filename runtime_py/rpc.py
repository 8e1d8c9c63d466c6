"""Answers the worker's messages: the one door through which a page or a test reaches the runtime.

Input:  a method name, JSON params, `emit` (takes JSON text of an event), `blobs` (JS maps `inputs`,
        `outputs`).
Output: JSON text `{"result": ...}` or `{"error": {code, message, hint}}`; arrays' bytes in
        `blobs.outputs`.
Way of the data: web/core.js -> rpc -> `session` or `engine`.

What is loaded gets a handle, a small integer; every later call names it. Arrays cross as
`{dtype, shape}` in JSON beside their bytes, a JS buffer, so that large outputs need not pass
through the Python heap.

    begin("load", '{"url": "http://localhost:8000/models/smollm2/"}', emit, blobs, reply)
    # reply: '{"result": {"handle": 1, "model": {...}, "adapter": {...}, ...}}'
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from runtime_py import debug
from runtime_py.errors import InputError, InternalError, TabfireError
from runtime_py.profile import by_kernel
from runtime_py.rpc_call import Call, Emit, Loaded, describe, sessions
from runtime_py.tensor import Tensor

_handles = itertools.count(1)
_streams: dict[tuple[Any, Any], Any] = {}  # by the handle and the key of the request


_running: set[asyncio.Task[None]] = set()


def begin(
    method: str, params_json: str, emit: Emit, blobs: Any, reply: Callable[[str], object]
) -> None:
    """Start on one request, and give `reply` the JSON of its reply."""

    async def answer() -> None:
        reply(await handle(method, params_json, emit, blobs))

    at_once: dict[str, Any] = {"eager_start": True}  # not in the loop's next turn; Python 3.14
    task = asyncio.get_running_loop().create_task(answer(), **at_once)
    if not task.done():
        _running.add(task)
        task.add_done_callback(_running.discard)


async def handle(method: str, params_json: str, emit: Emit, blobs: Any) -> str:
    """Return the JSON reply to one request; never raises."""
    try:
        call = Call(json.loads(params_json), emit, blobs)
        debug.WRITE.set(lambda text: call.send("debug", text=text))
        if method not in METHODS:
            raise InputError(f"unknown method {method!r}", hint=f"one of {', '.join(METHODS)}")
        result = await METHODS[method](call)
        return json.dumps({"result": result})
    except TabfireError as error:
        return json.dumps({"error": error.to_dict()})
    except (Exception, asyncio.CancelledError) as error:  # the boundary: all must reach the page
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
    """Open a bundle as an engine, or as a plain session with `kind` = "session"."""
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
    loaded.phases = _phases(loaded.session)
    number = next(_handles)
    sessions[number] = loaded
    return {
        "handle": number,
        **_versions(),
        "load_ms": 1000 * (time.perf_counter() - started),
        "model": dict(loaded.session.bundle.manifest.model),
        "adapter": loaded.session.device.describe(),
        **_language(loaded.engine),
    }


async def close(call: Call) -> dict[str, Any]:
    """Free what a handle holds; harmless when it holds nothing."""
    loaded = sessions.pop(call.params.get("handle", 0), None)
    if loaded is not None:
        (loaded.engine or loaded.session).close()
    return {}


async def stats(call: Call) -> dict[str, Any]:
    """Return versions, the size of Python's memory, and the calls into JS that steps made.

    In a host for tests there is `counts` too, see web/host/counting.js.
    """
    import tabfire_worker

    counts = getattr(tabfire_worker, "counts", None)
    loaded = sessions.get(call.params.get("handle", 0))
    return {
        **_versions(),
        "heap_bytes": tabfire_worker.heap_bytes(),
        "held_peak_bytes": tabfire_worker.held_peak_bytes(),
        "from_snapshot": tabfire_worker.from_snapshot(),
        "loaded": len(sessions),
        "js_calls": loaded.session.device.calls if loaded else 0,
        **({"counts": json.loads(counts())} if counts else {}),
    }


async def report(call: Call) -> dict[str, Any]:
    """Return what the session decided and counted, and when loading did what, as plain data."""
    return {**call.loaded.session.report(), "phases": call.loaded.phases}


async def run(call: Call) -> dict[str, Any]:
    """Run one step; `symbols` by name, inputs and outputs as arrays kept out of Python's heap."""
    call.loaded.forget()
    session, symbols = call.loaded.session, call.symbols
    wanted = call.params.get("outputs")
    outputs = await session.run(call.step_inputs(), outputs=wanted, raw=True, **symbols)
    described = {}
    for port in session.graph.outputs:
        if port.name in outputs:
            described[port.name] = describe(session.values[port.value], symbols)
            call.give(port.name, outputs[port.name])
    return {"arrays": described}


async def reset(call: Call) -> dict[str, Any]:
    """Put the mutable buffers back to their first values."""
    loaded = call.loaded
    if loaded.engine:
        await loaded.engine.reset()
    else:
        loaded.session.reset()
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
    call.loaded.forget()
    call.loaded.session.restore(buffers)
    return {}


async def profile(call: Call) -> dict[str, Any]:
    """Run one step as `run` does, or an engine's over `ids`; return the GPU time of every dispatch,
    in order, and of every kernel.
    """
    if "ids" in call.params:
        times = await call.engine.profile(call.params["ids"], call.params.get("input_pos"))
    else:
        call.loaded.forget()
        times = await call.loaded.session.profile(call.step_inputs(), **call.symbols)
    return {
        "dispatches": [dataclasses.asdict(time) for time in times],
        "kernels": [dataclasses.asdict(kernel) for kernel in by_kernel(times)],
    }


async def measure(call: Call) -> dict[str, Any]:
    """Run one step `repeat` times as `run` does, and return the milliseconds of each."""
    call.loaded.forget()
    session, inputs, times = call.loaded.session, call.step_inputs(), []
    for _ in range(int(call.params.get("repeat", 5))):
        started = time.perf_counter()
        await session.run(inputs, raw=True, **call.symbols)
        times.append(1000 * (time.perf_counter() - started))
    return {"step_ms": times}


async def generate(call: Call) -> dict[str, Any]:
    """Answer `prompt` (text, ids or messages): an event "piece" for every token, then the whole."""
    started = time.perf_counter()
    stream = call.engine.generate(call.params.get("prompt"), **(call.params.get("options") or {}))
    ids, texts, times, last = [], [], [], None
    _streams[call.stream_key] = stream
    try:
        async for piece in stream:
            times.append(1000 * (time.perf_counter() - started))
            ids += piece.ids
            texts.append(piece.text)
            call.send("piece", text=piece.text, ids=list(piece.ids))
            last = piece
    finally:
        _streams.pop(call.stream_key, None)
    return {
        "prompt_ids": list(stream.prompt_ids),
        "ids": ids,
        "text": "".join(texts),
        "finish_reason": last.finish_reason if last else "abort",
        "timings": dataclasses.asdict(last.stats) if last and last.stats else {},
        "token_ms": [after - before for before, after in itertools.pairwise(times)],
    }


async def logits(call: Call) -> dict[str, Any]:
    """Return the logits after each of `ids`, the first of them at `input_pos`, as an array."""
    tensor = await call.engine.logits(call.params["ids"], call.params.get("input_pos", 0))
    call.give("logits", tensor.data)
    return {"arrays": {"logits": {"dtype": tensor.dtype, "shape": list(tensor.shape)}}}


async def abort(call: Call) -> dict[str, Any]:
    """Stop the generation that the caller named by `key`, or else the one that is running.

    Harmless when it is over, or when there is none.
    """
    if call.params.get("key") is not None:
        stream = _streams.get(call.stream_key)
        if stream is not None:
            stream.abort()
    elif call.params.get("handle") in sessions:
        call.engine.abort()
    return {}


METHODS: dict[str, Callable[[Call], Awaitable[dict[str, Any]]]] = {
    method.__name__: method
    for method in (
        *(hello, load, close, stats, report),
        *(run, reset, state, restore, profile, measure),
        *(generate, logits, abort),
    )
}


def _versions() -> dict[str, Any]:
    import tabfire_worker

    return {
        "python": sys.version.split()[0],
        "pyodide": tabfire_worker.pyodide_version,
        "browser": tabfire_worker.user_agent,
        "boot_ms": tabfire_worker.boot_ms,
    }


def _phases(session: Any) -> dict[str, list[float]]:
    import tabfire_worker

    from runtime_py.report import load_phases

    end_ms = 1000 * time.perf_counter()
    shift_ms = float(tabfire_worker.clock_ms()) - end_ms
    return load_phases(session, json.loads(tabfire_worker.phases()), shift_ms, end_ms)


def _language(engine: Any) -> dict[str, Any]:
    """Return what a language model takes, and the sampling options that its bundle recommends."""
    if engine is None:
        return {}
    options = dataclasses.asdict(engine.defaults)
    return {
        "vocabulary": engine.model.vocabulary,
        "context": engine.model.context,
        "defaults": {name: value for name, value in options.items() if value not in (None, ())},
    }
