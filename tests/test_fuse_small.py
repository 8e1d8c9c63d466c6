"""Fusions that are a few nodes each, on graphs written by hand: the meaning stays, nodes go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from exporter.fuse import apply, cancel_permutes, drop_expands, merge_views
from exporter.fuse_linear import add_residual
from exporter.rewrite import Emitted
from runtime_py.schema import Constant, Graph, Node, Port, Symbol, Value
from tests import tolerances
from tests.graph_oracle import Interpreter, op_names


def small(nodes: list[Node], shapes: dict[str, tuple[Any, ...]], out: str) -> Emitted:
    """Return a graph from x and y to `out`; constants are what `shapes` calls c..."""
    constants = {
        n: torch.randn([int(d) for d in s]) for n, s in shapes.items() if n.startswith("c")
    }
    graph = Graph(
        symbols=(Symbol("S", 1, 9),),
        constraints=(),
        values={name: Value(name, "f32", shape) for name, shape in shapes.items()},
        constants={name: Constant(name, ()) for name in constants},
        buffers={},
        nodes=tuple(nodes),
        inputs=tuple(Port(name, name) for name in ("x", "y") if name in shapes),
        outputs=(Port("out", out),),
    )
    return Emitted(graph, constants)


def run_small(emitted: Emitted, rows: int) -> Any:
    inputs = {
        port.name: np.arange(np.prod(shape)).reshape(shape) * 1.0
        for port in emitted.graph.inputs
        for shape in [
            [rows if d == "S" else int(str(d)) for d in emitted.graph.values[port.value].shape]
        ]
    }
    return Interpreter(emitted).run(inputs, {"S": rows})["out"]


def test_expand_before_a_broadcasting_operator_is_dropped() -> None:
    nodes = [
        Node("e", "expand", ("y",), ("e",)),
        Node("o", "mul", ("x", "e"), ("o",)),
    ]
    before = small(nodes, {"x": ("S", 4), "y": (1, 4), "e": ("S", 4), "o": ("S", 4)}, "o")
    after = apply(drop_expands, before)
    assert op_names(after.graph) == ["mul"]
    np.testing.assert_array_equal(run_small(after, 3), run_small(before, 3))


def test_expand_that_makes_the_shape_stays() -> None:
    nodes = [
        Node("e", "expand", ("y",), ("e",)),
        Node("o", "mul", ("e", None), ("o",), {"scalar": 2.0}),
    ]
    before = small(nodes, {"y": (1, 4), "e": ("S", 4), "o": ("S", 4)}, "o")
    assert op_names(apply(drop_expands, before).graph) == ["expand", "mul"]


@pytest.mark.parametrize(
    ("second", "left"), [((1, 0, 2), ["neg"]), ((0, 2, 1), ["permute", "neg"])]
)
def test_permutes_cancel_or_merge(second: tuple[int, ...], left: list[str]) -> None:
    shape: tuple[Any, ...] = ("S", 3, 4)
    once = (3, "S", 4)
    twice = tuple(once[d] for d in second)
    nodes = [
        Node("p", "permute", ("x",), ("p",), {"dims": (1, 0, 2)}),
        Node("q", "permute", ("p",), ("q",), {"dims": second}),
        Node("o", "neg", ("q",), ("o",)),
    ]
    before = small(nodes, {"x": shape, "p": once, "q": twice, "o": twice}, "o")
    after = apply(cancel_permutes, before)
    assert op_names(after.graph) == left
    np.testing.assert_array_equal(run_small(after, 2), run_small(before, 2))


def test_views_merge_and_vanish() -> None:
    nodes = [
        Node("v", "view", ("x",), ("v",)),
        Node("w", "view", ("v",), ("w",)),
        Node("o", "neg", ("w",), ("o",)),
    ]
    before = small(nodes, {"x": ("S", 4), "v": (1, "S", 4), "w": ("S", 4), "o": ("S", 4)}, "o")
    after = apply(merge_views, before)
    assert [n.op for n in after.graph.nodes] == ["neg"]
    np.testing.assert_array_equal(run_small(after, 2), run_small(before, 2))


def test_two_products_in_one_sum_fuse_once() -> None:
    nodes = [
        Node("a", "linear", ("x", "c1"), ("a",)),
        Node("b", "linear", ("x", "c2"), ("b",)),
        Node("o", "add", ("a", "b"), ("o",)),
    ]
    shapes = {
        "x": ("S", 4),
        "c1": (4, 4),
        "c2": (4, 4),
        "a": ("S", 4),
        "b": ("S", 4),
        "o": ("S", 4),
    }
    before = small(nodes, shapes, "o")
    after = apply(add_residual, before)
    assert op_names(after.graph) == ["linear", "linear"]
    tolerances.require(run_small(after, 3), run_small(before, 3), tolerances.FUSED_F64)
