"""The ways to run a step give the same bits: replayed by JS or driven from Python, scratch shared
between tensors or not; and no dispatch binds one buffer for reading and for writing.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from exporter import QuantLinear, Sym, ops
from runtime_py.errors import InternalError
from runtime_py.memory import SlotPool
from runtime_py.ops.base import Binding, Caps
from runtime_py.options import SessionOptions
from runtime_py.plan import Plan, _check_hazards, make_plan
from runtime_py.schema import Graph
from tests import gpu
from tests.cases import ramp


class Block(nn.Module):
    """A block with most kinds of kernels: norm, 4-bit linear, rope, attention, gate, residuals."""

    inv_freq: Tensor
    k_cache: Tensor
    v_cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.rand(64), requires_grad=False)
        self.qkv = self._linear(64, 96)
        self.out, self.up, self.down = (
            self._linear(64, 64),
            self._linear(64, 128),
            self._linear(64, 64),
        )
        self.register_buffer("inv_freq", 10000.0 ** (-torch.arange(8) / 8), persistent=False)
        self.register_buffer("k_cache", torch.zeros(1, 64, 1, 16))
        self.register_buffer("v_cache", torch.zeros(1, 64, 1, 16))

    @staticmethod
    def _linear(columns: int, rows: int) -> QuantLinear:
        return QuantLinear.from_float(torch.randn(rows, columns) / 8, None, "q4gsw", 32)

    def forward(self, x: Tensor, pos: int) -> Tensor:
        normed = nn.functional.rms_norm(x, (64,), self.weight, 1e-5)
        mixed = self.qkv(normed).unflatten(-1, (6, 16))
        q, k = (ops.rope(part, self.inv_freq, pos) for part in (mixed[:, :, :4], mixed[:, :, 4:5]))
        y = ops.sdpa_with_kv_cache(q, k, mixed[:, :, 5:], self.k_cache, self.v_cache, pos)
        x = x + self.out(y.flatten(2))
        gate, up = self.up(nn.functional.rms_norm(x, (64,), self.weight, 1e-5)).chunk(2, -1)
        z: Tensor = x + self.down(nn.functional.silu(gate) * up)
        return z


def block() -> pathlib.Path:
    def recipe() -> gpu.Recipe:
        symbols = {"S": Sym(1, 64, at=("x", 1)), "pos": Sym(0, 63, at="pos")}
        inputs = {"x": torch.zeros(1, 3, 64), "pos": 0}
        return Block(), inputs, symbols, [(["+", "S", "pos"], 64)]

    return gpu.bundle("block", recipe)


STEPS = ((20, 0), (1, 20), (1, 21), (5, 22), (1, 27))


def answers(**options: Any) -> tuple[bytes, dict[str, int]]:
    """Return the bytes of every output and of the state at the end, and the memory report."""
    parts = []
    with gpu.opened(block(), options) as session:
        for index, (tokens, at) in enumerate(STEPS):
            x = ramp((1, tokens, 64), 17, 8, 16, index)
            y = session.run({"x": x}, S=tokens, pos=at)["output"]
            assert np.isfinite(y).all()
            assert y.any()
            parts.append(y.tobytes())
        parts += [array.tobytes() for _, array in sorted(session.state().items())]
        return b"".join(parts), session.report()["memory"]


@pytest.mark.gpu
def test_every_way_to_run_gives_the_same_bits() -> None:
    plain, memory = answers()
    assert answers(replay="python")[0] == plain
    alone, memory_alone = answers(scratch_pool=False)
    assert alone == plain
    assert memory["scratch_bytes"] < memory_alone["scratch_bytes"]
    assert memory["scratch_bytes"] < memory["scratch_plain_bytes"]
    assert answers(attention="materialized")[0] != plain, "the control: another route is noticed"


@pytest.mark.gpu
def test_a_dispatch_has_a_time_and_decode_has_its_own_route() -> None:
    with gpu.opened(block()) as session:
        many = session.profile({"x": ramp((1, 20, 64), 17, 8, 16)}, S=20, pos=0)
        one = session.profile({"x": ramp((1, 1, 64), 17, 8, 16)}, S=1, pos=20)
        programs = {tuple(p["ranges"]["S"]): p for p in session.report()["programs"]}
    for times, ranges in ((one, (1, 1)), (many, (2, 64))):
        listed = [d["kernel"] for d in programs[ranges]["dispatches"]]
        assert [time["kernel"] for time in times] == listed
        assert all(time["time_ms"] >= 0 for time in times)
        assert sum(time["time_ms"] for time in times) > 0
    assert "attention_split" in [time["kernel"] for time in one]
    assert "attention_stream" not in [time["kernel"] for time in one]
    assert "attention_stream" in [d["kernel"] for d in programs[2, 64]["dispatches"]]


# -- no GPU needed: the plan itself

CAPS = Caps()


def plan_of(graph: Graph, ranges: dict[str, tuple[int, int]], pool: bool) -> Plan:
    options = dataclasses.asdict(SessionOptions())
    return make_plan(graph, CAPS, options, ranges, SlotPool(reuse=pool))


@pytest.mark.parametrize("pool", [True, False], ids=["pool", "no-pool"])
def test_no_buffer_is_bound_for_reading_and_for_writing_at_once(pool: bool) -> None:
    """An error in WebGPU even where the ranges do not overlap (34 f)."""
    graph = Graph.from_json(gpu.graph(block()))
    for ranges in ({"S": (1, 1)}, {"S": (2, 64)}, {}):
        plan = plan_of(graph, ranges, pool)
        for dispatch in plan.dispatches:
            use: dict[Any, set[str]] = {}
            for binding in dispatch.bindings:
                name = plan.root(binding.value)
                use.setdefault(plan.places.get(name, name), set()).add(binding.access)
            assert all(len(kinds) == 1 for kinds in use.values()), dispatch


def test_the_planner_notices_such_a_dispatch() -> None:
    plan = plan_of(Graph.from_json(gpu.graph(block())), {"S": (1, 1)}, True)
    first = plan.dispatches[0]
    read = first.bindings[0].value
    bad = dataclasses.replace(first, bindings=(*first.bindings, Binding(read, "read_write")))
    with pytest.raises(InternalError, match="bound read and read_write"):
        _check_hazards(dataclasses.replace(plan, dispatches=(bad,)))


class Plus(nn.Module):
    """One kernel, no symbols."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1


@pytest.mark.gpu
def test_a_graph_without_symbols_is_compiled_at_load() -> None:
    folder = gpu.bundle("plus", lambda: (Plus(), {"x": torch.zeros(3)}, {}, ()))
    with gpu.opened(folder) as session:
        before = session.report()
        assert session.run({"x": np.zeros(3, np.float32)})["output"].tolist() == [1, 1, 1]
        after = session.report()
    assert before["pipelines"] == after["pipelines"] == 1
    assert len(before["programs"]) == len(after["programs"]) == 1
