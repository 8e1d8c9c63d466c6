"""The ways in which attention runs, and the choice between them.

Input:  an `Attention`: names, sizes, strides and rules of one node, whatever the layout of its tensors.
Output: dispatches of one route, each with the reason for it.
Way of the data: `ops.attention` describes the node, this module lowers it.

split         few tokens: the context in splits side by side, then `attention_combine`. A workgroup serves all
              query heads of a KV head, so K and V are read once.
stream        many tokens: tiles of query rows against tiles of keys, online softmax, no S x C scores.
materialized  scores, softmax, weighted sum through an S x C scratch: the plain reference, on request.

A program whose S can be both few and many gets both routes; the grid of the wrong one is empty in each step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from runtime_py.errors import OptionError
from runtime_py.ops import layout
from runtime_py.ops.base import Axis, Binding, Dispatch, Lowering, Param, key
from runtime_py.schema import DTYPE_BYTES, Node
from runtime_py.symbols import Expr, Shape, ceil_div, combine, product

FEW = 16  # tokens from which on a tile of query rows is full enough for the streaming route
MAX_HEADS = 8  # query heads of a workgroup in the split route (registers)
STREAM_ROWS, STREAM_KEYS = 32, 32


@dataclass(frozen=True)
class Attention:
    """One attention node. Strides are (batch, token or key, head), in elements; the head's row is contiguous."""

    node: Node
    q: str
    k: str
    v: str
    mask: str | None
    y: str
    batch: Expr
    tokens: Expr
    heads: int
    kv_heads: int
    head_dim: int
    keys: Expr
    position: Expr
    q_steps: Shape
    k_steps: Shape
    y_steps: Shape
    mask_steps: Shape
    scale: float
    causal: bool
    window: int
    softcap: float

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.heads // self.kv_heads


@dataclass(frozen=True)
class SplitTuning:
    """Sizes of the split route: see the axes of wgsl/attention_split.wgsl. `chunk` is keys a split."""

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
    """Return the dispatches of node `a` in this program; option `attention` = "materialized" forces that route."""
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
    return f"{most} token{'s' if most > 1 else ''}" if least == most else f"{least} to {most} tokens"


def common_params(a: Attention, vec: int = 1) -> tuple[Param, ...]:
    """Return the parameters that every attention kernel starts with; strides count `vec` elements."""
    numbers: dict[str, Expr] = {
        "S": a.tokens, "keys": a.keys, "position": a.position, "window": a.window, "group": a.group,
    }
    params = [Param(name, "u32", value) for name, value in numbers.items()]
    params += [Param("scale", "f32", a.scale), Param("cap", "f32", a.softcap)]
    for prefix, letters, steps in (("q", "bsh", a.q_steps), ("k", "bch", a.k_steps), ("y", "bsh", a.y_steps)):
        for letter, step in zip(letters, steps, strict=True):
            params.append(Param(f"{prefix}_{letter}", "u32", combine("//", step, vec)))
    for letter, step in zip("bhsk", a.mask_steps, strict=True):
        params.append(Param(f"m_{letter}", "u32", step))
    return tuple(params)


def common_axes(ctx: Lowering, a: Attention) -> dict[str, Axis]:
    """Return the axes that every attention kernel has."""
    return {
        "cache": ctx.value(a.k).dtype,
        "mask": "none" if a.mask is None else ctx.value(a.mask).dtype,
        "causal": a.causal,
        "window": a.window > 0,
        "softcap": a.softcap > 0,
    }


def _reads(a: Attention) -> tuple[Binding, ...]:
    names = (a.q, a.k, a.v) if a.mask is None else (a.q, a.k, a.v, a.mask)
    return tuple(Binding(name) for name in names)


