"""Exports small modules once per test process and runs them in a real host, by the public calls.

Input:  a module, example inputs, symbols. Output: a folder with the bundle; outputs of steps.
Way of the data: `exporter.export` -> gpu -> `exporter.run`, or an `Opened` session where a test
must see an output before it makes the next input.

    folder = gpu.bundle("norm", lambda: (Norm(), {"x": torch.zeros(1, 3, 8)}, rows("x", 16), ()))
    with gpu.opened(folder) as session:
        y = session.run({"x": x}, S=3)["output"]
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy
import numpy.typing
import pytest
import torch
from torch import Tensor, nn

import exporter
from exporter import ops
from exporter.hosts import Host, get_host
from runtime_py.errors import HostError
from tests.cases import ramp

HOST = "chromium"
# Names the host that must run the tests of f16 storage; without it, any host that can.
F16_HOST_VARIABLE = "TABFIRE_F16_HOST"
Array: TypeAlias = "numpy.typing.NDArray[Any]"
Recipe: TypeAlias = (
    "tuple[nn.Module, Mapping[str, Any], Mapping[str, exporter.Sym], Sequence[tuple[object, int]]]"
)

_bundles: dict[str, pathlib.Path] = {}


@functools.cache
def _root() -> pathlib.Path:
    folder = tempfile.TemporaryDirectory(prefix="tabfire-bundles-")
    atexit.register(folder.cleanup)
    return pathlib.Path(folder.name)


def bundle(name: str, recipe: Callable[[], Recipe]) -> pathlib.Path:
    """Return the folder of bundle `name`, exported by the first call of this process."""
    if name not in _bundles:
        module, inputs, symbols, constraints = recipe()
        folder = _root() / name
        exporter.export(module, inputs, folder, symbols=symbols, constraints=constraints)
        _bundles[name] = folder
    return _bundles[name]


def graph(folder: pathlib.Path) -> dict[str, Any]:
    """Return graph.json of a bundle."""
    data: dict[str, Any] = json.loads((folder / "graph.json").read_text(encoding="utf-8"))
    return data


def step(inputs: Mapping[str, Any], *, state: bool = False, **symbols: int) -> dict[str, Any]:
    """Return a step for `exporter.run`; tensors become arrays."""
    return {"inputs": arrays(inputs), "symbols": symbols, "state": state}


def arrays(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return `inputs` with tensors as numpy arrays."""
    return {k: v.detach().numpy() if isinstance(v, Tensor) else v for k, v in inputs.items()}


@dataclass(frozen=True)
class Opened:
    """A loaded session; `run` raises what the runtime raises and leaves the session usable."""

    host: Host
    handle: int

    def run(self, inputs: Mapping[str, Any], **symbols: int) -> dict[str, Array]:
        """Return the outputs of one step."""
        params = {"handle": self.handle, "symbols": symbols}
        return self.host.call("run", params, arrays(inputs))[1]

    def state(self) -> dict[str, Array]:
        """Return the mutable buffers."""
        return self.host.call("state", {"handle": self.handle})[1]

    def reset(self) -> None:
        """Put the mutable buffers back."""
        self.host.call("reset", {"handle": self.handle})

    def report(self) -> dict[str, Any]:
        """Return what runs and why."""
        return self.host.call("report", {"handle": self.handle})[0]

    def profile(self, inputs: Mapping[str, Any], **symbols: int) -> list[dict[str, Any]]:
        """Return node, kernel and GPU time of every dispatch of one step."""
        params = {"handle": self.handle, "symbols": symbols}
        times: list[dict[str, Any]] = self.host.call("profile", params, arrays(inputs))[0][
            "dispatches"
        ]
        return times


@contextlib.contextmanager
def opened(
    folder: pathlib.Path, options: Mapping[str, Any] | None = None, host: str = HOST
) -> Iterator[Opened]:
    """Load a bundle as a plain session and free it afterwards."""
    machine = get_host(host)
    load = {"url": machine.mount(folder), "options": dict(options or {}), "kind": "session"}
    loaded, _ = machine.call("load", load)
    with machine.loaded(loaded["handle"]):
        yield Opened(machine, loaded["handle"])


@functools.cache
def features(host: str = HOST) -> frozenset[str]:
    """Return the features of the host's adapter."""
    return frozenset(get_host(host).call("hello")[0]["adapter"]["features"])


