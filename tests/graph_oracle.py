"""Runs a module eagerly and its exported graph in the numpy interpreter, step after step, and
compares.

Input:  a module, its example inputs and symbols, the symbol values of every step.
Output: the graph as emitted (or fused), for a test to look at; an assertion error where the two
differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from exporter.capture import Captured, capture
from exporter.eager import flatten_outputs
from exporter.emit import emit
from exporter.examples import set_symbols
from exporter.fuse import fuse
from exporter.probe import settle
from exporter.rewrite import Emitted
from exporter.symbolic import Sym
from runtime_py import reference
from runtime_py.schema import Graph
from tests import tolerances

Step = Mapping[str, int]


@dataclass
class Interpreter:
    """A graph with its state, as a session would hold it."""

    emitted: Emitted

    def __post_init__(self) -> None:
        self.constants = {name: t.numpy() for name, t in self.emitted.constants.items()}
        self.reset()

    def reset(self) -> None:
        self.buffers = reference.initial_buffers(self.emitted.graph, self.constants)

    def run(self, inputs: Mapping[str, Any], symbols: Step) -> dict[str, Any]:
        return reference.run(self.emitted.graph, self.constants, self.buffers, inputs, symbols)


def captured_and_settled(
    module: nn.Module,
    inputs: Sequence[Any] | Mapping[str, Any],
    symbols: Mapping[str, Sym],
    constraints: Sequence[tuple[object, int]] = (),
) -> Captured:
    captured = capture(module, inputs, symbols, constraints)
    settle(captured, module)
    return captured


def agree(
    module: nn.Module,
    inputs: Sequence[Any] | Mapping[str, Any],
    symbols: Mapping[str, Sym],
    steps: Sequence[Step],
    constraints: Sequence[tuple[object, int]] = (),
    *,
    fused: bool = False,
    tolerance: tolerances.Pair = tolerances.INTERPRETED_F32,
) -> Emitted:
    """Assert that eager and graph answer alike on every step, state carried along; return the
    graph.
    """
    captured = captured_and_settled(module, inputs, symbols, constraints)
    emitted = fuse(emit(captured)) if fused else emit(captured)
    interpreter = Interpreter(emitted)
    for index, step in enumerate(steps):
        arguments = step_arguments(captured, step, seed=index)
        got = interpreter.run(tensors_only(captured, arguments), step)
        with torch.no_grad():
            want = flatten_outputs(module(**arguments))
        assert list(got) == list(want)
        for name, expected in want.items():
            close(got[name], expected, f"step {index} {dict(step)}, output {name}", tolerance)
    return emitted


def step_arguments(captured: Captured, step: Step, seed: int) -> dict[str, Any]:
    """Return fresh random float inputs of the step's sizes; integers stay those of the example."""
    chance = torch.Generator().manual_seed(seed)
    arguments = set_symbols(captured.arguments, captured.symbols, step)
    return {
        name: torch.randn(value.shape, generator=chance)
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
        for name, value in arguments.items()
    }


def tensors_only(captured: Captured, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.numpy()
        for name, value in arguments.items()
        if isinstance(value, torch.Tensor) and name not in captured.scalars
    }


def close(got: Any, want: Any, where: str, tolerance: tolerances.Pair) -> None:
    expected = want.detach().numpy() if isinstance(want, torch.Tensor) else np.asarray(want)
    tolerances.require(got, expected, tolerance, where)


def op_names(graph: Graph) -> list[str]:
    """Return the operators in order, views (which cost nothing) left out."""
    return [node.op for node in graph.nodes if node.op != "view"]
