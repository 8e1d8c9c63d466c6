"""Lowering rules: views, permutations, slices, joins, writes into slices, constants, indices that
are ranges.

Input:  torch nodes. Output: nodes of `runtime_py.ops.shape` (`view`, `permute`, `slice`,
`slice_scatter`, ...).
Way of the data: rules of `lowering`. A slice demands that it lies inside; what the ranges do not
tell becomes a constraint of the bundle, so that a step past the end is refused instead of reading
another tensor's bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from exporter.lowering.builder import Builder, Operand, Ref, Refused, Scalar
from exporter.lowering.rules import lowers
from exporter.symbolic import same
from runtime_py.symbols import Expr, Op, Shape, combine

SAME_BYTES = (
    "clone",
    "alias",
    "detach",
    "contiguous",
    "lift_fresh_copy",
    "lift_fresh",
    "view_copy",
    "positive",
)


@lowers(*(f"aten.{name}" for name in SAME_BYTES))
def identity(build: Builder, x: Operand, *_: Any, **__: Any) -> Operand:
    """A value is never overwritten (buffers apart, which `emit` guards), so a clone of it is
    itself.
    """
    return x


@lowers(
    "aten.view",
    "aten._unsafe_view",
    "aten.reshape",
    "aten.unsqueeze",
    "aten.squeeze",
    "aten.flatten",
    "aten.unflatten",
)
def view(build: Builder, x: Operand, *_: Any, **__: Any) -> Operand:
    return build.view(x)


@lowers("aten.permute")
def permute(build: Builder, x: Operand, dims: Sequence[int]) -> Operand:
    shape = build.shape_of(x)
    order = tuple(d % len(shape) for d in dims) if shape else ()
    moved = [d for d in order if shape[d] != 1]
    if moved == sorted(moved):
        return build.view(x, tuple(shape[d] for d in order))
    return build.add(
        "permute", (x,), tuple(shape[d] for d in order), build.dtype(x), {"dims": order}
    )


@lowers("aten.transpose.int", "aten.t")
def transpose(build: Builder, x: Operand, a: int = 0, b: int = 1) -> Operand:
    order = list(range(len(build.shape_of(x))))
    if len(order) > 1:
        order[a], order[b] = order[b], order[a]
    return permute(build, x, order)


@lowers("aten.expand", "aten.broadcast_to")
def expand(build: Builder, x: Operand, *_: Any, **__: Any) -> Operand:
    return build.expand(x, build.out_shape)


@lowers("aten.repeat")
def repeat(build: Builder, x: Operand, repeats: Sequence[int]) -> Operand:
    """View as [.., 1, extent, ..], expand each 1 to its count, view back."""
    shape = build.shape_of(x)
    shape = (*(1,) * (len(repeats) - len(shape)), *shape)
    apart: list[Expr] = []
    wide: list[Expr] = []
    for extent, count in zip(shape, repeats, strict=True):
        apart += [1, extent]
        wide += [count, extent]
    return build.view(build.expand(build.view(x, tuple(apart)), tuple(wide)))


@lowers("aten.slice")
def slice_(
    build: Builder, x: Operand, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Operand:
    shape = build.shape_of(x)
    dim %= len(shape)
    if not isinstance(step, int):
        raise Refused("a slice with a symbolic step")
    first = _from_front(start, shape[dim])
    extent = build.out_shape[dim]
    is_tail = step == 1 and same(combine("+", first, extent), shape[dim])
    if is_tail and len(shape) == 3 and dim == 1 and not isinstance(first, int):
        build.require_inside(first, extent, shape[dim])
        return build.add("last_rows", (x,), build.out_shape, build.dtype(x), {"rows": extent})
    return build.slice(x, dim, first, extent, step)


def _from_front(index: Any, size: Expr) -> Expr:
    """Return a start counted from the front and cut to the extent, where both are numbers."""
    if index is None:
        return 0
    if isinstance(index, int):
        index = combine("+", size, index) if index < 0 else index
        return min(index, size) if isinstance(index, int) and isinstance(size, int) else index
    return index  # type: ignore[no-any-return]


@lowers("aten.select.int")
def select(build: Builder, x: Operand, dim: int, index: Any) -> Operand:
    shape = build.shape_of(x)
    dim %= len(shape)
    return build.view(build.slice(x, dim, _from_front(index, shape[dim]), 1))


@lowers("aten.split_with_sizes", "aten.split_with_sizes_copy")
def split_with_sizes(
    build: Builder, x: Operand, sizes: Sequence[Expr], dim: int = 0
) -> list[Operand]:
    parts, start = [], 0
    for size in sizes:
        parts.append(build.slice(x, dim % len(build.shape_of(x)), start, size))
        start = combine("+", start, size)  # type: ignore[assignment]
    return parts


@lowers("aten.split.Tensor", "aten.chunk", "aten.unbind", "aten.tensor_split")
def split(build: Builder, x: Operand, *args: Any, **kwargs: Any) -> list[Operand]:
    """The extents are those of torch's results."""
    kind = str(build.node.target)
    position = 0 if "unbind" in kind else 1
    dim = kwargs.get("dim", args[position] if len(args) > position else 0) % len(build.shape_of(x))
    parts: list[Operand] = []
    start: Expr = 0
    for fake in build.node.meta["val"]:
        out = build.shape(fake.shape)
        extent = 1 if "unbind" in kind else out[dim]
        parts.append(build.view(build.slice(x, dim, start, extent), out))
        start = combine("+", start, extent)
    return parts


