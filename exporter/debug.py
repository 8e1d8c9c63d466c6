"""Finds the first node whose result on the GPU differs from the numpy reference (`debug` = 5).

Input:  a bundle's folder; of every step its inputs, symbols and the values that a session with
        debug=5 gives back.
Output: a line for every node on stderr; `InternalError` at the first that differs.
Way of the data: `run` -> debug -> runtime_py.reference.

Every value is kept to the step's end, so that slots are not shared and no kernel takes over another
node: a fault that goes away here is one of memory if it also goes with `scratch_pool=False`, and
one of a merged kernel (`report()` names them) if it does not.

    outputs = Comparison(folder).step(inputs, {"S": 3}, outputs)     # the graph's own outputs
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from exporter.hosts.arrays import NUMPY
from runtime_py import reference
from runtime_py.debug import VALUE
from runtime_py.errors import InternalError
from runtime_py.schema import Graph, Node

# Against float64: f32 arithmetic summed up over a model's layers (logits are held to the same), or
# the rounding of the largest elements that an element was computed from.
ABSOLUTE = RELATIVE = 1e-3
OF_PEAK = 1e-5
F16_FACTOR = 10.0  # a cache stored in f16 rounds keys and values to 5e-4


class Comparison:
    """The reference's side of a session: the same graph, constants and buffers, in float64."""

    def __init__(self, folder: pathlib.Path, *, f16_cache: bool = False) -> None:
        text = (folder / "graph.json").read_text(encoding="utf-8")
        self.graph = Graph.from_json(json.loads(text))
        self.constants = {
            name: _constant(folder, self.graph, name) for name in self.graph.constants
        }
        self.factor = F16_FACTOR if f16_cache else 1.0
        self.reset()

    def reset(self) -> None:
        """Put the mutable buffers back."""
        self.buffers = reference.initial_buffers(self.graph, self.constants)

    def step(
        self, inputs: Mapping[str, Any], symbols: Mapping[str, int], found: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the graph's own outputs of `found`; raises `InternalError` at the first node whose
        value in `found` differs from the reference's.
        """

        def compare(node: Node, values: Mapping[str, Any]) -> None:
            for name in node.outputs:
                if VALUE + name in found:
                    self.compare(node, name, found[VALUE + name], values[name])

        reference.run(self.graph, self.constants, self.buffers, inputs, symbols, observe=compare)
        return {name: array for name, array in found.items() if not name.startswith(VALUE)}

    def compare(self, node: Node, name: str, found: Any, wanted: Any) -> None:
        """Tell how far `found` is from `wanted`; raises `InternalError` where it is too far."""
        want = np.asarray(wanted, np.float64)
        got = np.asarray(found, np.float64)
        error = np.abs(got - want)
        peak = float(np.abs(want, where=np.isfinite(want), out=np.zeros_like(want)).max(initial=0))
        allowed = np.maximum(ABSOLUTE + RELATIVE * np.abs(want), OF_PEAK * peak) * self.factor
        wrong = ~((error <= allowed) | (got == want))
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise InternalError(
                f"node {node.name} ({node.op}) differs from the numpy reference: "
                f"{name}{list(at)} is {got[at]:.9g}, expected {want[at]:.9g}; "
                f"{int(wrong.sum())} of {wrong.size} elements differ\n  made by {node.source}",
                hint="debug=4 shows the node's kernel and key, debug=3 its WGSL",
            )
        worst = float(np.nan_to_num(error).max(initial=0))
        print(f"{node.name} ({node.op}): {name} is within {worst:.2g}", file=sys.stderr)


def _constant(folder: pathlib.Path, graph: Graph, name: str) -> Any:
    value, parts = graph.values[name], []
    for part in graph.constants[name].parts:
        with (folder / part.file).open("rb") as file:
            file.seek(part.offset_bytes)
            parts.append(file.read(part.size_bytes))
    return np.frombuffer(b"".join(parts), NUMPY[value.dtype]).reshape(value.shape)
