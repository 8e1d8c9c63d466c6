"""Dimension expressions: integers, symbols and trees of + - * // over them.

Input:  JSON (`2048`, `"S"`, `["+", "S", "input_pos"]`) and symbol values or ranges.
Output: frozen expressions, their value for one step, their interval over a range of steps.
Way of the data: under `schema`; imports only `errors`. Nothing is ever `eval`-ed.

Integer division floors, as Python's does, and a zero divisor is an error on the host, never a
number.

    total = parse(["+", "S", "input_pos"])
    evaluate(total, {"S": 4, "input_pos": 12})               # 16
    bounds(total, {"S": (1, 512), "input_pos": (0, 1536)})   # (1, 2048)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from runtime_py.errors import BadBundleError, InputError

OPERATORS = ("+", "-", "*", "//")
MAX_DEPTH = 32
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


@dataclass(frozen=True)
class Op:
    """One operator over two expressions."""

    op: str
    left: Expr
    right: Expr


Expr: TypeAlias = "int | str | Op"
Shape: TypeAlias = "tuple[Expr, ...]"
Interval: TypeAlias = "tuple[int, int]"


def parse(data: object, depth: int = 0) -> Expr:
    """Return the expression that JSON `data` spells; raises `BadBundleError` on any other form."""
    if depth > MAX_DEPTH:
        raise BadBundleError(f"expression is nested deeper than {MAX_DEPTH}")
    if isinstance(data, bool):
        raise BadBundleError(f"expression is a boolean: {data}")
    if isinstance(data, int):
        if not INT32_MIN <= data <= INT32_MAX:
            raise BadBundleError(f"integer {data} in an expression does not fit int32")
        return data
    if isinstance(data, str):
        if not data.isidentifier():
            raise BadBundleError(f"{data!r} is not a symbol name")
        return data
    if isinstance(data, (list, tuple)) and len(data) == 3 and data[0] in OPERATORS:
        return Op(str(data[0]), parse(data[1], depth + 1), parse(data[2], depth + 1))
    raise BadBundleError(f"not an expression (integer, symbol or [op, a, b]): {data!r}")


def to_json(expr: Expr) -> object:
    """Return the JSON spelling of `expr`, the inverse of `parse`."""
    if isinstance(expr, Op):
        return [expr.op, to_json(expr.left), to_json(expr.right)]
    return expr


def names(expr: Expr) -> frozenset[str]:
    """Return the symbols that occur in `expr`."""
    if isinstance(expr, Op):
        return names(expr.left) | names(expr.right)
    return frozenset((expr,)) if isinstance(expr, str) else frozenset()


def evaluate(expr: Expr, values: Mapping[str, int]) -> int:
    """Return the value of `expr`; raises `InputError` on a missing symbol, a zero divisor or past
    int32."""
    if isinstance(expr, int):
        return expr
    if isinstance(expr, str):
        if expr not in values:
            raise InputError(f"symbol {expr!r} has no value", hint=f"pass {expr}=... to run()")
        return values[expr]
    result = _apply(expr.op, evaluate(expr.left, values), evaluate(expr.right, values), expr)
    if not INT32_MIN <= result <= INT32_MAX:
        raise InputError(f"{show(expr)} = {result} does not fit int32")
    return result


def bounds(expr: Expr, ranges: Mapping[str, Interval]) -> Interval:
    """Return `(least, greatest)` of `expr` over the box `ranges` (exact for +, - and *, safe for
    //)."""
    if isinstance(expr, int):
        return expr, expr
    if isinstance(expr, str):
        if expr not in ranges:
            raise BadBundleError(f"symbol {expr!r} is not declared")
        return ranges[expr]
    a, b = bounds(expr.left, ranges), bounds(expr.right, ranges)
    if expr.op == "//" and b[0] <= 0 <= b[1]:
        raise BadBundleError(f"the divisor of {show(expr)} can be zero")
    corners = [_apply(expr.op, x, y, expr) for x in a for y in b]
    return min(corners), max(corners)


def show(expr: Expr) -> str:
    """Return `expr` as a person writes it, for messages."""
    if isinstance(expr, Op):
        return f"({show(expr.left)} {expr.op} {show(expr.right)})"
    return str(expr)


def show_shape(shape: Shape) -> str:
    """Return a shape as `[1, S, 576]`."""
    return "[" + ", ".join(show(dim) for dim in shape) + "]"


def combine(op: str, left: Expr, right: Expr) -> Expr:
    """Return `left op right` with constants folded and neutral elements dropped."""
    if isinstance(left, int) and isinstance(right, int):
        return _apply(op, left, right, Op(op, left, right))
    neutral = {"+": 0, "-": 0, "*": 1, "//": 1}[op]
    if right == neutral:
        return left
    if op in ("+", "*") and left == neutral:
        return right
    if op == "*" and 0 in (left, right):
        return 0
    if op == "-" and left == right:
        return 0
    return Op(op, left, right)


def product(shape: Shape) -> Expr:
    """Return the number of elements of `shape`; constants are multiplied together first."""
    constant, rest = 1, []
    for dim in shape:
        if isinstance(dim, int):
            constant *= dim
        else:
            rest.append(dim)
    result: Expr = constant
    for dim in rest:
        result = combine("*", dim, result)
    return result


def ceil_div(expr: Expr, divisor: int) -> Expr:
    """Return `ceil(expr / divisor)` for a non-negative `expr` and a positive `divisor`."""
    return combine("//", combine("+", expr, divisor - 1), divisor)


def _apply(op: str, a: int, b: int, expr: Op) -> int:
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    if op == "*":
        return a * b
    if b == 0:
        raise InputError(f"division by zero in {show(expr)}")
    return a // b
