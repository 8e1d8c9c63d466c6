"""Prefill, more tokens, decode: the reference's sequences, step by step, in every form of graph.

(a) one graph a step, the caches passed in and out; (b) one graph of one token, its position a
symbolic integer; (c) the caches inside the graph; (d) ONE graph whose S and input_pos are both
symbolic. Every form has a control that must diverge. Symbolic integers are then tested alone.
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import exporter
from exporter import Sym
from runtime_py.errors import InputError
from tests import gpu, oracles
from tests.cases import (
    DYNAMIC_POSITIONS,
    DYNAMIC_REPLAYS,
    REPLAY,
    REPLAY_ROWS,
    RESIZE_STEPS,
    SDPA_ROWS,
    SYMINT,
    FloatArray,
    Replay,
)
from tests.tolerances import CACHE, CUTS, EXACT, SDPA_F16, SDPA_F32, accept, require

pytestmark = pytest.mark.gpu

# Six steps of one token, for a graph whose S is 1.
DECODE = [
    Replay(row.name, row.hq, row.hkv, row.d, row.cmax, (1,) * len(DYNAMIC_POSITIONS))
    for row in (REPLAY[name] for name in DYNAMIC_REPLAYS)
]
every_row = pytest.mark.parametrize("row", REPLAY_ROWS, ids=lambda row: row.name)
every_decode = pytest.mark.parametrize("row", DECODE, ids=lambda row: row.name)


@dataclass(frozen=True)
class Step:
    """One step of the float64 run: its output, and the caches after it."""

    tokens: int
    at: int
    inputs: dict[str, FloatArray]
    want: FloatArray
    caches: dict[str, FloatArray]


def empty(row: Replay) -> dict[str, Any]:
    """Return caches of zeros."""
    shape = (1, row.cmax, row.hkv, row.d)
    return {name: np.zeros(shape, np.float32) for name in ("k_cache", "v_cache")}


def golden(row: Replay) -> list[Step]:
    """Return the float64 run of a sequence, its caches carried from step to step."""
    caches, steps = empty(row), []
    for index, (tokens, at) in enumerate(zip(row.steps, row.positions, strict=True)):
        inputs = row.inputs(index)
        for name in "kv":
            old = caches[f"{name}_cache"]
            caches[f"{name}_cache"] = oracles.update_cache(inputs[name], old, at)
        want = oracles.sdpa(inputs["q"], caches["k_cache"], caches["v_cache"], at)
        steps.append(Step(tokens, at, inputs, want.astype(np.float32), dict(caches)))
    return steps


def check(got: Any, caches: Any, step: Step, label: str) -> None:
    require(got["output"], step.want, SDPA_F32, label)
    for name, array in step.caches.items():
        require(caches[name], array, CACHE, f"{label}: {name}")


def check_divergence(got: Any, step: Step, label: str) -> None:
    """The first step has no history to lose; every later one must differ."""
    assert accept(got["output"], step.want, *SDPA_F32) == (step.at == 0), label


# -- (a) static graphs, the caches passed in and out


@every_row
def test_a_static_graphs(row: Replay) -> None:
    caches = empty(row)
    for index, step in enumerate(golden(row)):
        given: dict[str, Any] = {**step.inputs, **caches}
        example = {name: torch.from_numpy(array) for name, array in given.items()}
        recipe: gpu.Recipe = (gpu.AttendAt(step.at), example, {}, ())
        name = f"replay-{row.name}-{step.tokens}-{step.at}"
        got = exporter.run(gpu.bundle(name, lambda r=recipe: r), [gpu.step(given)])[0]  # type: ignore[misc]
        check(got, got, step, f"{row.name} step {index}: {step.tokens} tokens at {step.at}")
        caches = {name: got[name] for name in caches}


# -- (b) one graph of one token, the position a symbolic integer


def example(row: Replay, *, caches: bool) -> dict[str, Any]:
    """Return the inputs of one token at position 0."""
    named: dict[str, Any] = {k: torch.from_numpy(v) for k, v in row.inputs(0, tokens=1).items()}
    if caches:
        named |= {name: torch.from_numpy(array) for name, array in empty(row).items()}
    return {**named, "input_pos": 0}


SIX = {"input_pos": Sym(0, len(DYNAMIC_POSITIONS) - 1, at="input_pos")}


def dynamic_position(row: Replay) -> pathlib.Path:
    """Return a graph with S = 1, a symbolic position 0..5, the caches passed in and out."""
    name = f"dynamic-{row.name}"
    return gpu.bundle(name, lambda: (gpu.Attend(), example(row, caches=True), SIX, ()))


@every_decode
def test_b_dynamic_position(row: Replay) -> None:
    caches = empty(row)
    with gpu.opened(dynamic_position(row)) as session:
        for step in golden(row):
            got = session.run({**step.inputs, **caches}, input_pos=step.at)
            check(got, got, step, f"{row.name} at {step.at}")
            caches = {name: got[name] for name in caches}


@every_decode
def test_b_control_a_pinned_position_diverges(row: Replay) -> None:
    caches = empty(row)
    with gpu.opened(dynamic_position(row)) as session:
        for step in golden(row):
            got = session.run({**step.inputs, **caches}, input_pos=0)
            check_divergence(got, step, f"{row.name} at {step.at}")
            caches = {name: got[name] for name in caches}


@every_decode
def test_b_the_graph_holds_a_symbolic_integer(row: Replay) -> None:
    graph = gpu.graph(dynamic_position(row))
    assert graph["symbols"] == [{"name": "input_pos", "min": 0, "max": 5}]
    node = next(n for n in graph["nodes"] if n["op"].startswith("sdpa"))
    assert node["attrs"]["input_pos"] == {"expr": "input_pos"}
    assert [port["name"] for port in graph["inputs"]] == ["q", "k", "v", "k_cache", "v_cache"]


# -- (c) the caches inside the graph: the caller passes q, k, v and input_pos


def in_graph(row: Replay) -> pathlib.Path:
    """Return a graph of one token whose caches are mutable buffers."""
    module = gpu.Cached(row.cmax, row.hkv, row.d)
    name = f"in-graph-{row.name}"
    return gpu.bundle(name, lambda: (module, example(row, caches=False), SIX, ()))


@every_decode
def test_c_caches_in_the_graph(row: Replay) -> None:
    graph = gpu.graph(in_graph(row))
    assert [port["name"] for port in graph["inputs"]] == ["q", "k", "v"]
    assert {buffer["value"] for buffer in graph["buffers"]} == {"k_cache", "v_cache"}
    assert graph["constants"] == []
    run = golden(row)
    steps = [gpu.step(s.inputs, state=True, input_pos=s.at) for s in run]
    for step, got in zip(run, exporter.run(in_graph(row), steps), strict=True):
        check(got, got["state"], step, f"{row.name} at {step.at}")


@every_decode
def test_c_control_fresh_caches_diverge(row: Replay) -> None:
    run = golden(row)
    steps = [gpu.step(s.inputs, input_pos=s.at) for s in run]
    for step, got in zip(run, exporter.run(in_graph(row), steps, reset=True), strict=True):
        check_divergence(got, step, f"{row.name} at {step.at}")


# -- (d) ONE graph, S and input_pos both symbolic


def one_graph(row: Replay) -> pathlib.Path:
    return gpu.cached_bundle(row.hq, row.hkv, row.d, row.cmax)


@every_row
def test_d_one_graph_for_every_step(row: Replay) -> None:
    """Then the control in the same session: caches put back before every step."""
    run = golden(row)
    with gpu.opened(one_graph(row)) as session:
        for step in run:
            got = session.run(step.inputs, S=step.tokens, input_pos=step.at)
            label = f"{row.name}: {step.tokens} tokens at {step.at}"
            check(got, session.state(), step, label)
        for step in run:
            session.reset()
            got = session.run(step.inputs, S=step.tokens, input_pos=step.at)
            check_divergence(got, step, f"{row.name}: {step.tokens} tokens at {step.at}, alone")


@every_row
def test_d_the_graph_holds_two_symbolic_integers(row: Replay) -> None:
    graph = gpu.graph(one_graph(row))
    assert {symbol["name"] for symbol in graph["symbols"]} == {"S", "input_pos"}
    assert graph["constraints"] == [{"expr": ["+", "S", "input_pos"], "max": row.cmax}]
    shapes = {value["name"]: value["shape"] for value in graph["values"]}
    assert shapes["q"] == [1, "S", row.hq, row.d]


def test_d_f16_caches() -> None:
    """The sequence of `qwen3_fd` with caches stored in f16: K and V are rounded once, when written."""
    row = REPLAY["qwen3_fd"]
    assert row.kv == "f16"
    history: dict[str, list[FloatArray]] = {"k": [], "v": []}
    with gpu.opened(one_graph(row), {"kv_dtype": "f16"}, gpu.f16_host()) as session:
        for index, (tokens, at) in enumerate(zip(row.steps, row.positions, strict=True)):
            inputs = row.inputs(index)
            for name, parts in history.items():
                parts.append(inputs[name].astype(np.float16).astype(np.float32))
            k, v = (np.concatenate(parts, axis=1) for parts in history.values())
            got = session.run(inputs, S=tokens, input_pos=at)["output"]
            require(got, oracles.sdpa(inputs["q"], k, v, at), SDPA_F16, f"{tokens} at {at}")
            for name, rows in (("k_cache", k), ("v_cache", v)):
                stored = session.state()[name]
                assert stored.dtype == np.float16
                require(stored[:, : at + tokens], rows, EXACT, name)
                assert not stored[:, at + tokens :].any()


def test_d_the_static_rows_that_fit_the_same_graphs() -> None:
    """The prefill rows of the static table, twice each, on the graphs of the sequences."""
    for row in (REPLAY["small"], REPLAY["small_d"]):
        sizes = (row.hq, row.hkv, row.d, row.cmax, 0)
        fits = [c for c in SDPA_ROWS if (c.hq, c.hkv, c.d, c.cmax, c.pos) == sizes]
        assert fits
        for case in fits:
            inputs = {name: array for name, array in case.inputs().items() if name in "qkv"}
            want = oracles.sdpa(inputs["q"], inputs["k"], inputs["v"], 0)
            steps = [gpu.step(inputs, S=case.s, input_pos=0)] * 2
            for got in exporter.run(one_graph(row), steps):
                require(got["output"], want, SDPA_F32, case.name)


def test_d_however_the_tokens_are_cut() -> None:
    """The same 14 tokens in one call, in pieces and one by one; and past the end, refused."""
    row = REPLAY["small"]
    total = sum(row.steps)
    tokens = row.inputs(0, tokens=total)
    answers = []
    with gpu.opened(one_graph(row)) as session:
        for cuts in ((total,), row.steps, (1,) * total, (2, 12), (13, 1), (7, 7)):
            session.reset()
            pieces, at = [], 0
            for count in cuts:
                part = {name: x[:, at : at + count] for name, x in tokens.items()}
                pieces.append(session.run(part, S=count, input_pos=at)["output"])
                at += count
            answers.append(np.concatenate(pieces, axis=1))
            require(answers[-1], answers[0], CUTS, str(cuts))
        with pytest.raises(InputError, match="exceeds 16"):
            session.run({n: x[:, :3] for n, x in tokens.items()}, S=3, input_pos=total)
        assert session.run({n: x[:, :2] for n, x in tokens.items()}, S=2, input_pos=total)
    require(answers[0], oracles.sdpa(tokens["q"], tokens["k"], tokens["v"], 0), SDPA_F32)


# -- symbolic integers


class ReadBack(nn.Module):
    """Gives back the integer it was given, and what it means to a tensor."""

    def forward(self, x: Tensor, n: int) -> tuple[Tensor, Tensor]:
        return x + n, torch.full((1,), n, dtype=torch.int64)


class ReadTensor(nn.Module):
    """Reads its integer from a one-element int64 tensor."""

    def forward(self, x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        number = n.item()
        return x + number, torch.full((1,), number, dtype=torch.int64)


@pytest.mark.parametrize("module", [ReadBack(), ReadTensor()], ids=["int", "int64-tensor"])
def test_an_integer_comes_back(module: nn.Module) -> None:
    start = SYMINT.placeholder
    placeholder: Any = start if isinstance(module, ReadBack) else torch.tensor(start)
    name = f"integer-{type(module).__name__}"
    inputs = {"x": torch.zeros(1), "n": placeholder}
    symbols = {"n": Sym(0, 2**31 - 1, at="n")}
    folder = gpu.bundle(name, lambda: (module, inputs, symbols, ()))
    x = np.zeros(1, np.float32)
    values: list[Any] = [start, SYMINT.set_to, np.int64(SYMINT.from_int64), 2**24, 2**31 - 1]
    steps = [{"inputs": {"x": x}, "symbols": {"n": value}} for value in values]
    for value, got in zip(values, exporter.run(folder, steps), strict=True):
        real, integer = got.values()
        assert integer.tolist() == [int(value)]
        assert real.tolist() == [float(np.float32(int(value)))]
    for beyond in (SYMINT.refused, 2**40, np.int64(2**33), -1, 1.5, True):
        with pytest.raises(InputError):
            exporter.run(folder, [{"inputs": {"x": x}, "symbols": {"n": beyond}}])


class AddTensors(nn.Module):
    """An int64 input that is data, not a symbol."""

    def forward(self, n: Tensor) -> Tensor:
        return n * 1


def test_an_int64_input_is_narrowed_or_refused() -> None:
    inputs = {"n": torch.tensor([3, 4])}
    folder = gpu.bundle("int64-input", lambda: (AddTensors(), inputs, {}, ()))
    got = exporter.run(folder, [{"inputs": {"n": np.array([5, -(2**31)], np.int64)}}])[0]
    assert got["output"].tolist() == [5, -(2**31)]
    for beyond in (2**31, -(2**31) - 1):
        with pytest.raises(InputError, match="int32"):
            exporter.run(folder, [{"inputs": {"n": np.array([5, beyond], np.int64)}}])


def test_parameters_are_computed_again_only_when_a_symbol_changes() -> None:
    """The reference's resize hook: 0 -> 3 runs it once, the same value again does not, 3 -> 8 does."""
    row = REPLAY["small"]
    inputs = row.inputs(1)

    def updates() -> int:
        return sum(int(program["updates"]) for program in session.report()["programs"])

    with gpu.opened(one_graph(row)) as session:
        session.run(inputs, S=1, input_pos=0)
        seen = [updates()]
        for _, position, runs in RESIZE_STEPS:
            session.run(inputs, S=1, input_pos=position)
            seen.append(updates())
            assert seen[-1] - seen[-2] == runs, position