@functools.cache
def _f16_host() -> tuple[str | None, str]:
    """Return the first host whose adapter has shader-f16, and why the others were passed over."""
    named = os.environ.get(F16_HOST_VARIABLE)
    reasons = []
    for host in (named,) if named else (HOST, "node"):
        try:
            if "shader-f16" in features(host):
                return host, ""
            reasons.append(f"{host} has no shader-f16")
        except HostError as error:
            reasons.append(f"{host}: {error.message.splitlines()[0]}")
    return None, "; ".join(reasons)


def f16_host() -> str:
    """Return a host with shader-f16; without one the test fails if $TABFIRE_F16_HOST demands it,
    and is counted with the reason otherwise.
    """
    host, reason = _f16_host()
    if host is None and os.environ.get(F16_HOST_VARIABLE):
        pytest.fail(f"${F16_HOST_VARIABLE} demands shader-f16: {reason}")
    if host is None:
        pytest.skip(f"no f16 arithmetic here: {reason}; install lavapipe with .ci/lavapipe")
    return host


class Attend(nn.Module):
    """Attention over caches that the caller passes in and gets back; `input_pos` is an argument."""

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, input_pos: int
    ) -> Tensor:
        y: Tensor = ops.sdpa_with_kv_cache(q, k, v, k_cache, v_cache, input_pos)
        return y


class AttendAt(nn.Module):
    """The same with a position that the graph holds as a number."""

    def __init__(self, input_pos: int) -> None:
        super().__init__()
        self.input_pos = input_pos

    def forward(self, q: Tensor, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        y: Tensor = ops.sdpa_with_kv_cache(q, k, v, k_cache, v_cache, self.input_pos)
        return y


class Cached(nn.Module):
    """Attention whose caches are mutable buffers of the graph."""

    k_cache: Tensor
    v_cache: Tensor

    def __init__(self, context: int, kv_heads: int, head_dim: int) -> None:
        super().__init__()
        self.register_buffer("k_cache", torch.zeros(1, context, kv_heads, head_dim))
        self.register_buffer("v_cache", torch.zeros(1, context, kv_heads, head_dim))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, input_pos: int) -> Tensor:
        y: Tensor = ops.sdpa_with_kv_cache(q, k, v, self.k_cache, self.v_cache, input_pos)
        return y


def cached_bundle(heads: int, kv_heads: int, head_dim: int, context: int) -> pathlib.Path:
    """Return ONE graph with S and input_pos symbolic over caches in the graph."""

    def recipe() -> Recipe:
        q, kv = torch.zeros(1, 2, heads, head_dim), torch.zeros(1, 2, kv_heads, head_dim)
        symbols = {
            "S": exporter.Sym(1, context, at=[("q", 1), ("k", 1), ("v", 1)]),
            "input_pos": exporter.Sym(0, context - 1, at="input_pos"),
        }
        inputs = {"q": q, "k": kv, "v": kv, "input_pos": 2}
        limits = [(["+", "S", "input_pos"], context)]
        return Cached(context, kv_heads, head_dim), inputs, symbols, limits

    return bundle(f"cached-{heads}-{kv_heads}-{head_dim}-{context}", recipe)


class Batch(nn.Module):
    """Many small cases in one graph: `function(*inputs)` returns a tuple of as many results."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(
        self,
        x0: Tensor,
        x1: Tensor | None = None,
        x2: Tensor | None = None,
        x3: Tensor | None = None,
        x4: Tensor | None = None,
        x5: Tensor | None = None,
        x6: Tensor | None = None,
        x7: Tensor | None = None,
        x8: Tensor | None = None,
        x9: Tensor | None = None,
        x10: Tensor | None = None,
        x11: Tensor | None = None,
    ) -> Any:
        given = (x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11)
        return self.function(*(x for x in given if x is not None))


def run_batch(
    name: str,
    function: Callable[..., Any],
    inputs: Sequence[Tensor],
    options: Mapping[str, Any] | None = None,
    host: str = HOST,
) -> list[Array]:
    """Return the results of `function(*inputs)` as the host computed them."""
    named = {f"x{i}": tensor for i, tensor in enumerate(inputs)}
    folder = bundle(name, lambda: (Batch(function), named, {}, ()))
    outputs = exporter.run(folder, [step(named)], host=host, options=options)[0]
    return list(outputs.values())


EPS = 1e-6


def tensor(*shape: int, mod: int = 17, off: int = 8, den: float = 16, step: int = 0) -> Tensor:
    """Return the reference's ramp as a tensor."""
    return torch.from_numpy(ramp(shape, mod, off, den, step))


class Norm(nn.Module):
    """RMS norm of `width` columns."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(tensor(width, mod=11, off=-3, den=8), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.rms_norm(x, self.weight.shape, self.weight, EPS)
