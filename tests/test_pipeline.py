"""`exporter.export` as a whole: what it writes, what it refuses, and that the module stays as it was."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import exporter
from exporter.golden import read_golden
from runtime_py import __version__
from runtime_py.errors import ExportError, OptionError, UnsupportedOpError
from runtime_py.schema import Graph
from tests import modules

SYMBOLS = {
    "S": exporter.Sym(1, 16, at=[("q", 1), ("k", 1), ("v", 1)]),
    "pos": exporter.Sym(0, 15, at="pos"),
}


def inputs(rows: int) -> dict[str, Tensor]:
    chance = torch.Generator().manual_seed(rows)
    heads = {"q": 6, "k": 2, "v": 2}
    return {name: torch.randn(1, rows, n, 4, generator=chance) for name, n in heads.items()}


def export(folder: pathlib.Path, module: nn.Module | None = None, **options: Any) -> Graph:
    module = module if module is not None else modules.Decoder()
    exporter.export(module, {**inputs(1), "pos": 0}, folder, symbols=SYMBOLS, **options)
    return Graph.from_json(json.loads((folder / "graph.json").read_text()))


def test_golden_steps_are_what_eager_answers_with_its_state_carried(tmp_path: pathlib.Path) -> None:
    module = modules.Decoder()
    module.k += 3.0
    steps = [{"inputs": inputs(s), "symbols": {"pos": p}} for s, p in ((4, 0), (1, 4))]
    again = {**steps[0], "reset": True, "name": "again"}
    export(tmp_path / "b", module, golden_steps=[*steps, again], output_names=["mixed"])
    assert bool((module.k == 3.0).all()), "the user's module keeps its state"
    stored = read_golden(tmp_path / "b")
    assert [s.symbols for s in stored] == [
        {"pos": 0, "S": 4},
        {"pos": 4, "S": 1},
        {"pos": 0, "S": 4},
    ]
    for step in stored[:2]:
        want = module(**step.inputs, pos=step.symbols["pos"])
        assert torch.equal(step.outputs["mixed"], want)
    assert torch.equal(stored[2].outputs["mixed"], stored[0].outputs["mixed"])


def test_the_default_specializations_are_one_row_and_the_rest(tmp_path: pathlib.Path) -> None:
    assert export(tmp_path / "b").specializations == ({"S": (1, 1)}, {"S": (2, 16)})
    chosen = export(tmp_path / "c", specializations=[{"S": (4, 4)}])
    assert chosen.specializations == ({"S": (4, 4)},)
    with pytest.raises(OptionError, match=r"S = 4\.\.99"):
        export(tmp_path / "d", specializations=[{"S": (4, 99)}])


def test_unknown_options_and_bad_golden_steps_write_nothing(tmp_path: pathlib.Path) -> None:
    with pytest.raises(OptionError, match="quantise"):
        export(tmp_path / "b", quantise="q4")
    for step in (
        {"inputs": {"q": inputs(1)["q"]}, "symbols": {"pos": 0}},
        {"inputs": inputs(4), "symbols": {"pos": 14}},
        {"inputs": inputs(4), "symbols": {"S": 3, "pos": 0}},
    ):
        with pytest.raises(ExportError, match="golden step 0"):
            export(tmp_path / "b", golden_steps=[step])
    assert list(tmp_path.iterdir()) == []


def test_an_unsupported_model_writes_nothing(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UnsupportedOpError, match="4 operations"):
        exporter.export(
            modules.Unsupported(),
            (torch.zeros(2, 3), torch.tensor(2.0)),
            tmp_path / "b",
            symbols={"S": exporter.Sym(1, 9, at=("x", 1))},
        )
    assert not (tmp_path / "b").exists()


def test_a_training_module_is_exported_for_inference_and_left_in_training(
    tmp_path: pathlib.Path,
) -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).train()
    manifest = exporter.export(module, (torch.ones(2, 3),), tmp_path / "b", symbols={})
    assert manifest.exporter == {"version": __version__, "torch": torch.__version__}
    assert module.training
    graph = Graph.from_json(json.loads((tmp_path / "b" / "graph.json").read_text()))
    assert [node.op for node in graph.nodes] == ["linear"]


def test_run_is_a_function_even_after_its_module_was_imported() -> None:
    import exporter.run

    assert callable(exporter.run)
