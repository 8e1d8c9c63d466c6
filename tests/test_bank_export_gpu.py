"""Faults that others have reported about exported graphs, ruled out on a GPU: modules of `modules`,
several calls in one session, each against eager PyTorch.

Numbers in names are those of the faults' list: frozen sizes (1), positions from tensors (2), buffers
outside the state dict (3), last copies (4), first contents (5), writes through views (6), floors (7),
sizes that change from call to call (8), a window shorter than the prompt (9).
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import exporter
from exporter import Sym, ops
from exporter.golden import read_golden
from runtime_py.errors import ExportError, InputError
from tests import gpu, modules
from tests.cases import SHAPE_CHANGES, SLIDING_PROMPT
from tests.tolerances import EXACT, SDPA_F32, Pair, require

pytestmark = pytest.mark.gpu

POS = Sym(0, 15, at="pos")
ROOM = ((["+", "S", "pos"], 16),)
ATTENTION = {"S": Sym(1, 16, at=[("q", 1), ("k", 1), ("v", 1)]), "pos": POS}


@dataclass(frozen=True)
class Case:
    """A module, what it was exported with, and the steps that it then answers."""

    module: nn.Module
    inputs: Mapping[str, Any]
    symbols: Mapping[str, Sym]
    steps: Sequence[Mapping[str, int]]
    constraints: Sequence[tuple[object, int]] = ()
    pair: Pair = SDPA_F32

    def step(self, index: int) -> dict[str, Any]:
        """Return step `index`: random inputs of the sizes that its symbols say."""
        chance = torch.Generator().manual_seed(index)
        values, inputs = self.steps[index], {}
        bound = {place: name for name, sym in self.symbols.items() for place in sym.places}
        for name, example in self.inputs.items():
            if isinstance(example, Tensor) and name not in bound:
                shape = [values[bound[name, d]] if (name, d) in bound else n
                         for d, n in enumerate(example.shape)]  # fmt: skip
                inputs[name] = torch.randn(shape, generator=chance)
        return {"inputs": inputs, "symbols": values}


def qkv(rows: int = 1, heads: int = 6) -> dict[str, Any]:
    kv = torch.zeros(1, rows, 2, 4)
    return {"q": torch.zeros(1, rows, heads, 4), "k": kv, "v": kv, "pos": 0}


def at(*pairs: tuple[int, int]) -> list[dict[str, int]]:
    return [{"S": rows, "pos": position} for rows, position in pairs]


def running(lengths: Sequence[int]) -> list[dict[str, int]]:
    """Return steps of these lengths one after the other."""
    return at(*((n, sum(lengths[:i])) for i, n in enumerate(lengths)))


class Windowed(nn.Module):
    """A sliding window over a cache that holds more than the window."""

    k_cache: Tensor
    v_cache: Tensor

    def __init__(self, window: int, context: int) -> None:
        super().__init__()
        self.window = window
        self.register_buffer("k_cache", torch.zeros(1, context, 2, 4))
        self.register_buffer("v_cache", torch.zeros(1, context, 2, 4))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, pos: int) -> Tensor:
        y: Tensor = ops.sdpa_with_kv_cache(
            q, k, v, self.k_cache, self.v_cache, pos, window=self.window
        )
        return y


def windowed() -> Case:
    window, context, prompt = SLIDING_PROMPT
    symbols = {
        "S": Sym(1, context, at=[("q", 1), ("k", 1), ("v", 1)]),
        "pos": Sym(0, context - 1, at="pos"),
    }
    limits = ((["+", "S", "pos"], context),)
    return Case(Windowed(window, context), qkv(), symbols, running((prompt, 1, 1, 3, 1)), limits)


READERS = {"S": Sym(1, 16, at=[("q", 1), ("k", 1)]), "pos": POS}
CASES: dict[str, Case] = {
    "1-example-of-one-row": Case(
        modules.Decoder(), qkv(1), ATTENTION, at((1, 0), (2, 1), (7, 3), (16, 0)), ROOM
    ),
    "2-position-from-a-tensor": Case(
        modules.ItemPosition(),
        {"x": torch.ones(1, 3, 8), "where": torch.tensor([5])},
        {"S": Sym(1, 16, at=("x", 1)), "pos": Sym(0, 15, at="where")},
        at((3, 0), (2, 5), (1, 15), (3, 0)),
    ),
    "3-outside-the-state-dict": Case(
        modules.NonPersistent(), {"x": torch.zeros(4)}, {}, [{}] * 3, pair=EXACT
    ),
    "4-copy-last": Case(modules.CopyLast(True), {"x": torch.zeros(3)}, {}, [{}] * 3, pair=EXACT),
    "4-copy-then-one": Case(
        modules.CopyLast(False), {"x": torch.zeros(3)}, {}, [{}] * 3, pair=EXACT
    ),
    "5-counter": Case(modules.Counter(), {}, {}, [{}] * 3, pair=EXACT),
    "6-write-through-a-view": Case(modules.ViewWrite(), {"x": torch.zeros(3)}, {}, [{}] * 4),
    "6-buffers-change-places": Case(modules.Swap(), {}, {}, [{}] * 3, pair=EXACT),
    "7-floors": Case(
        modules.FloorArithmetic(),
        {"x": torch.zeros(3), "pos": 0, "by": 3},
        {"pos": POS, "by": Sym(3, 9, at="by")},
        [{"pos": 0, "by": 3}, {"pos": 15, "by": 9}, {"pos": 2, "by": 4}, {"pos": 1, "by": 3}],
    ),
    **{
        f"8-sizes-{'-'.join(map(str, order))}": Case(
            modules.Decoder(context=32),
            qkv(1),
            {
                "S": Sym(1, 32, at=[("q", 1), ("k", 1), ("v", 1)]),
                "pos": Sym(0, 31, at="pos"),
            },
            running(order),
            ((["+", "S", "pos"], 32),),
        )
        for order in SHAPE_CHANGES
    },
    "9-prompt-past-the-window": windowed(),
    "late-readers": Case(
        modules.LateReaders(),
        {
            "q": torch.zeros(1, 1, 4, 4),
            "k": torch.zeros(1, 1, 2, 4),
            "pos": 0,
            "given": torch.zeros(1, 16, 2, 4),
        },
        READERS,
        at((5, 0), (1, 5), (1, 6), (9, 7)),
        ROOM,
    ),
}


def exported(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Export a case with eager's answers beside it."""
    case = CASES[name]
    golden = [case.step(index) for index in range(len(case.steps))]
    exporter.export(
        case.module, case.inputs, folder / name,
        symbols=case.symbols, constraints=case.constraints, golden_steps=golden,
    )  # fmt: skip
    return folder / name