@lowers("getitem", "<built-in function getitem>")
def getitem(build: Builder, items: Sequence[Any], index: int) -> Any:
    return items[index]


@lowers("aten.cat", "aten.concat")
def cat(build: Builder, tensors: Sequence[Operand], dim: int = 0) -> Operand:
    full = [build.cast(t, build.out_dtype) for t in tensors if build.shape_of(t) != (0,)]
    if len(full) == 1:
        return full[0]
    return build.add("cat", full, attrs={"dim": dim % len(build.out_shape)})


@lowers("aten.slice_scatter")
def slice_scatter(
    build: Builder,
    base: Operand,
    src: Operand,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: Any = 1,
) -> Operand:
    shape = build.shape_of(base)
    dim %= len(shape)
    return scatter(build, base, src, dim, _from_front(start, shape[dim]), step)


@lowers("aten.select_scatter")
def select_scatter(build: Builder, base: Operand, src: Operand, dim: int, index: Any) -> Operand:
    shape = build.shape_of(base)
    dim %= len(shape)
    row = build.view(src, (*shape[:dim], 1, *shape[dim + 1 :]))
    return scatter(build, base, row, dim, _from_front(index, shape[dim]), 1)


def scatter(
    build: Builder, base: Operand, src: Operand, dim: int, start: Expr, step: Any
) -> Operand:
    if not isinstance(step, int):
        raise Refused("a slice with a symbolic step")
    shape, extent = build.shape_of(base), build.shape_of(src)[dim]
    src = build.cast(src, build.dtype(base))
    if start == 0 and step == 1 and same(extent, shape[dim]):
        return src
    build.require_inside(start, extent, shape[dim], step)
    attrs = {"dim": dim, "start": start, "step": step}
    return build.add("slice_scatter", (base, src), shape, build.dtype(base), attrs)


@lowers("aten.copy")
def copy(build: Builder, target: Operand, src: Any, *_: Any) -> Operand:
    """`target.copy_(src)` made functional: `src` in the target's shape and dtype."""
    if not isinstance(src, (Ref, torch.Tensor)):
        return _full(build, src, build.shape_of(target), build.dtype(target))
    return build.expand(build.cast(src, build.dtype(target)), build.shape_of(target))


def _full(build: Builder, value: Scalar, shape: Shape, dtype: str) -> Operand:
    if isinstance(value, float) and not math.isfinite(value):
        return build.expand(build.number(value, dtype), shape)  # JSON holds no infinity
    if dtype in ("f32", "f16") and not isinstance(value, (str, Op)):
        value = float(value)
    return build.add(
        "full", (), shape, dtype, {"value": int(value) if isinstance(value, bool) else value}
    )


@lowers("aten.full.default", "aten.new_full")
def full(build: Builder, *args: Any, **_: Any) -> Operand:
    return _full(build, args[-1], build.out_shape, build.out_dtype)


@lowers("aten.full_like", "aten.scalar_tensor")
def full_like(build: Builder, *args: Any, **_: Any) -> Operand:
    return _full(build, args[-1], build.out_shape, build.out_dtype)


@lowers(
    "aten.zeros",
    "aten.zeros_like",
    "aten.new_zeros",
    "aten.empty",
    "aten.empty_like",
    "aten.empty_permuted",
    "aten.new_empty",
)
def zeros(build: Builder, *_: Any, **__: Any) -> Operand:
    return _full(build, 0, build.out_shape, build.out_dtype)


@lowers("aten.ones", "aten.ones_like", "aten.new_ones")
def ones(build: Builder, *_: Any, **__: Any) -> Operand:
    return _full(build, 1, build.out_shape, build.out_dtype)


@lowers("aten.arange")
def arange(build: Builder, *args: Any, **_: Any) -> Operand:
    start, step = (args[0], 1) if len(args) >= 2 else (0, 1)
    step = args[2] if len(args) > 2 else step
    if isinstance(start, float) or isinstance(step, float):
        raise Refused("arange with a fractional start or step; use integers and multiply")
    out = build.add("arange", (), attrs={"start": start, "step": step})
    if step == 1 and build.out_dtype == "i32":
        build.ranges[out.name] = start
    return out
