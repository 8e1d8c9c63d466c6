"""One request of the worker, with typed access to what came along with it.

Input:  params parsed from JSON, `emit`, `blobs` (JS maps `inputs` and `outputs`).
Output: a `Call`, the argument of every method of `rpc`.
Way of the data: web/core.js -> rpc -> rpc_call -> `session` or `engine`.

    call.send("piece", text="Paris", ids=[6042])      # an event to whoever asked
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from runtime_py.errors import InputError
from runtime_py.graph import check_step
from runtime_py.schema import Value
from runtime_py.symbols import evaluate

Emit: TypeAlias = "Callable[[str], object]"


@dataclass
class Loaded:
    """A session, and the engine on top of it if the bundle is a language model."""

    session: Any
    engine: Any = None
    phases: dict[str, list[float]] = field(default_factory=dict)

    def forget(self) -> None:
        """Tell the engine, if there is one, that its cache is about to change behind its back."""
        if self.engine is not None:
            self.engine.forget()


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
        if handle not in sessions:
            raise InputError(f"nothing is loaded under handle {handle!r}", hint="call load first")
        return sessions[handle]

    @property
    def engine(self) -> Any:
        engine = self.loaded.engine
        if engine is None:
            raise InputError(
                "this bundle was loaded as a plain session", hint="load it as an engine"
            )
        return engine

    @property
    def stream_key(self) -> tuple[Any, Any]:
        """What tells the stream of a `generate` request from others: its handle and its `key`."""
        return self.params.get("handle"), self.params.get("key")

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
        check_step(graph, self.symbols)
        ports = {port.name: values[port.value] for port in graph.inputs}
        for name, found in self.arrays.items():
            if name in ports:
                check(name, found, describe(ports[name], self.symbols))
        return {name: self.blobs.inputs.get(name) for name in self.arrays}

    def give(self, name: str, data: Any) -> None:
        """Hand an output's bytes to JS: a JS buffer as it is, Python bytes as a copy."""
        if isinstance(data, (bytes, bytearray, memoryview)):
            from pyodide.ffi import to_js

            data = to_js(memoryview(data))
        self.blobs.outputs.set(name, data)


sessions: dict[int, Loaded] = {}


def describe(value: Value, symbols: dict[str, int]) -> dict[str, Any]:
    """Return `{dtype, shape}` of a graph value at these symbol values."""
    return {"dtype": value.dtype, "shape": [evaluate(dim, symbols) for dim in value.shape]}


def check(name: str, found: dict[str, Any], expected: dict[str, Any]) -> None:
    if found != expected:
        raise InputError(
            f"input {name!r} is {found['dtype']} {found['shape']}, "
            f"this step needs {expected['dtype']} {expected['shape']}"
        )
