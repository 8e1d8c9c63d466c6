"""Strided copies: the one dispatch behind most operators that only move elements.

Input:  names, sizes and strides. Output: dispatches of wgsl/copy_strided.wgsl.
Way of the data: under `ops.shape`.
"""

from __future__ import annotations

from runtime_py.ops import layout
from runtime_py.ops.base import Binding, Dispatch, Lowering, Param, key
from runtime_py.ops.elementwise import CHUNK, inputs
from runtime_py.schema import Graph, Node
from runtime_py.symbols import Expr, Shape, ceil_div, combine, product


def dim_of(node: Node, rank: int) -> int:
    """Return attribute `dim` counted from the front."""
    value = node.attrs.get("dim", 0)
    return int(str(value)) % rank if rank else 0


def same_dtype_reason(graph: Graph, node: Node) -> str | None:
    names = (*inputs(node), *node.outputs)
    dtypes = sorted({graph.values[name].dtype for name in names})
    if len(dtypes) > 1:
        return f"{node.op} of {' and '.join(dtypes)}: cast first"
    return layout.size_reason(graph, node)


def strided_copy(
    ctx: Lowering,
    src: str,
    dst: str,
    sizes: Shape,
    read: tuple[Expr, Shape],
    write: tuple[Expr, Shape],
) -> Dispatch:
    """Return the dispatch that copies `sizes` elements.

    `read` and `write` are (first element, strides).
    """
    dims, (x, y) = layout.collapse(sizes, [read[1], write[1]])
    count = product(sizes)
    params = (
        Param("n", "u32", count),
        Param("x_start", "u32", read[0]),
        Param("y_start", "u32", write[0]),
        *layout.shape_params("d", dims),
        *layout.shape_params("x", x),
        *layout.shape_params("y", y),
    )
    kernel_key = key(
        "copy_strided", src=ctx.value(src).dtype, dst=ctx.value(dst).dtype, rank=len(dims)
    )
    bindings = (Binding(src), Binding(dst, "read_write"))
    return Dispatch(kernel_key, bindings, layout.fold(ctx, ceil_div(count, CHUNK)), params)


def plain_copy(ctx: Lowering, src: str, dst: str) -> Dispatch:
    shape = ctx.value(src).shape
    steps = layout.strides(shape)
    return strided_copy(ctx, src, dst, shape, (0, steps), (0, steps))


def window(shape: Shape, dim: int, start: Expr, step: Expr) -> tuple[Expr, Shape]:
    steps = layout.strides(shape)
    stepped = tuple(combine("*", s, step) if k == dim else s for k, s in enumerate(steps))
    return combine("*", start, steps[dim]), stepped
