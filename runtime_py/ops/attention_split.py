"""The split route of attention: few tokens, the context in splits side by side, then a combine.

Input:  an `Attention`, the device. Output: the dispatches of `attention_decode` or
`attention_split`, and of `attention_combine` where there can be more than one split.
Way of the data: `ops.attention_routes` lowers steps of fewer than `FEW` tokens with `split`.

A workgroup serves all query heads of a KV head, so K and V are read once. What takes time on a GPU
is latency: attention_decode issues all loads of a tile before it uses the first.

    split(ctx, a, 1, "split: 1 token a step")    # [attention_decode, attention_combine]
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import ClassVar

from runtime_py.ops import layout
from runtime_py.ops.attention_node import Attention, common_axes, common_params, reads
from runtime_py.ops.base import Axis, Binding, Dispatch, Lowering, Param, key
from runtime_py.symbols import Expr, ceil_div, combine, product

FEW = 16  # tokens from which on a tile of query rows is full enough for another route
MAX_HEADS = 8  # query heads of a workgroup (registers)
MAX_WIDTH = 128  # head width up to which attention_decode keeps a tile in registers
COMBINE_THREADS = 256  # the most that every device takes
MAX_LANES = 16  # splits of a row that attention_combine reads side by side
WORKGROUP_BYTES = 16384  # WebGPU's default limit, which every device has


@dataclass(frozen=True)
class SplitTuning:
    """Sizes of wgsl/attention_split.wgsl, its axes; `chunk` is keys a split."""

    kernel: ClassVar[str] = "attention_split"
    heads: int
    chunk: int
    vec: int
    threads: int
    tile: int
    rows: int
    across: int

    def workgroup_bytes(self, head_dim: int) -> int:
        """Return the workgroup memory that the kernel declares."""
        slices = self.threads // self.across
        pool = max(self.tile * self.heads * 4, slices * self.heads * head_dim)
        peaks = self.heads * max(min(8, self.threads // self.heads), slices, 1)
        return 4 * (self.heads * head_dim + pool + self.heads * self.tile + peaks)

    def axes(self, a: Attention) -> dict[str, Axis]:
        """Return the axes of the kernel that these sizes are."""
        return {name: size for name, size in asdict(self).items() if name != "chunk"}


@dataclass(frozen=True)
class DecodeTuning:
    """Sizes of wgsl/attention_decode.wgsl, its axes; `chunk` is keys a split."""

    kernel: ClassVar[str] = "attention_decode"
    vec: ClassVar[int] = 4
    heads: int
    chunk: int
    threads: int
    tile: int

    def workgroup_bytes(self, head_dim: int) -> int:
        """Return the workgroup memory that the kernel declares if it rotates, the most."""
        slices = min(self.threads * 4 // head_dim, self.tile)
        numbers = head_dim + 5 * self.tile + slices * (head_dim + 2)
        return 4 * (self.heads * numbers + head_dim)

    def axes(self, a: Attention) -> dict[str, Axis]:
        """Return the axes of the kernel that these sizes and the rotation of `a` are."""
        sizes = {name: size for name, size in asdict(self).items() if name != "chunk"}
        if a.rotation is None:
            return {**sizes, "rotary": "none", "rotary_dim": 0}
        form = "interleaved" if a.rotation.interleaved else "half"
        return {**sizes, "rotary": form, "rotary_dim": a.rotation.width}


def split_tuning(ctx: Lowering, a: Attention) -> SplitTuning | DecodeTuning:
    """Return the kernel of the split route for this device, and its sizes.

    A CPU adapter wants one subgroup a workgroup (4 threads: a barrier costs nothing) and long
    splits: 2.4 ms of one core a layer at 9/3/64 and 1000 keys, against 3.3 ms with 16 threads
    (SwiftShader, Chromium 156). A GPU wants many workgroups with many loads in flight.
    """
    rounds = -(-a.group // MAX_HEADS)
    heads = -(-a.group // rounds)
    vec = 4 if a.head_dim % 4 == 0 else 1
    units = a.head_dim // vec
    chunk = max(64, -(-ctx.upper(a.keys) // 64 // 64) * 64)
    tuning: SplitTuning | DecodeTuning
    if ctx.caps.is_software:
        tuning = SplitTuning(heads, 256, vec, 4, 64, 4, min(4, units))
    elif vec == 4 and a.head_dim <= MAX_WIDTH:
        tuning = DecodeTuning(heads, chunk, 128, 64)
    else:
        tuning = SplitTuning(heads, chunk, vec, 64, 64, 2, min(64, units))
    while tuning.workgroup_bytes(a.head_dim) > WORKGROUP_BYTES and tuning.heads > 1:
        tuning = replace(tuning, heads=-(-tuning.heads // 2))
    return tuning


def takes_rotation(ctx: Lowering, a: Attention) -> bool:
    """True if the kernel for node `a` rotates: four pairs of dimensions at a time, in two vec4s."""
    width = a.rotation.width if a.rotation else 0
    whole = width > 0 and width % 8 == 0 and a.head_dim % 8 == 0
    return whole and isinstance(split_tuning(ctx, a), DecodeTuning)


def split(ctx: Lowering, a: Attention, enabled: Expr, reason: str) -> list[Dispatch]:
    """Return the kernel of the splits, and attention_combine if there can be more than one."""
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
        *(() if a.rotation is None else (Param("magnitude", "f32", a.rotation.magnitude),)),
    )
    kernel_key = key(
        t.kernel, head_dim=a.head_dim, partial=most > 1, **t.axes(a), **common_axes(ctx, a)
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
        _combine(ctx, a, t.vec, sums, stats, splits, enabled),
    ]


def _combine(
    ctx: Lowering, a: Attention, vec: int, sums: str, stats: str, splits: Expr, enabled: Expr
) -> Dispatch:
    rows, units = product((a.batch, a.tokens, a.heads)), a.head_dim // vec
    lanes = 1 if ctx.caps.is_software else max(1, min(MAX_LANES, COMBINE_THREADS // units))
    numbers = {
        "rows": rows,
        "splits": splits,
        "Hq": a.heads,
        "S": a.tokens,
        "y_b": combine("//", a.y_steps[0], vec),
        "y_s": combine("//", a.y_steps[1], vec),
        "y_h": combine("//", a.y_steps[2], vec),
    }
    params = tuple(Param(name, "u32", value) for name, value in numbers.items())
    bindings = (Binding(sums), Binding(stats), Binding(a.y, "read_write"))
    groups = rows if lanes > 1 else ceil_div(combine("*", rows, units), 64)
    x, y, z = layout.fold(ctx, groups)
    grid = (combine("*", x, enabled), y, z)
    kernel_key = key("attention_combine", vec=vec, units=units, lanes=lanes)
    return Dispatch(kernel_key, bindings, grid, params, "joins the splits")
