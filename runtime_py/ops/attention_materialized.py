"""The plain route of attention: scores, softmax, weighted sum, through an S x C scratch.

Input:  an `Attention`. Output: three dispatches. Way of the data: `attention_routes` -> here.
It is the reference that the other routes are held against, and what they are measured by.
"""

from __future__ import annotations

from runtime_py.errors import OptionError
from runtime_py.ops import layout
from runtime_py.ops.attention_node import Attention, common_axes, common_params
from runtime_py.ops.base import Binding, Dispatch, Lowering, Param, key
from runtime_py.schema import DTYPE_BYTES
from runtime_py.symbols import Expr, ceil_div, product


def materialized(ctx: Lowering, a: Attention) -> list[Dispatch]:
    """Return scores, softmax and weighted sum.

    Raises `OptionError` where the scores do not fit a binding.
    """
    shape = (a.batch, a.heads, a.tokens, a.keys)
    size_bytes = ctx.upper(product(shape)) * DTYPE_BYTES["f32"]
    limit = ctx.caps.limit("maxStorageBufferBindingSize")
    if size_bytes > limit:
        raise OptionError(
            f"attention='materialized' needs {size_bytes} bytes of scores for {a.node.name}, "
            f"a binding holds {limit}",
            hint="leave attention at 'auto'",
        )
    scores = ctx.scratch(a.node, "scores", "f32", shape)
    weights = ctx.scratch(a.node, "weights", "f32", shape)
    return [_scores(ctx, a, scores), _softmax(ctx, a, scores, weights), _values(ctx, a, weights)]


def _counted(a: Attention, count: Expr) -> tuple[Param, ...]:
    extra = {"n": count, "q_heads": a.heads, "head_dim": a.head_dim}
    return (*common_params(a), *(Param(name, "u32", value) for name, value in extra.items()))


def _scores(ctx: Lowering, a: Attention, scores: str) -> Dispatch:
    count = product((a.batch, a.heads, a.tokens, a.keys))
    names = (a.q, a.k) if a.mask is None else (a.q, a.k, a.mask)
    bindings = (*(Binding(name) for name in names), Binding(scores, "read_write"))
    grid = layout.fold(ctx, ceil_div(count, 64))
    reason = "materialized: asked for by the option"
    return Dispatch(
        key("attention_scores", **common_axes(ctx, a)), bindings, grid, _counted(a, count), reason
    )


def _softmax(ctx: Lowering, a: Attention, scores: str, weights: str) -> Dispatch:
    rows = product((a.batch, a.heads, a.tokens))
    params = (Param("rows", "u32", rows), Param("keys", "u32", a.keys))
    bindings = (Binding(scores), Binding(weights, "read_write"))
    return Dispatch(key("attention_softmax"), bindings, layout.fold(ctx, rows), params)


def _values(ctx: Lowering, a: Attention, weights: str) -> Dispatch:
    count = product((a.batch, a.heads, a.tokens, a.head_dim))
    axes = common_axes(ctx, a)
    kernel_key = key(
        "attention_values", **{name: axes[name] for name in ("cache", "causal", "window")}
    )
    bindings = (Binding(weights), Binding(a.v), Binding(a.y, "read_write"))
    return Dispatch(kernel_key, bindings, layout.fold(ctx, ceil_div(count, 64)), _counted(a, count))