@pytest.mark.parametrize("name", CASES)
def test_every_call_answers_as_eager_does(name: str, tmp_path: pathlib.Path) -> None:
    folder = exported(name, tmp_path)
    golden = read_golden(folder)
    steps = [{"inputs": gpu.arrays(s.inputs), "symbols": s.symbols} for s in golden]
    # twice in one host: a second session starts from the same first content
    for got in (exporter.run(folder, steps), exporter.run(folder, steps[:1])):
        for index, (step, outputs) in enumerate(zip(golden, got, strict=False)):
            assert list(outputs) == list(step.outputs)
            for port, want in step.outputs.items():
                require(outputs[port], want, CASES[name].pair, f"call {index}, {port}")


def test_1_a_branch_on_a_size_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    symbols = {"S": Sym(1, 16, at=("x", 1)), "pos": POS}
    with pytest.raises(ExportError, match="S="):
        exporter.export(
            modules.Branching("rows > 3"), (torch.ones(1, 1, 8), 0), tmp_path / "b", symbols=symbols
        )
    assert not (tmp_path / "b").exists()


def test_1_and_6_no_extent_is_frozen_and_no_state_is_a_weight(tmp_path: pathlib.Path) -> None:
    graph = gpu.graph(exported("1-example-of-one-row", tmp_path))
    shapes = {value["name"]: value["shape"] for value in graph["values"]}
    assert shapes["q"] == [1, "S", 6, 4]
    assert {buffer["value"] for buffer in graph["buffers"]} == {"k", "v"}
    graph = gpu.graph(exported("6-write-through-a-view", tmp_path))
    assert graph["buffers"] == [{"value": "k", "init": None}]
    assert graph["constants"] == []


def test_3_zeros_plus_ones_is_ones(tmp_path: pathlib.Path) -> None:
    steps = [gpu.step({"x": torch.zeros(4)})]
    got = exporter.run(exported("3-outside-the-state-dict", tmp_path), steps)[0]
    assert next(iter(got.values())).tolist() == [1, 1, 1, 1]


def test_4_the_copied_content_is_the_state(tmp_path: pathlib.Path) -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    for name in ("4-copy-last", "4-copy-then-one"):
        got = exporter.run(exported(name, tmp_path), [gpu.step({"x": x}, state=True)])[0]
        assert got["state"]["buf"].tolist() == [1, 2, 3]


def test_5_counts_from_its_first_content_again_after_reset(tmp_path: pathlib.Path) -> None:
    folder = exported("5-counter", tmp_path)
    with gpu.opened(folder) as session:
        assert [session.run({})["output"].item() for _ in range(3)] == [6, 7, 8]
        session.reset()
        assert session.run({})["output"].item() == 6
    counts = [
        step["output"].item() for step in exporter.run(folder, [gpu.step({})] * 3, reset=True)
    ]
    assert counts == [6, 6, 6]


def test_7_floors_like_python_and_refuses_a_zero_divisor(tmp_path: pathlib.Path) -> None:
    x = torch.ones(3)
    folder = exported("7-floors", tmp_path)
    with gpu.opened(folder) as session:
        assert session.run({"x": x}, pos=0, by=3)["output_0"].tolist() == [-2, -2, -2]
        for outside in (2, 1):
            with pytest.raises(InputError, match="by"):
                session.run({"x": x}, pos=1, by=outside)
    with pytest.raises(ExportError, match="by=2"):
        exporter.export(
            modules.FloorArithmetic(), (x, 0, 3), tmp_path / "zero",
            symbols={"pos": POS, "by": Sym(2, 9, at="by")},
        )  # fmt: skip
