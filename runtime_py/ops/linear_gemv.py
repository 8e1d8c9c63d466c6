"""Sizes of the GEMV for a GPU: how many threads, how many outputs each, how sums are put together.

Input:  the weight's shape, M, the device's caps. Output: a `Gemv`, the axes of
wgsl/linear_gemv.wgsl.
Way of the data: under `ops.linear_routes`.

What takes time on a GPU is latency until the weight is large; then x is read too often, so a
thread takes more outputs. Measured on an H200 (Chrome 156, 2026-11-30, one row, us, rounds that
wait for each other; in brackets the outputs that share a sum's threads):

| K -> N                      | a subgroup alone | a workgroup of subgroups |
|-----------------------------|------------------|--------------------------|
| 576 -> 576                  | 3.6 (1)          | 3.7 (1)                  |
| 576 -> 960, norm            | 4.4 (1), 4.6 (2) | 4.7 (2)                  |
| 576 -> 2 x 1536, norm, SiLU | 5.1 (2)          | 5.8 (2)                  |
| 1536 -> 576                 | 4.6 (1)          | 4.2 (2), 64 threads      |
| 2048 -> 2048                | 6.5 (2)          | 6.0 (4), 64 threads      |
| 8192 -> 2048                | 16 (2)           | 9.9 (4), 256 threads     |
| 576 -> 49152, 8 bit, norm   | 20 (4), 24 (8)   | 24 (4)                   |
| 2048 -> 128256              | 63 (8), 81 (4)   | 89 (4)                   |

    size_for(caps, blocks=64, rows=1, outputs=2048, gated=False, chunk=8)
    # Gemv("subgroup", 0, 64, 4)
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime_py.ops.base import Axis, Caps

LEAST_LANES = 16
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


def size_for(caps: Caps, *, blocks: int, rows: int, outputs: int, gated: bool, chunk: int) -> Gemv:
    """Return the sizes for `rows` of x and a weight of `blocks` 16-byte blocks a row.

    `outputs` counts rows of y; `gated` means that each takes two rows of the weight; `chunk` is
    codes in 4 bytes.
    """
    if not caps.has_subgroups:
        return Gemv("workgroup", 0, 64 if blocks > 32 else 32, 2 if rows <= 8 else 1)
    lanes = caps.subgroup_max if caps.subgroup_min == caps.subgroup_max else 0
    large = outputs * (2 if gated else 1) >= LARGE
    if lanes >= LEAST_LANES and (large or blocks <= lanes):
        cols = _alone(rows, chunk, gated) if large else 2 if gated or outputs >= 2048 else 1
        return Gemv("team", lanes, 2 * lanes, cols)
    threads = next((size for size in (32, 64, 128) if size >= blocks), 256)
    return Gemv("subgroup", 0, threads, _shared(rows, outputs, gated))


def _alone(rows: int, chunk: int, gated: bool) -> int:
    """Return the outputs of a subgroup where x is read again and again."""
    if rows > 4:
        return 2
    return 8 if rows == 1 and chunk == 8 and not gated else 4


def _shared(rows: int, outputs: int, gated: bool) -> int:
    """Return the outputs that a workgroup's threads share."""
    if rows > 8:
        return 1
    if rows > 4 or gated or outputs < 1024:
        return 2
    return 4
