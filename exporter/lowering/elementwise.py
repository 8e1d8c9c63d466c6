"""Lowering rules: arithmetic, comparisons, functions of one element, `where`, casts.

Input:  torch nodes. Output: nodes of `runtime_py.ops.elementwise` and `cast`.
Way of the data: rules of `lowering`. Operands are cast to torch's promoted dtype first, so a node's
operands agree.
"""

from __future__ import annotations

from typing import Any

import torch

from exporter.lowering.builder import DTYPES, Builder, Operand, Ref, Refused, Scalar
from exporter.lowering.rules import lowers
from runtime_py.symbols import Op, Shape, combine

UNARY = {
    "neg": "neg",
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sin": "sin",
    "cos": "cos",
    "abs": "abs",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "silu": "silu",
    "relu": "relu",
    "reciprocal": "reciprocal",
    "square": "square",
}
INTEGER_TOO = ("neg", "abs", "relu", "square")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _simplify(x: Any) -> Any:
    """Return a constant of rank 0 as the number that it is."""
    if isinstance(x, torch.Tensor) and x.dim() == 0:
        return x.item()
    return x


def _is_tensor(x: Any) -> bool:
    return isinstance(x, (Ref, torch.Tensor))


def arithmetic(build: Builder, op: str, a: Any, b: Any, dtype: str, shape: Shape) -> Ref:
    """Return `a op b` computed in `dtype`; either may be a number, one must be a tensor."""
    a = build.cast(a, dtype) if _is_tensor(a) else a
    b = build.cast(b, dtype) if _is_tensor(b) else b
    short_a, short_b = _simplify(a), _simplify(b)
    if isinstance(a, Ref) or not isinstance(b, Ref):
        other = short_b if _is_tensor(a) else b
        left = a if _is_tensor(a) else build.number(a, dtype)
        out = build.binary(op, left, _number(other, dtype), shape)
        _track(build, op, left, other, out)
        return out
    if _is_tensor(short_a):
        return build.binary(op, a, b, shape)
    if op in ("add", "mul", "maximum", "minimum"):
        return arithmetic(build, op, b, short_a, dtype, shape)
    return build.add(
        op, (b, None), shape, dtype, {"scalar": _number(short_a, dtype), "reverse": True}
    )


def _number(x: Any, dtype: str) -> Any:
    return float(x) if dtype in ("f32", "f16") and isinstance(x, (int, bool)) else x


def _track(build: Builder, op: str, a: Operand, b: Any, out: Ref) -> None:
    """A range plus a number is a range again."""
    start = build.range_start(a)
    if op in ("add", "sub") and start is not None and isinstance(b, (int, str, Op)):
        build.ranges[out.name] = combine("+" if op == "add" else "-", start, b)


def _binary_rule(op: str) -> None:
    @lowers(f"aten.{op}")
    def rule(build: Builder, a: Any, b: Any, *, alpha: Scalar = 1) -> Ref:
        dtype, shape = build.out_dtype, build.out_shape
        if dtype == "u32":
            raise Refused(f"{op} of truth values")
        if alpha != 1:
            tensor = b if _is_tensor(b) else build.number(b, dtype)
            b = build.binary("mul", build.cast(tensor, dtype), _number(alpha, dtype))
        return arithmetic(build, op, a, b, dtype, shape)


for _op in ("add", "sub", "mul", "maximum", "minimum"):
    _binary_rule(_op)


@lowers("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide")
def div(build: Builder, a: Any, b: Any) -> Ref:
    return arithmetic(build, "div", a, b, build.out_dtype, build.out_shape)


@lowers("aten.rsub")
def rsub(build: Builder, a: Any, b: Any, alpha: Scalar = 1) -> Ref:
    if alpha != 1:
        raise Refused("rsub with alpha")
    return arithmetic(build, "sub", b, a, build.out_dtype, build.out_shape)


@lowers("aten.pow")
def power(build: Builder, a: Any, b: Any) -> Ref:
    dtype, shape = build.out_dtype, build.out_shape
    if dtype not in ("f32", "f16"):
        raise Refused("pow of integers")
    if not _is_tensor(_simplify(b)) and _is_tensor(a):
        exponent = float(_simplify(b))
        a = build.cast(a, dtype)
        whole = {1.0: 1, 2.0: 2, 3.0: 3, 4.0: 4}.get(exponent)
        if whole is not None:
            return _whole_power(build, a, whole)
        named = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}.get(exponent)
        return build.unary(named, a) if named else build.binary("pow", a, exponent)
    return arithmetic(build, "pow", a, b, dtype, shape)


def _whole_power(build: Builder, a: Operand, exponent: int) -> Ref:
    """Multiply: WGSL's pow is undefined for a negative base."""
    if exponent == 1:
        return build.ref(a)
    square = build.unary("square", a)
    if exponent == 2:
        return square
    return build.binary("mul", square, a) if exponent == 3 else build.unary("square", square)


