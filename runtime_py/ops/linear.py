"""Linear layers: rows of the registry, and the dispatches that a route needs.

Input:  nodes `linear_q`, `gate_up_q`, `linear`; x is [..., K], M the product of its leading sizes.
Output: dispatches of one kernel, more than one where a weight or y is larger than one binding.
Way of the data: rows of `ops.registry`. `ops.linear_routes` picks the kernel, `ops.weights` knows
the layout of the constants.

    attrs = {"scheme": "q4gsw", "group": 32, "in_features": 576}
    Node("n", "linear_q", ("x", "codes", "scales", "bias"), ("y",), attrs)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from runtime_py.ops import layout, weights
from runtime_py.ops.base import Binding, Dispatch, Lowering, OpDef, Param, key
from runtime_py.ops.linear_keys import KEYS
from runtime_py.ops.linear_routes import Linear, Route, pick, take_apart
from runtime_py.ops.norm import OPS as NORMS
from runtime_py.ops.weights import WINDOW_ROWS
from runtime_py.schema import Graph, Node, Value
from runtime_py.symbols import Expr, Shape, ceil_div, combine, show_shape

__all__ = ["KEYS", "OPS"]
ACTIVATIONS = ("silu", "gelu_tanh")


def _lower(ctx: Lowering, node: Node) -> list[Dispatch]:
    part = take_apart(ctx, node)
    if part.act != "none" and len(_windows(ctx, part)) > 1:
        return _lower_apart(ctx, part)
    return _lower_whole(ctx, part)


def _lower_whole(ctx: Lowering, part: Linear) -> list[Dispatch]:
    route = pick(ctx, part)
    if part.norm_weight is None or dict(route.key.axes).get("norm"):
        return _dispatches(ctx, part, route)
    norm, part = _norm_first(ctx, part)
    return [*norm, *_dispatches(ctx, part, route)]


def _norm_first(ctx: Lowering, part: Linear) -> tuple[list[Dispatch], Linear]:
    """Return the dispatch that normalises x, and `part` reading what it wrote."""
    scratch = ctx.scratch(part.node, "normalised", "f32", ctx.value(part.x).shape)
    norm = Node(
        part.node.name, "rms_norm", (part.x, part.norm_weight), (scratch,), {"eps": part.eps}
    )
    row = next(row for row in NORMS if row.name == "rms_norm")
    return row.lower(ctx, norm), dataclasses.replace(part, x=scratch, norm_weight=None)


def _lower_apart(ctx: Lowering, part: Linear) -> list[Dispatch]:
    """Gate and up rows do not lie in one window: one plain linear, then the activation alone."""
    scratch = ctx.scratch(part.node, "gate_up", "f32", (part.m, part.weight.rows))
    whole = dataclasses.replace(part, y=scratch, act="none")
    size = combine("*", part.m, part.n)
    params = (Param("n", "u32", size), Param("width", "u32", part.n))
    bindings = (Binding(scratch), Binding(part.y, "read_write"))
    grid = layout.fold(ctx, ceil_div(size, 256))
    gated = Dispatch(
        key("gated", act=part.act), bindings, grid, params, "weight larger than a binding"
    )
    return [*_lower_whole(ctx, whole), gated]


def _dispatches(ctx: Lowering, part: Linear, route: Route) -> list[Dispatch]:
    limit = ctx.caps.limit("maxStorageBufferBindingSize")
    result = []
    for start, rows in _row_windows(ctx.upper(part.m), 4 * max(part.n, part.weight.k), limit):
        for first, count in _windows(ctx, part):
            cols = count if part.act == "none" else part.n
            params = (
                Param("rows", "i32", combine("-", part.m, start)),
                Param("cols", "u32", cols),
                Param("first", "u32", first),
                Param("stride", "u32", part.n),
            )
            bindings = tuple(_bindings(ctx, part, (start, rows), (first, count)))
            across = layout.fold(ctx, -(-cols // route.tile_cols))
            tall: Expr = ceil_div(
                part.m if start == 0 and rows is None else rows or 1, route.tile_rows
            )
            grid = (across[0], across[1], tall)
            result.append(Dispatch(route.key, bindings, grid, params, route.reason))
    return result


def _bindings(
    ctx: Lowering, part: Linear, rows: tuple[int, int | None], cols: tuple[int, int]
) -> Iterator[Binding]:
    def window(name: str, width: int, access: str = "read") -> Binding:
        if rows[1] is None:
            return Binding(name, access)
        return Binding(name, access, 4 * width * rows[0], 4 * width * rows[1])

    yield window(part.x, part.weight.k)
    yield from part.weight.bindings(*cols)
    if part.norm_weight is not None:
        yield Binding(part.norm_weight)
    if part.bias is not None:
        yield Binding(part.bias)
    if part.residual is not None:
        yield window(part.residual, part.n)
    yield window(part.y, part.n, "read_write")


def _windows(ctx: Lowering, part: Linear) -> tuple[tuple[int, int], ...]:
    return part.weight.windows(ctx.caps.limit("maxStorageBufferBindingSize"))


def _row_windows(most: int, row_bytes: int, limit: int) -> list[tuple[int, int | None]]:
    """Return `(first row, rows)` runs of x and y that fit a binding; `(0, None)` is all of them."""
    if most * row_bytes <= limit:
        return [(0, None)]
    step = max(limit // row_bytes // WINDOW_ROWS, 1) * WINDOW_ROWS
    return [(start, min(step, most - start)) for start in range(0, most, step)]


def _check(graph: Graph, node: Node) -> str | None:
    x = graph.values[str(node.inputs[0])]
    if x.dtype != "f32":
        return f"{node.op} of {x.dtype}: cast to f32 first"
    if not x.shape or not isinstance(x.shape[-1], int):
        return f"{node.op} over {show_shape(x.shape)}: the last dimension must be a fixed size"
    if node.op == "linear":
        weight = graph.values[str(node.inputs[1])]
        if weight.dtype != "f32" or len(weight.shape) != 2 or weight.shape[1] != x.shape[-1]:
            found = f"{weight.dtype} {show_shape(weight.shape)}"
            return f"linear: weight {found}, expected f32 [N, {x.shape[-1]}]"
        if not isinstance(weight.shape[0], int):
            return f"linear: weight {show_shape(weight.shape)} must have a fixed size"
    else:
        reason = weights.reason_against(graph, node, "in_features")
        if reason is None and node.attrs["in_features"] != x.shape[-1]:
            reason = (
                f"{node.op}: in_features {node.attrs['in_features']}, x is {show_shape(x.shape)}"
            )
        if reason is not None:
            return reason
    return _check_vectors(graph, node, x) or layout.size_reason(graph, node)


def _check_vectors(graph: Graph, node: Node, x: Value) -> str | None:
    """Return why bias, residual, norm_weight or act do not suit x and the weight, or None."""
    rows = graph.values[str(node.inputs[1])].shape[0]
    if node.op == "gate_up_q":
        if node.attrs.get("act", "silu") not in ACTIVATIONS:
            return f"gate_up_q: act {node.attrs.get('act')!r}, expected one of {ACTIVATIONS}"
        if int(str(rows)) % 2:
            return f"gate_up_q: {rows} rows cannot be halves of gate and up"
        wanted: tuple[tuple[str, Shape], ...] = (("norm_weight", x.shape[-1:]),)
        names = node.inputs[3:]
    else:
        y = (*x.shape[:-1], rows)
        wanted = (("bias", (rows,)), ("residual", y), ("norm_weight", x.shape[-1:]))
        names = node.inputs[2 if node.op == "linear" else 3 :]
    for (what, shape), name in zip(wanted, names, strict=False):
        if name is None:
            continue
        value = graph.values[name]
        if value.dtype != "f32" or not layout.same_shape(value.shape, shape):
            found = f"{value.dtype} {show_shape(value.shape)}"
            return f"{node.op}: {what} is {found}, expected f32 {show_shape(shape)}"
    return None


def _shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    x, weight = (graph.values[str(name)] for name in node.inputs[:2])
    rows = int(str(weight.shape[0]))
    return ((*x.shape[:-1], rows // 2 if node.op == "gate_up_q" else rows),)


KERNELS = (
    "linear_gemv",
    "linear_gemm",
    "linear_matrix",
    "linear_quad_gemv",
    "linear_quad_gemm",
    "rms_norm",
)
OPS: tuple[OpDef, ...] = (
    OpDef(
        "linear_q",
        KERNELS,
        ("f32",),
        "norm(x) @ dequantised(codes).T + bias + residual",
        _check,
        _shape,
        _lower,
    ),
    OpDef(
        "gate_up_q",
        (*KERNELS, "gated"),
        ("f32",),
        "act(norm(x) @ gate.T) * (norm(x) @ up.T)",
        _check,
        _shape,
        _lower,
    ),
    OpDef(
        "linear", KERNELS[:5], ("f32",), "x @ weight.T + bias + residual", _check, _shape, _lower
    ),
)
