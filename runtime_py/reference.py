"""A numpy interpreter of the graph: slow, plain, one method an operator. The oracle for debugging
and for tests.

Input:  a graph, constants and buffers as numpy arrays, inputs, symbol values.
Output: the graph's outputs; buffers are changed in place, as a session's are.
Way of the data: beside `plan` and `program`; needs numpy, which is imported only when something
runs.

Numbers are computed in `dtype` (float64 tells rounding from wrong). f16 and f32 values both become
`dtype`; i32 is int64, u32 is uint32 (truth values 0 and 1, or packed words).

    outputs = run(graph, constants, buffers, {"tokens": ids}, {"S": 3, "input_pos": 0, "L": 1})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runtime_py import symbols
from runtime_py.errors import InputError, UnsupportedOpError
from runtime_py.reference_models import REFERENCE, Context
from runtime_py.schema import Graph, Node

__all__ = ["Context", "initial_buffers", "run", "run_node"]

Observer = Callable[[Node, Mapping[str, Any]], None]


def run(
    graph: Graph,
    constants: Mapping[str, Any],
    buffers: dict[str, Any],
    inputs: Mapping[str, Any],
    symbol_values: Mapping[str, int],
    *,
    dtype: str = "float64",
    observe: Observer | None = None,
) -> dict[str, Any]:
    """Return output port -> array. `observe(node, values)` is called after every node, for
    step-by-step checks.

    `buffers` holds every mutable buffer (see `initial_buffers`) and is updated. Raises `InputError`
    on missing or misshapen inputs, `UnsupportedOpError` on an operator that has no method here.
    """
    values: dict[str, Any] = {
        name: _load(graph, name, array, dtype) for name, array in constants.items()
    }
    for port in graph.inputs:
        if port.name not in inputs:
            raise InputError(
                f"input {port.name!r} is missing", hint=f"expected {[p.name for p in graph.inputs]}"
            )
        values[port.value] = _load(graph, port.value, inputs[port.name], dtype)
        _check_shape(graph, port.value, values[port.value], symbol_values)
    for name in graph.buffers:
        values[name] = _load(graph, name, buffers[name], dtype)
    context = Context(graph, dict(symbol_values), values, dtype)
    for node in graph.nodes:
        run_node(context, node)
        if observe is not None:
            observe(node, values)
    for name in graph.buffers:
        buffers[name] = values[name]
    return {port.name: values[port.value] for port in graph.outputs}


def run_node(context: Context, node: Node) -> None:
    """Run one node: read its inputs from `context.values`, write its outputs there, mutate its
    buffers.
    """
    method = REFERENCE.get(node.op)
    if method is None:
        raise UnsupportedOpError(f"the numpy reference has no {node.op!r} (node {node.name})")
    args = [None if name is None else context.values[name] for name in node.inputs]
    import numpy as np

    with np.errstate(all="ignore"):  # infinities and NaN are results here, not accidents
        result = method(context, node, *args)
    results = result if isinstance(result, tuple) else (result,)
    for name, array in zip(node.outputs, results, strict=False):
        _check_shape(context.graph, name, array, context.symbols)
        context.values[name] = array


def initial_buffers(graph: Graph, constants: Mapping[str, Any]) -> dict[str, Any]:
    """Return every mutable buffer with its initial content: its constant, or zeros."""
    import numpy as np

    result = {}
    for name, buffer in graph.buffers.items():
        value = graph.values[name]
        if buffer.init is not None:
            result[name] = np.array(constants[buffer.init])
        else:
            shape = [
                symbols.evaluate(d, {s.name: s.max for s in graph.symbols}) for d in value.shape
            ]
            kind = {"f32": "float32", "f16": "float16", "i32": "int32", "u32": "uint32"}[
                value.dtype
            ]
            result[name] = np.zeros(shape, kind)
    return result


def _load(graph: Graph, name: str, array: Any, dtype: str) -> Any:
    import numpy as np

    kind = {"f32": dtype, "f16": dtype, "i32": "int64", "u32": "uint32"}[graph.values[name].dtype]
    array = np.asarray(array)
    if kind == "uint32" and array.dtype == np.int32:
        return array.view(np.uint32)  # packed words: the same bits
    return array.astype(kind)


def _check_shape(graph: Graph, name: str, array: Any, values: Mapping[str, int]) -> None:
    want = tuple(symbols.evaluate(dim, values) for dim in graph.values[name].shape)
    if tuple(array.shape) != want:
        raise InputError(
            f"value {name!r} has shape {list(array.shape)}, declared "
            f"{symbols.show_shape(graph.values[name].shape)} = {list(want)}"
        )
