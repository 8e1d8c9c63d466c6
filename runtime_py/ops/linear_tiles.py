"""Tiles of the products of many rows: what a workgroup computes, and which tile suits a layer.

Input:  the weight's shape, the greatest M, the device's caps, the arithmetic.
Output: a `Tile` of wgsl/linear_gemm.wgsl or a `MatrixTile` of wgsl/linear_matrix.wgsl.
Way of the data: under `ops.linear_routes`.

Small layers leave a large GPU half empty, so they take small tiles; large ones take large tiles,
which read less. Measured on an H200 (Chrome 156, 2026-11-30, us):

| M x K x N          | f32 32, 4x4 | f32 64, 4x4 | f32 128 | f16 64, 8x4 | f16 sums | matrix |
|--------------------|-------------|-------------|---------|-------------|----------|--------|
| 1000 x 576 x 576   | 52          | 59          |         | 55          | 36       | 19     |
| 1000 x 1536 x 576  | 133         | 152         |         | 131         | 90       | 41     |
| 1024 x 2048 x 2048 |             | 355         | 312     | 306         | 218      | 98     |
| 1024 x 8192 x 2048 |             | 1445        | 1526    | 1252        | 902      | 392    |

    pick_tile(caps, most=1000, outputs=576, multiply="f32", sums="f32", sides=1)
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime_py.ops.base import Axis, Caps

VALUE_BYTES = {"f32": 4, "f16": 2}
ENOUGH_TILES = 256  # workgroups that keep a large GPU busy
LANES = 32  # wgsl/linear_matrix.wgsl gives each of 32 lanes 8 of 256 sums


@dataclass(frozen=True)
class Tile:
    """What a workgroup of linear_gemm computes: `size` rows by `size` outputs, `depth` of K at a
    time, `rows` by `cols` outputs a thread.
    """

    size: int
    depth: int
    rows: int
    cols: int

    def bytes(self, multiply: str, sides: int) -> int:
        """Return the workgroup memory of a tile of x and `sides` tiles of the weight."""
        return (1 + sides) * self.size * self.depth * VALUE_BYTES[multiply]

    def axes(self) -> dict[str, Axis]:
        """Return the axes of the tile."""
        return {
            "tile": self.size,
            "depth": self.depth,
            "share_rows": self.rows,
            "share_cols": self.cols,
        }


@dataclass(frozen=True)
class MatrixTile:
    """What a workgroup of linear_matrix computes: `rows` by 64 outputs (32 of gate and 32 of up),
    `depth` of K at a time.
    """

    rows: int
    depth: int

    @property
    def bytes(self) -> int:
        """Workgroup memory: both tiles, and 16x16 sums of each subgroup."""
        return 2 * (self.rows + 64) * (self.depth + 8) + 64 * self.rows

    def axes(self) -> dict[str, Axis]:
        """Return the axes of the tile."""
        return {"tile_rows": self.rows, "depth": self.depth}


SMALL = Tile(32, 32, 4, 4)
WIDE = Tile(64, 16, 4, 4)  # f32
DEEP = Tile(64, 32, 8, 4)  # f16: half the bytes
DEEP_SUMS = Tile(64, 32, 4, 4)  # f16 sums
HUGE = Tile(128, 32, 8, 8)


def pick_tile(caps: Caps, *, most: int, outputs: int, multiply: str, sums: str, sides: int) -> Tile:
    """Return the tile of linear_gemm for up to `most` rows that fits the device's memory.

    `sides` is 2 where gate and up are computed together.
    """
    if most <= 32 or outputs < 512:
        return SMALL
    limit = caps.limit("maxComputeWorkgroupStorageSize")
    if multiply == "f16":
        choice = DEEP_SUMS if sums == "f16" else DEEP
        return choice if choice.bytes(multiply, sides) <= limit else SMALL
    if sides == 1 and _tiles(most, outputs, HUGE.size) >= ENOUGH_TILES // 2:
        return HUGE if HUGE.bytes(multiply, sides) <= limit else WIDE
    return WIDE if sides == 2 or _tiles(most, outputs, WIDE.size) >= ENOUGH_TILES else SMALL


def pick_matrix_tile(caps: Caps, *, most: int, outputs: int, sides: int) -> MatrixTile | None:
    """Return the tile of linear_matrix, or None where the device cannot run it: it needs 16x16x16
    of f16 with f32 sums, and subgroups of 32.
    """
    able = caps.subgroup_matrix and caps.has_f16 and caps.has_subgroups
    if not able or not caps.subgroup_min == caps.subgroup_max == LANES:
        return None
    limit = caps.limit("maxComputeWorkgroupStorageSize")
    many = -(-most // 128) * -(-outputs * sides // 64) >= ENOUGH_TILES
    wanted = [MatrixTile(128, 32)] if many else []
    wanted += [MatrixTile(64, 64), MatrixTile(64, 32)]
    return next((tile for tile in wanted if tile.bytes <= limit), None)


def _tiles(most: int, outputs: int, size: int) -> int:
    return -(-most // size) * -(-outputs // size)
