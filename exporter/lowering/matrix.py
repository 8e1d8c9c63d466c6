"""Lowering rules: linear layers, matrix products, embeddings, and their quantised forms.

Input:  torch nodes. Output: `linear`, `matmul`, `embedding`, `linear_q`, `embedding_q`.
Way of the data: rules of `lowering`. A product with a stored matrix becomes `linear`, its transpose
stored.
"""

from __future__ import annotations

from typing import Any

import torch

from exporter import schemes
from exporter.lowering.builder import Builder, Operand, Ref, Refused
from exporter.lowering.elementwise import arithmetic
from exporter.lowering.indexing import take
from exporter.lowering.rules import lowers
from runtime_py.symbols import Shape, product


@lowers("aten.linear")
def linear(build: Builder, x: Operand, weight: Operand, bias: Operand | None = None) -> Ref:
    if len(build.shape_of(weight)) != 2:
        raise Refused("linear with a weight that is no matrix")
    return build.add("linear", (x, weight, bias, None))


def product_of(build: Builder, a: Operand, b: Operand, shape: Shape) -> Ref:
    """Return a @ b for tensors of rank 2 and more."""
    if isinstance(b, torch.Tensor) and b.dim() == 2:
        return build.add("linear", (a, b.t().contiguous(), None, None), shape, build.dtype(a))
    return build.add("matmul", (a, b), shape, build.dtype(a))


@lowers("aten.matmul", "aten.mm", "aten.bmm")
def matmul(build: Builder, a: Operand, b: Operand) -> Operand:
    left, right = build.shape_of(a), build.shape_of(b)
    if len(left) == 1:
        a, left = build.view(a, (1, *left)), (1, *left)
    if len(right) == 1:
        b, right = build.view(b, (*right, 1)), (*right, 1)
    out = build.out_shape
    batch = out[: max(len(left), len(right)) - 2]
    return build.view(product_of(build, a, b, (*batch, left[-2], right[-1])))


@lowers("aten.addmm", "aten.baddbmm")
def addmm(
    build: Builder, bias: Operand, a: Operand, b: Operand, *, beta: float = 1, alpha: float = 1
) -> Operand:
    out, shape = build.out_dtype, build.out_shape
    is_vector = len(build.shape_of(bias)) == 1
    if beta == 1 and alpha == 1 and is_vector and isinstance(b, torch.Tensor) and b.dim() == 2:
        return build.add("linear", (a, b.t().contiguous(), bias, None))
    result = product_of(build, a, b, shape)
    if alpha != 1:
        result = build.binary("mul", result, float(alpha))
    if beta != 1:
        bias = build.binary("mul", bias, float(beta))
    return arithmetic(build, "add", result, bias, out, shape)


@lowers("aten.embedding")
def embedding(build: Builder, weight: Operand, ids: Operand, *_: Any) -> Operand:
    if build.range_start(ids) is not None and len(build.shape_of(ids)) == 1:
        return take(build, weight, 0, ids)
    return build.add("embedding", (ids, weight))


@lowers("tabfire.linear_q")
def linear_q(
    build: Builder,
    x: Operand,
    codes: Operand,
    scales: Operand,
    bias: Operand | None,
    scheme: str,
    group: int,
    in_features: int,
) -> Ref:
    attrs = _scheme(scheme, group, in_features) | {"in_features": in_features}
    return build.add("linear_q", (x, _words(build, codes), scales, bias, None, None), attrs=attrs)


@lowers("tabfire.embedding_q")
def embedding_q(
    build: Builder,
    ids: Operand,
    codes: Operand,
    scales: Operand,
    scheme: str,
    group: int,
    width: int,
) -> Ref:
    attrs = _scheme(scheme, group, width) | {"width": width}
    return build.add("embedding_q", (ids, _words(build, codes), scales), attrs=attrs)


def _scheme(scheme: str, group: int, width: int) -> dict[str, Any]:
    return {"scheme": scheme, "group": schemes.effective_group(scheme, group, width)}


def _words(build: Builder, codes: Operand) -> Ref:
    """Return packed codes as u32 words (torch holds the same bits as int32)."""
    if not isinstance(codes, torch.Tensor):
        raise Refused("quantised weights must be stored tensors, not computed ones")
    return build.ref(codes, "u32")


@lowers("aten.outer")
def outer(build: Builder, a: Operand, b: Operand) -> Ref:
    column = build.view(a, (product(build.shape_of(a)), 1))
    return arithmetic(build, "mul", column, b, build.out_dtype, build.out_shape)
