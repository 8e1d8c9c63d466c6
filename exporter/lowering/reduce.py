"""Lowering rules: reductions over dimensions, softmax, norms.

Input:  torch nodes. Output: `sum`, `mean`, `amax`, `softmax`, `rms_norm`, `layer_norm`, and small
compositions.
Way of the data: rules of `lowering`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from exporter.lowering.builder import Builder, Operand, Ref, Refused
from exporter.lowering.elementwise import arithmetic
from exporter.lowering.rules import lowers
from exporter.lowering.shape import permute
from runtime_py.symbols import Shape, combine, product


def reduced(build: Builder, op: str, x: Operand, dims: Any, keepdim: bool) -> Ref:
    """Return `op` of `x` over `dims` (all, if there are none)."""
    shape = build.shape_of(x)
    rank = len(shape)
    one = [dims] if isinstance(dims, int) else list(dims or range(rank))
    over = sorted(d % rank for d in one) if rank else []
    out: Shape = tuple(
        1 if d in over else e for d, e in enumerate(shape) if keepdim or d not in over
    )
    return build.add(op, (x,), out, build.dtype(x), {"dims": tuple(over), "keepdim": bool(keepdim)})


def _floats(build: Builder, x: Operand) -> Operand:
    return x if build.dtype(x) in ("f32", "f16") else build.cast(x, "f32")


@lowers("aten.sum", "aten.sum.dim_IntList", "aten.sum.default")
def sum_(build: Builder, x: Operand, dims: Any = None, keepdim: bool = False, **_: Any) -> Operand:
    return reduced(build, "sum", build.cast(x, build.out_dtype), dims, keepdim)


@lowers("aten.mean")
def mean(build: Builder, x: Operand, dims: Any = None, keepdim: bool = False, **_: Any) -> Operand:
    return reduced(build, "mean", build.cast(x, build.out_dtype), dims, keepdim)


@lowers("aten.amax")
def amax(build: Builder, x: Operand, dims: Any = None, keepdim: bool = False) -> Operand:
    return reduced(build, "amax", x, dims, keepdim)


@lowers("aten.amin")
def amin(build: Builder, x: Operand, dims: Any = None, keepdim: bool = False) -> Operand:
    return build.unary("neg", reduced(build, "amax", build.unary("neg", x), dims, keepdim))


@lowers("aten.max.dim")
def max_dim(build: Builder, x: Operand, dim: int, keepdim: bool = False) -> tuple[Any, ...]:
    used = {int(user.args[1]) for user in build.node.users if user.users}  # type: ignore[arg-type]
    index = argmax(build, x, dim, keepdim) if 1 in used else None
    return reduced(build, "amax", x, dim, keepdim), index


@lowers("aten.argmax")
def argmax(build: Builder, x: Operand, dim: int | None = None, keepdim: bool = False) -> Operand:
    """The first greatest element of the last dimension (torch promises none in particular)."""
    shape = build.shape_of(x)
    if dim is None:
        x, shape, dim, out = build.view(x, (product(shape),)), (product(shape),), 0, build.out_shape
    else:
        dim %= len(shape)
        out = tuple(1 if d == dim else e for d, e in enumerate(shape) if keepdim or d != dim)
    if dim != len(shape) - 1:
        raise Refused("argmax over a dimension that is not the last")
    return build.view(build.add("argmax", (x,), shape[:-1], "i32"), out)


@lowers("aten.max.default")
def max_all(build: Builder, x: Operand) -> Operand:
    return reduced(build, "amax", x, None, False)


@lowers("aten.var.correction", "aten.var.dim")
def var(
    build: Builder, x: Operand, dims: Any = None, *, correction: Any = 1, keepdim: bool = False
) -> Operand:
    """sum((x - mean)^2) / (n - correction)"""
    shape = build.shape_of(x)
    over = sorted(d % len(shape) for d in (dims or range(len(shape))))
    middle = reduced(build, "mean", x, over, True)
    squares = build.unary("square", build.binary("sub", x, middle))
    count = combine("-", product(tuple(shape[d] for d in over)), int(correction))
    total = reduced(build, "sum", squares, over, keepdim)
    return build.binary("div", total, float(count) if isinstance(count, int) else count)


@lowers("aten.linalg_vector_norm")
def vector_norm(
    build: Builder, x: Operand, order: Any = 2, dims: Any = None, keepdim: bool = False, **_: Any
) -> Operand:
    if order != 2:
        raise Refused(f"a vector norm of order {order}")
    return build.unary("sqrt", reduced(build, "sum", build.unary("square", x), dims, keepdim))


@lowers("aten.softmax.int", "aten._softmax", "aten._safe_softmax")
def softmax(build: Builder, x: Operand, dim: int, *_: Any, **__: Any) -> Operand:
    x = _floats(build, x)
    rank = len(build.shape_of(x))
    if rank == 0 or dim % rank == rank - 1:
        return build.unary("softmax", x)
    order = [d for d in range(rank) if d != dim % rank] + [dim % rank]
    back = [order.index(d) for d in range(rank)]
    return permute(build, build.unary("softmax", permute(build, x, order)), back)


@lowers("aten._log_softmax", "aten.log_softmax.int")
def log_softmax(build: Builder, x: Operand, dim: int, *_: Any, **__: Any) -> Operand:
    centred = build.binary("sub", x, reduced(build, "amax", x, dim, True))
    total = reduced(build, "sum", build.unary("exp", centred), dim, True)
    return build.binary("sub", centred, build.unary("log", total))


def _one_dim(build: Builder, x: Operand, shape: Sequence[int]) -> None:
    if len(shape) != 1 or build.shape_of(x)[-1] != shape[0]:
        raise Refused(f"a norm over {len(shape)} dimensions; flatten them first")


@lowers("aten.rms_norm")
def rms_norm(
    build: Builder,
    x: Operand,
    shape: Sequence[int],
    weight: Operand | None = None,
    eps: float | None = None,
) -> Operand:
    _one_dim(build, x, shape)
    if eps is None:
        eps = float(torch.finfo(build.node.meta["val"].dtype).eps)
    return build.add("rms_norm", (x, weight), attrs={"eps": eps})


@lowers("aten.layer_norm", "aten.native_layer_norm")
def layer_norm(
    build: Builder,
    x: Operand,
    shape: Sequence[int],
    weight: Operand | None = None,
    bias: Operand | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Any:
    _one_dim(build, x, shape)
    out = build.add(
        "layer_norm", (x, weight, bias), build.shape_of(x), build.dtype(x), {"eps": eps}
    )
    return (out, None, None) if "native" in str(build.node.target) else out


@lowers("aten.addcmul")
def addcmul(build: Builder, x: Operand, a: Operand, b: Operand, *, value: float = 1) -> Operand:
    scaled = arithmetic(build, "mul", a, b, build.out_dtype, build.out_shape)
    if value != 1:
        scaled = build.binary("mul", scaled, float(value))
    return arithmetic(build, "add", x, scaled, build.out_dtype, build.out_shape)
