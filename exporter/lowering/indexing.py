"""Lowering rules: indices given as tensors. A range of positions is a slice; others are looked up.

Input:  torch nodes. Output: `slice`, `slice_scatter`, `index_select`, `where`.
Way of the data: rules of `lowering`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from exporter.lowering.builder import Builder, Operand, Refused
from exporter.lowering.elementwise import where
from exporter.lowering.rules import lowers
from exporter.lowering.shape import scatter
from runtime_py.symbols import product


@lowers("aten.index_put")
def index_put(
    build: Builder,
    x: Operand,
    indices: Sequence[Operand | None],
    values: Operand,
    accumulate: bool = False,
) -> Operand:
    """`x[..., i] = values`: a range of rows becomes a slice, a mask becomes `where`."""
    if accumulate:
        raise Refused("index_put with accumulate")
    dim, index = _one_index(indices)
    shape = build.shape_of(x)
    if build.dtype(index) == "u32" and dim == 0 and build.shape_of(index) == shape:
        return where(build, index, values, x)
    start = build.range_start(index)
    if start is None:
        raise Refused(
            "index_put at positions that are not a range; write `x[:, start:start + n] = values`"
        )
    window = (*shape[:dim], build.shape_of(index)[0], *shape[dim + 1 :])
    return scatter(build, x, build.expand(values, window), dim, start, 1)


def _one_index(indices: Sequence[Operand | None]) -> tuple[int, Operand]:
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(given) != 1:
        raise Refused(f"indexing by {len(given)} tensors at once")
    return given[0]


@lowers("aten.index.Tensor")
def index(build: Builder, x: Operand, indices: Sequence[Operand | None]) -> Operand:
    dim, ids = _one_index(indices)
    if build.dtype(ids) == "u32":
        raise Refused("indexing by a mask: the result's extent depends on data")
    flat = build.view(ids, (product(build.shape_of(ids)),))
    return build.view(take(build, x, dim, flat))


@lowers("aten.index_select")
def index_select(build: Builder, x: Operand, dim: int, ids: Operand) -> Operand:
    return take(build, x, dim % len(build.shape_of(x)), ids)


def take(build: Builder, x: Operand, dim: int, ids: Operand) -> Operand:
    """Return the entries `ids` (a vector) of `x` along `dim`; a range of them is a slice."""
    shape = build.shape_of(x)
    count, start = build.shape_of(ids)[0], build.range_start(ids)
    if start is not None:
        return build.slice(x, dim, start, count)
    if isinstance(ids, torch.Tensor):
        if ids.numel() and not -int(str(shape[dim])) <= int(ids.min()) <= int(ids.max()) < int(
            str(shape[dim])
        ):
            raise Refused(f"an index is outside 0..{shape[dim]}")
        ids = torch.where(ids < 0, ids + int(str(shape[dim])), ids)
    out = (*shape[:dim], count, *shape[dim + 1 :])
    return build.add("index_select", (x, ids), out, build.dtype(x), {"dim": dim})


@lowers("aten.flip")
def flip(build: Builder, x: Operand, dims: Sequence[int]) -> Operand:
    for dim in dims:
        extent = build.shape_of(x)[dim]
        if not isinstance(extent, int):
            raise Refused("flip of a symbolic extent")
        x = take(build, x, dim % len(build.shape_of(x)), torch.arange(extent - 1, -1, -1))
    return x
