"""Check that a graph means something before any GPU work: definitions, order, shapes, ranges,
sizes.

Input:  a `schema.Graph` as read, the operator registry, the sizes of the bundle's files.
Output: nothing, or a `BadBundleError` / `UnsupportedOpError` that names the faulty place.
Way of the data: `bundle` -> graph -> `plan`. The exporter runs the same checks before it writes.

    check_graph(graph, registry, {"weights-00001.bin": 1048576})
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from runtime_py import symbols
from runtime_py.errors import BadBundleError, InputError, UnsupportedOpError
from runtime_py.ops.base import OpDef
from runtime_py.schema import ALIGNMENT_BYTES, DTYPE_BYTES, Graph, Node, Value
from runtime_py.symbols import Expr, Shape

PORT_NAME = re.compile(r"[\w.-]+")
MAX_BYTES = 2**31 - 1  # element indices and byte offsets are 32-bit in WGSL


def check_graph(graph: Graph, registry: Mapping[str, OpDef], files: Mapping[str, int]) -> None:
    """Raise `BadBundleError` or `UnsupportedOpError` unless every rule of docs/FORMAT.md holds."""
    _check_symbols(graph)
    _check_values(graph)
    _check_constants(graph, files)
    _check_definitions(graph)
    _check_ops(graph, registry)
    _check_shapes(graph, registry)


def value_bytes(value: Value, extent: int) -> int:
    """Return the bytes of `extent` elements of a value, rounded up to 4 as WebGPU copies demand."""
    return (extent * DTYPE_BYTES[value.dtype] + 3) // 4 * 4


def sample_points(graph: Graph) -> list[dict[str, int]]:
    """Return symbol assignments at the corners and inside of the ranges, enough to tell shapes
    apart."""
    low = {s.name: s.min for s in graph.symbols}
    high = {s.name: s.max for s in graph.symbols}
    inside = {
        s.name: s.min + (s.max - s.min) * (2 * i + 3) // (2 * i + 7)
        for i, s in enumerate(graph.symbols)
    }
    near = {s.name: min(s.max, s.min + 2 * i + 1) for i, s in enumerate(graph.symbols)}
    return [low, high, inside, near]


def same_shape(graph: Graph, a: Shape, b: Shape) -> bool:
    """True if two shapes agree on rank and, at every sample point, on extents."""
    if len(a) != len(b):
        return False
    return all(
        symbols.evaluate(x, point) == symbols.evaluate(y, point)
        for point in sample_points(graph)
        for x, y in zip(a, b, strict=True)
    )


def constrained_bounds(
    graph: Graph, expr: Expr, ranges: Mapping[str, tuple[int, int]]
) -> tuple[int, int]:
    """Return the interval of `expr` over `ranges`, cut by a constraint on the very same
    expression."""
    low, high = symbols.bounds(expr, ranges)
    for constraint in graph.constraints:
        if constraint.expr == expr:
            high = min(high, constraint.max)
    return low, high


def check_step(graph: Graph, values: Mapping[str, int]) -> None:
    """Raise `InputError` unless a step's symbol values are complete, in range and within
    constraints."""
    unknown = sorted(set(values) - set(graph.ranges))
    if unknown:
        raise InputError(f"unknown symbols {unknown}", hint=f"the graph has {sorted(graph.ranges)}")
    for symbol in graph.symbols:
        if symbol.name not in values:
            raise InputError(f"symbol {symbol.name!r} has no value", hint=f"pass {symbol.name}=...")
        value = values[symbol.name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(f"symbol {symbol.name} = {value!r}, expected an integer")
        if not symbol.min <= value <= symbol.max:
            raise InputError(
                f"symbol {symbol.name} = {value} is outside its range {symbol.min}..{symbol.max}"
            )
    for constraint in graph.constraints:
        total = symbols.evaluate(constraint.expr, values)
        if total > constraint.max:
            raise InputError(
                f"{symbols.show(constraint.expr)} = {total} exceeds {constraint.max}",
                hint="the step does not fit what the model was exported for",
            )


def _check_symbols(graph: Graph) -> None:
    seen: set[str] = set()
    for symbol in graph.symbols:
        if symbol.name in seen:
            raise BadBundleError(f"symbol {symbol.name!r} is declared twice")
        seen.add(symbol.name)
        if not 0 <= symbol.min <= symbol.max <= symbols.INT32_MAX:
            raise BadBundleError(f"symbol {symbol.name!r} has the range {symbol.min}..{symbol.max}")
    for constraint in graph.constraints:
        symbols.bounds(constraint.expr, graph.ranges)
    for special in graph.specializations:
        for name, (low, high) in special.items():
            if name not in graph.ranges:
                raise BadBundleError(f"specialization names the unknown symbol {name!r}")
            least, most = graph.ranges[name]
            if not least <= low <= high <= most:
                raise BadBundleError(
                    f"specialization {name} = {low}..{high} leaves {least}..{most}"
                )


def _check_values(graph: Graph) -> None:
    for value in graph.values.values():
        for dim in value.shape:
            low, _ = constrained_bounds(graph, dim, graph.ranges)
            if isinstance(dim, int) and low < 0:
                raise BadBundleError(f"value {value.name!r} has the extent {dim}")
        if all(isinstance(dim, int) for dim in value.shape):
            extent = symbols.evaluate(symbols.product(value.shape), {}) if value.shape else 1
            _check_bytes(value, extent)


def _check_bytes(value: Value, extent: int) -> None:
    if extent * DTYPE_BYTES[value.dtype] > MAX_BYTES:
        raise BadBundleError(
            f"value {value.name!r} {symbols.show_shape(value.shape)} {value.dtype} has "
            f"{extent * DTYPE_BYTES[value.dtype]} bytes, over the 32-bit limit of {MAX_BYTES}"
        )


def _check_constants(graph: Graph, files: Mapping[str, int]) -> None:
    for name, constant in graph.constants.items():
        value = _value(graph, name, "constant")
        if not all(isinstance(dim, int) for dim in value.shape):
            raise BadBundleError(f"constant {name!r} has a symbolic shape")
        extent = symbols.evaluate(symbols.product(value.shape), {})
        want, have = extent * DTYPE_BYTES[value.dtype], sum(p.size_bytes for p in constant.parts)
        if want != have:
            raise BadBundleError(f"constant {name!r} needs {want} bytes, its parts hold {have}")
        for part in constant.parts:
            if part.file not in files:
                raise BadBundleError(f"constant {name!r} lies in the unknown file {part.file!r}")
            if part.offset_bytes % ALIGNMENT_BYTES or part.offset_bytes < 0 or part.size_bytes < 0:
                raise BadBundleError(
                    f"constant {name!r} starts at {part.offset_bytes}, not aligned"
                )
            if part.offset_bytes + part.size_bytes > files[part.file]:
                raise BadBundleError(f"constant {name!r} ends past the end of {part.file!r}")


def _check_definitions(graph: Graph) -> None:
    defined: dict[str, str] = {}
    produced = {name for node in graph.nodes for name in node.outputs}
    for name, what in _roots(graph):
        _value(graph, name, what)
        _define(defined, name, what)
    for node in graph.nodes:
        for read in node.inputs:
            if read is not None and read not in defined:
                why = "a cycle" if read in produced else "never defined"
                raise BadBundleError(f"node {node.name!r} reads {read!r} before it exists: {why}")
        for name in node.mutates:
            if name not in graph.buffers or name not in node.inputs:
                raise BadBundleError(
                    f"node {node.name!r} writes {name!r}, no buffer among its inputs"
                )
        for name in node.outputs:
            _value(graph, name, f"output of node {node.name!r}")
            _define(defined, name, f"node {node.name!r}")
    for port in (*graph.inputs, *graph.outputs):
        if not PORT_NAME.fullmatch(port.name):
            raise BadBundleError(
                f"{port.name!r} is no name for an input or output: use letters, digits and . _ -"
            )
    for port in graph.outputs:
        if port.value not in defined:
            raise BadBundleError(
                f"graph output {port.name!r} is {port.value!r}, which is never defined"
            )


def _roots(graph: Graph) -> Iterator[tuple[str, str]]:
    for port in graph.inputs:
        yield port.value, f"graph input {port.name!r}"
    for name in graph.constants:
        yield name, "constant"
    for name, buffer in graph.buffers.items():
        yield name, "buffer"
        if buffer.init is None:
            continue
        if buffer.init not in graph.constants:
            raise BadBundleError(
                f"buffer {name!r} starts from {buffer.init!r}, which is no constant"
            )
        a, b = _value(graph, name, "buffer"), _value(graph, buffer.init, "constant")
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            raise BadBundleError(
                f"buffer {name!r} and its initial value {buffer.init!r} differ in shape"
            )


def _define(defined: dict[str, str], name: str, by: str) -> None:
    if name in defined:
        raise BadBundleError(f"value {name!r} is defined twice: by {defined[name]} and by {by}")
    defined[name] = by


def _value(graph: Graph, name: str, what: str) -> Value:
    if name not in graph.values:
        raise BadBundleError(f"{what} {name!r} has no entry in values")
    return graph.values[name]


def _check_ops(graph: Graph, registry: Mapping[str, OpDef]) -> None:
    faults = []
    for node in graph.nodes:
        row = registry.get(node.op)
        reason = f"there is no operator {node.op!r}" if row is None else row.check(graph, node)
        if reason:
            faults.append(f"{node.name} ({node.op}): {reason}\n      at {node.source}")
    if faults:
        raise UnsupportedOpError(
            f"{len(faults)} operations cannot run:\n    " + "\n    ".join(faults),
            hint="docs/OPS.md lists what can; docs/ADD_AN_OP.md shows how to add one",
        )


def _check_shapes(graph: Graph, registry: Mapping[str, OpDef]) -> None:
    for node in graph.nodes:
        shapes = registry[node.op].shape(graph, node)
        if len(shapes) != len(node.outputs):
            raise BadBundleError(
                f"node {node.name!r} has {len(node.outputs)} outputs, not {len(shapes)}"
            )
        for name, want in zip(node.outputs, shapes, strict=True):
            have = graph.values[name].shape
            if not same_shape(graph, have, want):
                raise BadBundleError(
                    f"node {node.name!r} ({_describe(graph, node)}) gives "
                    f"{symbols.show_shape(want)}, "
                    f"but {name!r} is declared {symbols.show_shape(have)}\n      at {node.source}"
                )


def _describe(graph: Graph, node: Node) -> str:
    shapes = [symbols.show_shape(graph.values[n].shape) for n in node.inputs if n is not None]
    return f"{node.op} of {', '.join(shapes)}"


def index_limits(graph: Graph) -> dict[str, int]:
    """Return, for each graph input used as row numbers of a table, how many rows the table has."""
    carried = {port.value: port.value for port in graph.inputs}
    limits: dict[str, int] = {}
    for node in graph.nodes:
        source = carried.get(node.inputs[0] or "") if node.inputs else None
        if source is None:
            continue
        if node.op in ("view", "cast"):
            carried[node.outputs[0]] = source
        if node.op in ("embedding", "embedding_q") and node.inputs[1] is not None:
            rows = symbols.evaluate(graph.values[node.inputs[1]].shape[0], {})
            limits[source] = min(rows, limits.get(source, rows))
    return limits
