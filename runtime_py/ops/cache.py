"""Writing the tokens of a step into a cache `[B, C, H, D]`, and why that may be impossible.

Input:  a node with an `input_pos`, its value and its cache. Output: a dispatch, or a reason.
Way of the data: under `ops.attention` and `ops.rope`. A cache is row-major, so that what a
decode step reads of one key of one head, D elements, lies side by side.
"""

from __future__ import annotations

from runtime_py.ops import layout
from runtime_py.ops.base import Binding, Dispatch, Lowering, Param, key
from runtime_py.ops.layout import fits
from runtime_py.schema import Graph, Node, expr_attr
from runtime_py.symbols import Expr, Shape, bounds, ceil_div, combine, product, show, show_shape


def cache_reason(
    graph: Graph, node: Node, cache: str, batch: Expr, tokens: Expr, heads: Shape
) -> str | None:
    """Return why `tokens` rows of `heads` (H, D) do not fit `cache` [B, C, H, D] at input_pos."""
    value = graph.values[cache]
    if len(value.shape) != 4 or value.dtype not in ("f32", "f16"):
        return (
            f"{cache} is {value.dtype} {show_shape(value.shape)}, expected f32 or f16 [B, C, H, D]"
        )
    if not layout.same(value.shape[0], batch):
        return f"a batch of {show(batch)} does not fit {cache} {show_shape(value.shape)}"
    if not layout.same_shape(value.shape[2:], heads):
        return f"heads {show_shape(heads)} differ from those of {cache} {show_shape(value.shape)}"
    position = expr_attr(node, "input_pos", 0)
    if bounds(position, graph.ranges)[0] < 0:
        return f"input_pos = {show(position)} can be negative"
    end = combine("+", position, tokens)
    if not fits(graph, end, value.shape[1]):
        return f"{show(end)} tokens can pass the {show(value.shape[1])} slots of {cache}"
    return None


def update_reason(graph: Graph, node: Node, value: str, cache: str) -> str | None:
    new = graph.values[value]
    if len(new.shape) != 4 or new.dtype not in ("f32", "f16"):
        found = f"{value} is {new.dtype} {show_shape(new.shape)}"
        return f"{node.op}: {found}, expected f32 or f16 [B, S, H, D]"
    reason = cache_reason(graph, node, cache, *new.shape[:2], new.shape[2:])
    return f"{node.op}: {reason}" if reason else layout.size_reason(graph, node)


def update(ctx: Lowering, node: Node, value: str, cache: str) -> Dispatch:
    """Return the dispatch that writes `value` into `cache` from slot input_pos on."""
    new, old = ctx.value(value), ctx.value(cache)
    count = product(new.shape)
    numbers = {
        "n": count,
        "S": new.shape[1],
        "C": old.shape[1],
        "row": product(new.shape[2:]),
        "position": expr_attr(node, "input_pos", 0),
    }
    params = tuple(Param(name, "u32", number) for name, number in numbers.items())
    grid = layout.fold(ctx, ceil_div(count, 1024))
    kernel_key = key("update_cache", value_dtype=new.dtype, cache=old.dtype)
    return Dispatch(kernel_key, (Binding(value), Binding(cache, "read_write")), grid, params)