def split_tuning(ctx: Lowering, a: Attention) -> SplitTuning:
    """Return the sizes of the split route for this device.

    A CPU adapter wants one subgroup a workgroup (4 threads: a barrier costs nothing) and long splits: 2.3 ms of one
    core a layer at 9/3/64 and 1000 keys, against 3.3 ms with 16 threads (SwiftShader). A GPU wants
    many workgroups with many loads in flight.
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
    limit = ctx.caps.limit("maxComputeWorkgroupStorageSize")
    while tuning.workgroup_bytes(a.head_dim) > limit:
        if tuning.tile > tuning.threads:
            tuning = replace(tuning, tile=tuning.tile // 2)
        elif tuning.heads > 1:
            tuning = replace(tuning, heads=-(-tuning.heads // 2))
        else:
            tuning = replace(tuning, tile=tuning.tile // 2, threads=tuning.threads // 2)
    return tuning


def split(ctx: Lowering, a: Attention, enabled: Expr, reason: str) -> list[Dispatch]:
    """Return attention_split and, where there can be more than one split, attention_combine."""
    t = split_tuning(ctx, a)
    rounds = -(-a.group // t.heads)
    most = -(-ctx.upper(a.keys) // t.chunk)
    few = min(ctx.upper(a.tokens), FEW - 1)
    splits = ceil_div(a.keys, t.chunk) if most > 1 else 1
    params = (
        *common_params(a, t.vec), Param("q_heads", "u32", a.heads), Param("rounds", "u32", rounds),
        Param("chunk", "u32", t.chunk), Param("splits", "u32", splits),
    )
    kernel_key = key(
        "attention_split", head_dim=a.head_dim, vec=t.vec, heads=t.heads, threads=t.threads, tile=t.tile,
        rows=t.rows, across=t.across, partial=most > 1, **common_axes(ctx, a),
    )
    grid = (combine("*", splits, enabled), a.kv_heads * rounds, combine("*", a.batch, a.tokens))
    reason += f"; {a.group} query heads share a read of K and V, splits of {t.chunk} keys, at most {most}"
    if most == 1:
        written: tuple[Binding, ...] = (Binding(a.y, "read_write"),)
        return [Dispatch(kernel_key, (*_reads(a), *written), grid, params, reason)]
    rows = product((a.batch, few, a.heads))
    sums = ctx.scratch(a.node, "sums", "f32", (rows, most, a.head_dim))
    stats = ctx.scratch(a.node, "stats", "f32", (rows, most, 2))
    written = (Binding(sums, "read_write"), Binding(stats, "read_write"))
    return [
        Dispatch(kernel_key, (*_reads(a), *written), grid, params, reason),
        _combine(ctx, a, sums, stats, splits, enabled),
    ]


def _combine(ctx: Lowering, a: Attention, sums: str, stats: str, splits: Expr, enabled: Expr) -> Dispatch:
    count = product((a.batch, a.tokens, a.heads * a.head_dim))
    numbers = {"n": count, "splits": splits, "D": a.head_dim, "Hq": a.heads, "S": a.tokens,
               "y_b": a.y_steps[0], "y_s": a.y_steps[1], "y_h": a.y_steps[2]}
    params = tuple(Param(name, "u32", value) for name, value in numbers.items())
    bindings = (Binding(sums), Binding(stats), Binding(a.y, "read_write"))
    x, y, z = layout.fold(ctx, ceil_div(count, 64))
    grid = (combine("*", x, enabled), y, z)
    return Dispatch(key("attention_combine"), bindings, grid, params, "joins the splits")


def stream_side(ctx: Lowering) -> int:
    """Return how many rows and columns a thread computes: 16 threads of 8 x 8 on a CPU adapter, else 64 of 4 x 4."""
    return 8 if ctx.caps.is_software else 4


def stream(ctx: Lowering, a: Attention, enabled: Expr, reason: str) -> list[Dispatch]:
    """Return attention_stream: one dispatch, no scratch."""
    side = stream_side(ctx)
    kernel_key = key(
        "attention_stream", head_dim=a.head_dim, rows=side, columns=side, **common_axes(ctx, a)
    )
    params = common_params(a)
    tiles = ceil_div(combine("*", a.tokens, a.group), STREAM_ROWS)
    grid = (combine("*", tiles, enabled), a.kv_heads, a.batch)
    reason += f"; tiles of {STREAM_ROWS} rows, shared by {a.group} query heads, against {STREAM_KEYS} keys"
    return [Dispatch(kernel_key, (*_reads(a), Binding(a.y, "read_write")), grid, params, reason)]


def materialized(ctx: Lowering, a: Attention) -> list[Dispatch]:
    """Return scores, softmax and weighted sum; raises `OptionError` where the scores do not fit a binding."""
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
    kernel_key = key("attention_values", **{name: axes[name] for name in ("cache", "causal", "window")})
    bindings = (Binding(weights), Binding(a.v), Binding(a.y, "read_write"))
    return Dispatch(kernel_key, bindings, layout.fold(ctx, ceil_div(count, 64)), _counted(a, count))
