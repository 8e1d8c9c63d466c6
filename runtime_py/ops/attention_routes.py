"""The ways in which attention runs, and the choice between them.

Input:  an `Attention`: names, sizes, strides and rules of one node, whatever the layout.
Output: dispatches of one route, each with the reason for it.
Way of the data: `ops.attention` describes the node, this module lowers it.

split         few tokens: the context in splits side by side, then `attention_combine`. A workgroup
              serves all query heads of a KV head, so K and V are read once.
stream        many tokens: tiles of query rows against tiles of keys, online softmax, no S x C
              scores.
materialized  scores, softmax, weighted sum through an S x C scratch: the plain reference, on
              request.

A program whose S can be both few and many gets both routes; the grid of the wrong one is empty in
each step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from runtime_py.errors import OptionError
from runtime_py.ops import layout
from runtime_py.ops.attention_materialized import materialized
from runtime_py.ops.attention_node import Attention, common_axes, common_params, reads
from runtime_py.ops.base import Binding, Dispatch, Lowering, Param, key
from runtime_py.symbols import Expr, ceil_div, combine, product

FEW = 16  # tokens from which on a tile of query rows is full enough for the streaming route
MAX_HEADS = 8  # query heads of a workgroup in the split route (registers)
STREAM_ROWS, STREAM_KEYS = 32, 32
WORKGROUP_BYTES = 16384  # WebGPU's default limit, which every device has


@dataclass(frozen=True)
class SplitTuning:
    """Sizes of the split route, the axes of wgsl/attention_split.wgsl; `chunk` is keys a split."""

    vec: int
    heads: int
    threads: int
    tile: int
    rows: int
    across: int
    chunk: int

    def workgroup_bytes(self, head_dim: int) -> int:
        """Return the workgroup memory that the kernel declares."""
        slices = self.threads // self.across
        pool = max(self.tile * self.heads * 4, slices * self.heads * head_dim)
        peaks = self.heads * max(min(8, self.threads // self.heads), slices, 1)
        return 4 * (self.heads * head_dim + pool + self.heads * self.tile + peaks)


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
        return stream(ctx, a, 1, f"stream: {_span(least, most)} a step, at least {FEW}")
    many = layout.indicator(ctx, combine("//", a.tokens, FEW))
    few = combine("-", 1, many)
    return [
        *split(ctx, a, few, f"split: in steps of fewer than {FEW} tokens (of {least} to {most})"),
        *stream(ctx, a, many, f"stream: in steps of at least {FEW} tokens (of {least} to {most})"),
    ]


def _span(least: int, most: int) -> str:
    return (
        f"{most} token{'s' if most > 1 else ''}" if least == most else f"{least} to {most} tokens"
    )


def split_tuning(ctx: Lowering, a: Attention) -> SplitTuning:
    """Return the sizes of the split route for this device.

    A CPU adapter wants one subgroup a workgroup (4 threads: a barrier costs nothing) and long
    splits: 2.4 ms of one core a layer at 9/3/64 and 1000 keys, against 3.3 ms with 16 threads
    (SwiftShader, Chromium 156). A GPU wants many workgroups with many loads in flight.
    """
    rounds = -(-a.group // MAX_HEADS)
    heads = -(-a.group // rounds)
    vec = 4 if a.head_dim % 4 == 0 else 1
    units = a.head_dim // vec
    if ctx.caps.is_software:
        tuning = SplitTuning(vec, heads, 4, 64, 4, min(4, units), 256)
    else:
        chunk = max(64, -(-ctx.upper(a.keys) // 64 // 64) * 64)
        tuning = SplitTuning(vec, heads, 64, 64, 2, min(64, units), chunk)
    while tuning.workgroup_bytes(a.head_dim) > WORKGROUP_BYTES and tuning.heads > 1:
        tuning = replace(tuning, heads=-(-tuning.heads // 2))
    return tuning


def split(ctx: Lowering, a: Attention, enabled: Expr, reason: str) -> list[Dispatch]:
    """Return attention_split and, where there can be more than one split, attention_combine."""
    t = split_tuning(ctx, a)
    rounds = -(-a.group // t.heads)
    most = -(-ctx.upper(a.keys) // t.chunk)
    few = min(ctx.upper(a.tokens), FEW - 1)
    splits = ceil_div(a.keys, t.chunk) if most > 1 else 1
    params = (
        *common_params(a, t.vec),
        Param("q_heads", "u32", a.heads),
        Param("rounds", "u32", rounds),
        Param("chunk", "u32", t.chunk),
        Param("splits", "u32", splits),
    )
    kernel_key = key(
        "attention_split",
        head_dim=a.head_dim,
        vec=t.vec,
        heads=t.heads,
        threads=t.threads,
        tile=t.tile,
        rows=t.rows,
        across=t.across,
        partial=most > 1,
        **common_axes(ctx, a),
    )
    grid = (combine("*", splits, enabled), a.kv_heads * rounds, combine("*", a.batch, a.tokens))
    reason += f"; {a.group} query heads share a read of K and V"
    reason += f", splits of {t.chunk} keys, at most {most}"
    if most == 1:
        written: tuple[Binding, ...] = (Binding(a.y, "read_write"),)
        return [Dispatch(kernel_key, (*reads(a), *written), grid, params, reason)]
    rows = product((a.batch, few, a.heads))
    sums = ctx.scratch(a.node, "sums", "f32", (rows, most, a.head_dim))
    stats = ctx.scratch(a.node, "stats", "f32", (rows, most, 2))
    written = (Binding(sums, "read_write"), Binding(stats, "read_write"))
    return [
        Dispatch(kernel_key, (*reads(a), *written), grid, params, reason),
        _combine(ctx, a, sums, stats, splits, enabled),
    ]


def _combine(
    ctx: Lowering, a: Attention, sums: str, stats: str, splits: Expr, enabled: Expr
) -> Dispatch:
    count = product((a.batch, a.tokens, a.heads * a.head_dim))
    numbers = {
        "n": count,
        "splits": splits,
        "D": a.head_dim,
        "Hq": a.heads,
        "S": a.tokens,
        "y_b": a.y_steps[0],
        "y_s": a.y_steps[1],
        "y_h": a.y_steps[2],
    }
    params = tuple(Param(name, "u32", value) for name, value in numbers.items())
    bindings = (Binding(sums), Binding(stats), Binding(a.y, "read_write"))
    x, y, z = layout.fold(ctx, ceil_div(count, 64))
    grid = (combine("*", x, enabled), y, z)
    return Dispatch(key("attention_combine"), bindings, grid, params, "joins the splits")


def stream_share(ctx: Lowering, head_dim: int) -> tuple[int, int]:
    """Return how many rows and columns a thread computes: 16 threads of 8 x 8, or 256 of 1 x 4.

    Few threads suit a CPU adapter (273 ms of one core against 434 with 4 x 4 at 9/3/64 and 512
    tokens, SwiftShader, Chromium 156); wide heads have too many sums for 8 x 8. A GPU hides the
    latency of a tile's steps behind more threads (9/3/64, 512 tokens after 512: 478 us with 1 x 4,
    498 with 2 x 4, 847 with 4 x 4; H200, Chrome 156). Lavapipe (Mesa 25) runs 8 x 8 and 4 x 4
    alike, but takes 30 s to compile 8 x 8 at D = 128 on two cores, against 10 s.
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
