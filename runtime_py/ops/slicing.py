"""Slices of a dimension and their opposites: slice, slice_scatter, cat.

Input:  nodes whose `start` may be an expression of the symbols. Output: strided copies, or reasons.
Way of the data: under `ops.shape`, whose rows these functions are.
"""

from __future__ import annotations

from runtime_py.ops import layout
from runtime_py.ops.base import Dispatch, Lowering
from runtime_py.ops.copying import dim_of, plain_copy, same_dtype_reason, strided_copy, window
from runtime_py.ops.elementwise import inputs
from runtime_py.schema import Graph, Node, expr_attr
from runtime_py.symbols import Expr, Shape, bounds, combine, show, show_shape


def check_slice(graph: Graph, node: Node) -> str | None:
    step = node.attrs.get("step", 1)
    if not isinstance(step, int) or step < 1:
        return f"{node.op} with step {step!r}, expected a positive integer"
    start = expr_attr(node, "start", 0)
    if bounds(start, graph.ranges)[0] < 0:
        return f"{node.op} from {show(start)}, which can be negative"
    names = inputs(node)
    long, short = names[0], node.outputs[0] if node.op == "slice" else names[1]
    big, small = graph.values[long].shape, graph.values[short].shape
    dim = dim_of(node, len(big))
    others = [(a, b) for k, (a, b) in enumerate(zip(big, small, strict=False)) if k != dim]
    if len(big) != len(small) or not all(layout.same(a, b) for a, b in others):
        return f"{node.op} of {show_shape(big)} with {show_shape(small)} along dimension {dim}"
    last = combine("+", start, combine("*", step, combine("-", small[dim], 1)))
    if not layout.fits(graph, combine("+", last, 1), big[dim]):
        end = show(combine("+", last, 1))
        return f"{node.op} reaches {end}, past the {show(big[dim])} of dimension {dim}"
    return same_dtype_reason(graph, node)


def lower_slice(ctx: Lowering, node: Node) -> list[Dispatch]:
    x, y = ctx.value(inputs(node)[0]), ctx.value(node.outputs[0])
    dim, start = dim_of(node, len(x.shape)), expr_attr(node, "start", 0)
    first, read = window(x.shape, dim, start, expr_attr(node, "step", 1))
    return [strided_copy(ctx, x.name, y.name, y.shape, (first, read), (0, layout.strides(y.shape)))]


def lower_slice_scatter(ctx: Lowering, node: Node) -> list[Dispatch]:
    base, src = (ctx.value(name) for name in inputs(node))
    out = node.outputs[0]
    dim, start = dim_of(node, len(base.shape)), expr_attr(node, "start", 0)
    write = window(base.shape, dim, start, expr_attr(node, "step", 1))
    read: tuple[Expr, Shape] = (0, layout.strides(src.shape))
    return [
        plain_copy(ctx, base.name, out),
        strided_copy(ctx, src.name, out, src.shape, read, write),
    ]


def check_cat(graph: Graph, node: Node) -> str | None:
    shapes = [graph.values[name].shape for name in inputs(node)]
    rank = len(shapes[0])
    dim = dim_of(node, rank)
    for shape in shapes[1:]:
        rest, first = shape[:dim] + shape[dim + 1 :], shapes[0][:dim] + shapes[0][dim + 1 :]
        if len(shape) != rank or not layout.same_shape(rest, first):
            return f"cat of {show_shape(shapes[0])} and {show_shape(shape)} along dimension {dim}"
    return same_dtype_reason(graph, node)


def cat_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    shapes = [graph.values[name].shape for name in inputs(node)]
    dim = dim_of(node, len(shapes[0]))
    total: Expr = 0
    for shape in shapes:
        total = combine("+", total, shape[dim])
    return ((*shapes[0][:dim], total, *shapes[0][dim + 1 :]),)


def lower_cat(ctx: Lowering, node: Node) -> list[Dispatch]:
    out = ctx.value(node.outputs[0])
    write = layout.strides(out.shape)
    dim, start = dim_of(node, len(out.shape)), 0
    result, at = [], combine("+", start, 0)
    for name in inputs(node):
        shape = ctx.value(name).shape
        first = combine("*", at, write[dim])
        result.append(
            strided_copy(ctx, name, out.name, shape, (0, layout.strides(shape)), (first, write))
        )
        at = combine("+", at, shape[dim])
    return result
