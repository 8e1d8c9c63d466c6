"""The tiled route of attention: many tokens on a GPU, sums in registers, one dispatch.

Input:  an `Attention`, the device's limits. Output: the dispatch of `attention_tiled`.
Way of the data: `ops.attention_routes` asks `tiling_for`, and lowers with `tiled` what has one.

A thread of the streaming route computes 1 row by 4 columns, so that each multiplication waits for
more than one number of workgroup memory; here it computes 4 rows (or 8) by 4 columns.

    tiling_for(ctx, a)                     # Tiling(rows=32, keys=64, threads=128, ...), or None
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from runtime_py.ops.attention_node import Attention, common_axes, common_params, reads
from runtime_py.ops.base import Binding, Dispatch, Lowering, key
from runtime_py.symbols import Expr, ceil_div, combine


@dataclass(frozen=True)
class Tiling:
    """Sizes of the tiled route, the axes of wgsl/attention_tiled.wgsl."""

    rows: int
    keys: int
    threads: int
    across: int
    pairs: int
    buffers: int

    def workgroup_bytes(self, head_dim: int) -> int:
        """Return the workgroup memory that the kernel declares."""
        units, groups = head_dim // 4, self.rows // 4
        kv = self.buffers * self.keys * (units | 1)
        return 16 * (head_dim * groups + kv + self.keys * (groups | 1) + self.across * groups)


# Best first; the first that fits the device's workgroup memory is taken.
TILINGS = (
    Tiling(rows=32, keys=64, threads=128, across=16, pairs=2, buffers=1),
    Tiling(rows=32, keys=32, threads=128, across=16, pairs=2, buffers=1),
    Tiling(rows=16, keys=32, threads=64, across=16, pairs=2, buffers=1),
    Tiling(rows=16, keys=16, threads=64, across=16, pairs=2, buffers=1),
)


def tiling_for(ctx: Lowering, a: Attention) -> Tiling | None:
    """Return the sizes of the tiled route, or None where another route runs.

    None on a CPU adapter, for a D that is no multiple of 4, and for one whose tiles pass the
    device's workgroup memory: 16 KiB by default hold D up to 96, 32 KiB up to 256.
    """
    if ctx.caps.is_software or a.head_dim % 4:
        return None
    limit = ctx.caps.limit("maxComputeWorkgroupStorageSize")
    return next((t for t in TILINGS if t.workgroup_bytes(a.head_dim) <= limit), None)


def tiled(
    ctx: Lowering, a: Attention, tiling: Tiling, enabled: Expr, reason: str
) -> list[Dispatch]:
    """Return attention_tiled: one dispatch, no scratch."""
    kernel_key = key(
        "attention_tiled", head_dim=a.head_dim, **asdict(tiling), **common_axes(ctx, a)
    )
    tiles = ceil_div(combine("*", a.tokens, a.group), tiling.rows)
    grid = (combine("*", a.kv_heads, enabled), tiles, a.batch)
    reason += f"; {tiling.rows} rows of {a.group} query heads against {tiling.keys} keys at a time"
    bindings = (*reads(a), Binding(a.y, "read_write"))
    return [Dispatch(kernel_key, bindings, grid, common_params(a, 4), reason)]
