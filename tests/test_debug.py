"""What `debug` and $TABFIRE_DEBUG tell, level by level, and that level 5 finds a wrong node."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pytest
import torch

import exporter
from exporter.debug import Comparison
from exporter.headless import generate
from exporter.hosts import handler
from exporter.hosts.chromium import ChromiumHost
from exporter.hosts.host import debug_option
from exporter.verify import verify
from runtime_py import debug
from runtime_py.debug import VALUE, Debug
from runtime_py.errors import InternalError, OptionError
from runtime_py.memory import SlotPool
from runtime_py.ops.base import Caps
from runtime_py.plan import make_plan
from runtime_py.schema import Graph
from tests import damage, modules

X = np.arange(8, dtype=np.float32).reshape(1, 2, 4)
W = np.array([1, 2, 3, 4], np.float32)
STEP: dict[str, Any] = {"inputs": {"x": X}, "symbols": {"S": 2}}


@pytest.fixture
def graph(counter: pathlib.Path) -> Graph:
    return Graph.from_json(json.loads((counter / "graph.json").read_text()))


@pytest.mark.parametrize(
    ("level", "told"),
    [(0, []), (1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 3, 4]), (5, [1])],
)
def test_levels_add_up_and_the_comparison_stands_alone(level: int, told: list[int]) -> None:
    assert [each for each in range(1, 6) if Debug(level).wants(each)] == told


def test_lines_go_where_write_points() -> None:
    heard: list[str] = []
    token = debug.WRITE.set(heard.append)
    try:
        Debug(1).tell(1, lambda: "one")
        Debug(1).tell(2, lambda: pytest.fail("made for nobody"))
    finally:
        debug.WRITE.reset(token)
    assert heard == ["one"]


def test_graph_and_plan_are_told_line_by_line(graph: Graph) -> None:
    told = debug.graph_lines(graph)
    assert "\n  y [1, S, 4] = add(x, w) {}" in told
    assert "\n  acc in place = copy(sum, acc) {}" in told
    plan = make_plan(graph, Caps(), {}, {"S": (1, 1)}, SlotPool())
    lines = debug.plan_lines(plan).splitlines()
    assert lines[0] == "plan for S=1..1:"
    assert [line for line in lines if line.startswith("  add: binary")]


def test_every_computed_value_becomes_an_output(graph: Graph) -> None:
    names = [port.name for port in debug.with_every_value(graph).outputs]
    assert names == ["y", f"{VALUE}y", f"{VALUE}sum"]


def test_the_variable_is_a_number_up_to_5() -> None:
    assert debug_option({}) == {}
    assert debug_option({"TABFIRE_DEBUG": "3"}) == {"debug": 3}
    for text in ("6", "-1", "all"):
        with pytest.raises(OptionError, match="TABFIRE_DEBUG"):
            debug_option({"TABFIRE_DEBUG": text})


def test_a_comparison_follows_the_state_and_stops_at_the_first_wrong_node(
    counter: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compared = Comparison(counter)
    for times in (1, 2):
        found = {"y": X + W, f"{VALUE}y": X + W, f"{VALUE}sum": times * W}
        assert list(compared.step({"x": X}, {"S": 2}, found)) == ["y"]
    assert "count (add): sum is within 0" in capsys.readouterr().err
    compared.reset()
    for bad in (X + W + 0.01, np.full_like(X, np.nan)):
        compared.reset()
        with pytest.raises(InternalError, match=r"node add \(add\) .*\n*.*y\[0, 0, 0\]"):
            compared.step({"x": X}, {"S": 2}, {f"{VALUE}y": bad, f"{VALUE}sum": 9 * W})
    with pytest.raises(InternalError, match="node count"):
        compared.step({"x": X}, {"S": 2}, {f"{VALUE}y": X + W, f"{VALUE}sum": 9 * W})


@pytest.mark.gpu
def test_the_lines_of_a_session_reach_stderr(
    counter: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exporter.run(counter, [STEP], options={"debug": 4})
    told = capsys.readouterr().err
    for words in (
        *("graph: 3 nodes, 1 constants, 1 buffers", "memory:", "step S=2: ", "ms in all"),
        *("kernel binary(", "fn main(", "y [1, S, 4] = add(x, w)", "plan for S=1..2:"),
    ):
        assert words in told, words
    exporter.run(counter, [STEP], options={"debug": 1})
    told = capsys.readouterr().err
    assert "step S=2: " in told
    assert "fn main(" not in told


@pytest.mark.gpu
def test_level_5_passes_a_right_graph(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Attention over a cache, several steps, by the variable, as a person would."""
    decoder = modules.Decoder()
    inputs = [np.random.default_rng(i).normal(size=(1, 3, h, 4)) for i, h in enumerate((6, 2, 2))]
    given = {n: torch.from_numpy(x).float() for n, x in zip("qkv", inputs, strict=True)}
    golden = [{"inputs": given, "symbols": {"S": 3, "pos": at}} for at in (0, 3)]
    exporter.export(
        decoder,
        {**given, "pos": 0},
        tmp_path / "m",
        symbols={
            "S": exporter.Sym(1, 16, at=[("q", 1), ("k", 1), ("v", 1)]),
            "pos": exporter.Sym(0, 15, at="pos"),
        },
        constraints=[(["+", "S", "pos"], 16)],
        golden_steps=golden,
    )
    monkeypatch.setenv("TABFIRE_DEBUG", "5")
    assert all(verdict.passed for verdict in verify(tmp_path / "m"))
    assert capsys.readouterr().err.count("(sdpa_with_kv_cache)") == 2


@pytest.mark.gpu
def test_an_engine_says_where_level_5_runs(toys: pathlib.Path) -> None:
    with pytest.raises(OptionError, match="numpy") as caught:
        generate(toys / "first", {"prompt": "L"}, options={"debug": 5})
    assert "python -m exporter verify" in caught.value.hint


@pytest.mark.gpu
def test_level_5_names_a_kernel_that_computes_wrong(
    host: ChromiumHost, counter: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = damage.spoil_archive("wgsl/binary.wgsl", '"add": "+"', '"add": "-"')
    monkeypatch.setattr(handler, "build_archive", lambda: archive)
    loaded = host.load(counter, kind="session", options={"debug": 5})
    asked = {"handle": loaded["handle"], "symbols": {"S": 2}}
    _, found = host.call("run", asked, {"x": X})
    with pytest.raises(InternalError, match=r"node add \(add\) differs"):
        Comparison(counter).step({"x": X}, {"S": 2}, found)
