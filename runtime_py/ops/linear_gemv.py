"""Sizes of the GEMV for a GPU: how many threads, how many outputs each, how sums are put together.

Input:  the weight's shape, M, the device's caps. Output: a `Gemv`, the axes of
wgsl/linear_gemv.wgsl.
Way of the data: under `ops.linear_routes`.

What takes time on a GPU is latency until the weight is large; then x is read too often, so a
thread takes more outputs. Measured on an H200 (Chrome 156, 2026-11-30, one row, us, rounds that
wait for each other):

| K -> N                      | a subgroup alone, its outputs | a workgroup of subgroups, outputs |
|-----------------------------|-------------------------------|-----------------------------------|
| 576 -> 576                  | 3.6 (1)                       | 3.7 (1)                           |
| 576 -> 960, norm            | 4.4 (2)                       | 4.9 (2)                           |
| 1536 -> 576                 | 4.6 (1)                       | 4.1 (64 threads, 1)               |
| 2048 -> 2048                | 7.5 (2)                       | 6.3 (64 threads, 2)               |
| 8192 -> 2048                | 19 (2)                        | 12 (256 threads, 4)               |
| 2048 -> 128256              | 71 (8), 93 (4)                | 105 (64 threads, 4)               |

    size_for(caps, blocks=64, rows=1, outputs=2048, gated=False)   # Gemv("subgroup", 0, 64, 2)
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime_py.ops.base import Axis, Caps

LARGE = 16384  # rows of the weight from which on reading x again and again is what takes time


@dataclass(frozen=True)
class Gemv:
    """`reduce` as in the template, `lanes` of a subgroup (team only), `threads` of a workgroup,
    `cols` outputs that the threads of one sum share.
    """

    reduce: str
    lanes: int
    threads: int
    cols: int

    @property
    def outputs(self) -> int:
        """Outputs of a workgroup."""
        return self.cols * (self.threads // self.lanes if self.lanes else 1)

    def axes(self) -> dict[str, Axis]:
        """Return the axes that these sizes are."""
        return {
            "reduce": self.reduce,
            "lanes": self.lanes,
            "threads": self.threads,
            "cols": self.cols,
        }


def size_for(caps: Caps, *, blocks: int, rows: int, outputs: int, gated: bool) -> Gemv:
    """Return the sizes for `rows` of x and a weight of `blocks` 16-byte blocks a row.

    `outputs` counts rows of y; `gated` means that each takes two rows of the weight.
    """
    sides = 2 if gated else 1
    if not caps.has_subgroups:
        return Gemv("workgroup", 0, 64 if blocks > 32 else 32, 2 if rows <= 8 else 1)
    lanes = caps.subgroup_max if caps.subgroup_min == caps.subgroup_max else 0
    large = outputs * sides >= LARGE
    if lanes >= 16 and (large or blocks <= lanes):
        cols = (8 // sides if rows == 1 else 4 // sides) if large else 2 if outputs >= 768 else 1
        return Gemv("team", lanes, 2 * lanes, cols if rows <= 4 else min(cols, 2))
    threads = next((size for size in (32, 64, 128) if size >= blocks), 256)
    return Gemv("subgroup", 0, threads, _shared(rows, outputs, threads, gated))


def _shared(rows: int, outputs: int, threads: int, gated: bool) -> int:
    """Return the outputs that a workgroup's threads share."""
    if rows > 8:
        return 1
    if rows > 4 or gated:
        return 2
    if threads == 256 or outputs >= 2560:
        return 4
    return 2 if outputs >= 1024 else 1
