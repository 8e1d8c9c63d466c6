"""The ways in which attention runs, and the choice between them.

Input:  an `Attention`: names, sizes, strides and rules of one node, whatever the layout.
Output: dispatches of one route, each with the reason for it.
Way of the data: `ops.attention` describes the node, this module lowers it.

split         few tokens: the context in splits side by side (`ops.attention_split`).
tiled         many tokens on a GPU: tiles of query rows against tiles of keys, online softmax, no
              S x C scores, sums in registers (`ops.attention_tiled`).
stream        the same on a CPU adapter, and for a D that the tiled route does not take.
materialized  scores, softmax, weighted sum through an S x C scratch: the plain reference, on
              request.

A program whose S can be both few and many gets split and one of tiled and stream; the grid of the
wrong one is empty in each step.
"""

from __future__ import annotations

from runtime_py.errors import OptionError
from runtime_py.ops import layout
from runtime_py.ops.attention_materialized import materialized
from runtime_py.ops.attention_node import Attention, common_axes, common_params, reads
from runtime_py.ops.attention_split import FEW, split, takes_rotation
from runtime_py.ops.attention_tiled import tiled, tiling_for
from runtime_py.ops.base import Binding, Dispatch, Lowering, key
from runtime_py.symbols import Expr, ceil_div, combine

STREAM_ROWS, STREAM_KEYS = 32, 32


def lower(ctx: Lowering, a: Attention) -> list[Dispatch]:
    """Return the dispatches of node `a` in this program.

    Option `attention` = "materialized" forces that route; raises `OptionError` on an unknown one.
    """
    choice = ctx.options.get("attention", "auto")
    if choice == "materialized":
        return materialized(ctx, a)
    if choice != "auto":
        raise OptionError(f"attention={choice!r}", hint='take "auto" or "materialized"')
    least, most = ctx.lower(a.tokens), ctx.upper(a.tokens)
    if most < FEW:
        return split(ctx, a, 1, f"split: {_span(least, most)} a step, fewer than {FEW}")
    if least >= FEW:
        return prefill(ctx, a, 1, f"{_span(least, most)} a step, at least {FEW}")
    many = layout.indicator(ctx, combine("//", a.tokens, FEW))
    few = combine("-", 1, many)
    return [
        *split(ctx, a, few, f"split: in steps of fewer than {FEW} tokens (of {least} to {most})"),
        *prefill(ctx, a, many, f"in steps of at least {FEW} tokens (of {least} to {most})"),
    ]


def lower_rotated(ctx: Lowering, a: Attention) -> list[Dispatch] | None:
    """Return the dispatches of node `a`, which rotates and fills the caches itself, or None where
    no route of this program does: only the split route of a GPU, for one token."""
    if ctx.options.get("attention", "auto") != "auto" or ctx.fixed(a.tokens) != 1:
        return None
    if not takes_rotation(ctx, a):
        return None
    return split(ctx, a, 1, "split: 1 token a step; rotates q and k, puts k and v into the caches")


def prefill(ctx: Lowering, a: Attention, enabled: Expr, reason: str) -> list[Dispatch]:
    """Return the route of many tokens: tiled where it applies, else stream."""
    tiling = tiling_for(ctx, a)
    if tiling is None:
        return stream(ctx, a, enabled, f"stream: {reason}")
    return tiled(ctx, a, tiling, enabled, f"tiled: {reason}")


def _span(least: int, most: int) -> str:
    return (
        f"{most} token{'s' if most > 1 else ''}" if least == most else f"{least} to {most} tokens"
    )


def stream_share(ctx: Lowering, head_dim: int) -> tuple[int, int]:
    """Return how many rows and columns a thread computes: 16 threads of 8 x 8, or 256 of 1 x 4.

    Few threads suit a CPU adapter (273 ms of one core against 434 with 4 x 4 at 9/3/64 and 512
    tokens, SwiftShader, Chromium 156); wide heads have too many sums for 8 x 8. A GPU, where this
    is the route of odd widths only, hides the latency of a tile's steps behind more threads
    (9/3/64, 512 tokens after 512: 478 us with 1 x 4, 498 with 2 x 4, 847 with 4 x 4; H200, Chrome
    156). Lavapipe (Mesa 25) runs 8 x 8 and 4 x 4 alike, but takes 30 s to compile 8 x 8 at D = 128
    on two cores, against 10 s.
    """
    if not ctx.caps.is_software:
        return 1, 4
    lavapipe = "llvmpipe" in ctx.caps.description.lower()
    return (8, 8) if head_dim <= 128 and not lavapipe else (4, 4)


def stream(ctx: Lowering, a: Attention, enabled: Expr, reason: str) -> list[Dispatch]:
    """Return attention_stream: one dispatch, no scratch."""
    rows, columns = stream_share(ctx, a.head_dim)
    kernel_key = key(
        "attention_stream", head_dim=a.head_dim, rows=rows, columns=columns, **common_axes(ctx, a)
    )
    params = common_params(a)
    tiles = ceil_div(combine("*", a.tokens, a.group), STREAM_ROWS)
    grid = (combine("*", tiles, enabled), a.kv_heads, a.batch)
    reason += f"; {STREAM_ROWS} rows of {a.group} query heads against {STREAM_KEYS} keys at a time"
    return [Dispatch(kernel_key, (*reads(a), Binding(a.y, "read_write")), grid, params, reason)]