def _unary_rule(name: str, op: str) -> None:
    @lowers(f"aten.{name}")
    def rule(build: Builder, x: Operand) -> Ref:
        if build.dtype(x) not in ("f32", "f16") and op not in INTEGER_TOO:
            x = build.cast(x, "f32")
        return build.unary(op, x)


for _name, _op in UNARY.items():
    _unary_rule(_name, _op)


@lowers("aten.gelu")
def gelu(build: Builder, x: Operand, *, approximate: str = "none") -> Ref:
    return build.unary("gelu_tanh" if approximate == "tanh" else "gelu", x)


@lowers("aten.clamp", "aten.clamp_min", "aten.clamp_max", "aten.hardtanh")
def clamp(build: Builder, x: Operand, low: Any = None, high: Any = None) -> Operand:
    if "clamp_max" in str(build.node.target):
        low, high = None, low
    for op, limit in (("maximum", low), ("minimum", high)):
        if limit is not None:
            x = arithmetic(build, op, x, limit, build.out_dtype, build.out_shape)
    return x


def _comparison_rule(op: str) -> None:
    @lowers(f"aten.{op}")
    def rule(build: Builder, a: Any, b: Any) -> Ref:
        dtype = _common_dtype(build, a, b)
        short_a, short_b = _simplify(a), _simplify(b)
        if not _is_tensor(short_a):
            return compare(build, MIRRORED[op], b, short_a, dtype)
        return compare(build, op, a, short_b, dtype)


def compare(build: Builder, op: str, a: Any, b: Any, dtype: str) -> Ref:
    """Return the truth values of `a op b`, compared in `dtype`; `b` may be a number."""
    a = build.cast(a, dtype)
    shape = build.out_shape
    if _is_tensor(b):
        return build.add(op, (a, build.cast(b, dtype)), shape, "u32")
    if isinstance(b, float) and b in (float("inf"), float("-inf")):
        return build.add(op, (a, build.number(b, dtype)), shape, "u32")
    return build.add(op, (a, None), shape, "u32", {"scalar": _number(b, dtype)})


def _common_dtype(build: Builder, a: Any, b: Any) -> str:
    """Return the dtype in which torch compares `a` and `b`."""
    samples = [_sample(build, x) for x in (a, b)]
    return DTYPES.get(torch.result_type(*samples), "f32")


def _sample(build: Builder, x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x
    if isinstance(x, Ref):
        kinds = {"f32": torch.float32, "f16": torch.float16, "i32": torch.int64, "u32": torch.bool}
        shape = [1] * len(build.shape_of(x))
        return torch.zeros(shape, dtype=kinds[build.dtype(x)])
    return x if isinstance(x, (bool, int, float)) else 1


for _op in COMPARISONS:
    _comparison_rule(_op)


@lowers("aten.logical_not", "aten.bitwise_not")
def logical_not(build: Builder, x: Operand) -> Ref:
    if build.dtype(x) != "u32" and "bitwise" in str(build.node.target):
        raise Refused("bitwise_not of integers")
    return build.unary("logical_not", _truth(build, x))


def _truth_rule(names: tuple[str, ...], op: str) -> None:
    @lowers(*(f"aten.{name}" for name in names))
    def rule(build: Builder, a: Any, b: Any) -> Ref:
        if build.out_dtype != "u32":
            raise Refused("bitwise arithmetic of integers")
        a, b = (_truth(build, x) if _is_tensor(x) else x for x in (a, b))
        return build.add(op, (a, b), build.out_shape, "u32")


# Truth values are 0 and 1, so `and` is a product, `or` a maximum, `xor` a difference.
_truth_rule(("logical_and", "bitwise_and", "__and__"), "mul")
_truth_rule(("logical_or", "bitwise_or", "__or__"), "maximum")
_truth_rule(("logical_xor", "bitwise_xor", "__xor__"), "ne")


def _truth(build: Builder, x: Operand) -> Operand:
    if build.dtype(x) == "u32":
        return x
    return build.add("ne", (x, None), build.shape_of(x), "u32", {"scalar": 0})


@lowers("aten.where")
def where(build: Builder, condition: Operand, a: Any, b: Any) -> Ref:
    dtype = build.out_dtype
    a, b = (build.cast(x, dtype) if _is_tensor(x) else _filled(build, x, dtype) for x in (a, b))
    return build.add("where", (_truth(build, condition), a, b), build.out_shape, dtype)


@lowers("aten.masked_fill")
def masked_fill(build: Builder, x: Operand, mask: Operand, value: Any) -> Ref:
    return where(build, mask, value, x)


def _filled(build: Builder, value: Any, dtype: str) -> Operand:
    if isinstance(value, (str, Op)):
        return build.add("full", (), (), dtype, {"value": value})
    return build.number(value, dtype)


@lowers("aten._to_copy", "aten.to")
def to_copy(build: Builder, x: Operand, *_: Any, **__: Any) -> Operand:
    dtype = build.out_dtype
    return _truth(build, x) if dtype == "u32" else build.cast(x, dtype)
