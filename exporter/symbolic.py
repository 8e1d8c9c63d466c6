"""Symbolic integers on the exporter's side: what the user declares, and what torch.export's
expressions become.

Input:  `Sym(min, max, at=...)` declarations; sympy expressions found in the captured graph.
Output: `runtime_py.symbols` expressions over the declared names, and the constraints that hold
between them.
Way of the data: used by `capture` (declaration, examples) and `emit` (translation).

    symbols = {"S": Sym(1, 512, at=[("q", 1), ("k", 1)]), "input_pos": Sym(0, 2047, at="input_pos")}
    to_expr(sympy.sympify("s0 + 1"), {"s0": "S"})        # Op("+", "S", 1)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd
from typing import Any, TypeAlias

from runtime_py.errors import ExportError, InputError
from runtime_py.schema import Constraint
from runtime_py.symbols import Expr, Interval, Op, bounds, combine, evaluate, show

Place: TypeAlias = "str | tuple[str, int]"
Linear: TypeAlias = "dict[str, int]"  # coefficient per symbol; the constant under ""


@dataclass(frozen=True)
class Sym:
    """A runtime integer in min..max. `at` says what it binds: an int argument, or (tensor argument,
    dim) pairs.

    An integer tensor of one element may be bound by name too, where the model reads it with
    `.item()`.
    """

    min: int
    max: int
    at: Place | Sequence[Place] = ()

    @property
    def is_fixed(self) -> bool:
        """True if the range is one value: the graph then holds that number."""
        return self.min == self.max

    @property
    def places(self) -> tuple[Place, ...]:
        """The bound places, whichever way `at` was written."""
        if isinstance(self.at, str):
            return (self.at,)
        if isinstance(self.at, tuple) and len(self.at) == 2 and isinstance(self.at[1], int):
            return ((str(self.at[0]), self.at[1]),)
        return tuple(place for place in self.at if not isinstance(place, int))


def to_expr(expr: Any, names: Mapping[str, str]) -> Expr:
    """Return the sympy expression `expr` over the declared names; raises `ExportError` on what we
    cannot say.

    Floor division stays one node (`FloorDiv`), and `a % b` becomes `a - b * (a // b)`, which floors
    as Python does.
    """
    if isinstance(expr, int):
        return expr
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        if str(expr) not in names:
            raise ExportError(
                f"{expr} depends on the data of a tensor (as `.item()` or a boolean index does)",
                hint="pass the number as an int argument and declare it in symbols=",
            )
        return names[str(expr)]
    kind = type(expr).__name__
    args = [to_expr(arg, names) for arg in expr.args]
    if kind == "Add":
        return _sum(args)
    if kind == "Mul":
        return reduce(
            lambda a, b: combine("*", a, b), sorted(args, key=lambda a: isinstance(a, int))
        )
    if kind in ("FloorDiv", "CleanDiv"):
        return combine("//", args[0], args[1])
    if kind in ("Mod", "PythonMod"):
        return combine("-", args[0], combine("*", combine("//", args[0], args[1]), args[1]))
    if kind in ("Pow", "PowByNatural") and isinstance(args[1], int) and 0 < args[1] <= 8:
        return reduce(lambda a, b: combine("*", a, b), [args[0]] * args[1])
    raise ExportError(
        f"symbolic arithmetic {expr} ({kind}) is none of + - * // %",
        hint="compute it from integers with + - * // %, or pass the result as another int argument",
    )


def _sum(args: list[Expr]) -> Expr:
    """Return the sum in one canonical order (symbols, products, then the constant); negative terms
    subtract.
    """
    positive = sorted((a for a in args if _sign(a) > 0), key=_order)
    negative = sorted((_negated(a) for a in args if _sign(a) < 0), key=_order)
    start: Expr = positive.pop(0) if positive else 0
    total = reduce(lambda a, b: combine("+", a, b), positive, start)
    return reduce(lambda a, b: combine("-", a, b), negative, total)


def _order(expr: Expr) -> tuple[bool, bool, str]:
    return isinstance(expr, int), isinstance(expr, Op), show(expr)


def _sign(expr: Expr) -> int:
    factor = expr.right if isinstance(expr, Op) and expr.op == "*" else expr
    return -1 if isinstance(factor, int) and factor < 0 else 1


def _negated(expr: Expr) -> Expr:
    if isinstance(expr, int):
        return -expr
    if isinstance(expr, Op) and isinstance(expr.right, int):
        return combine("*", expr.left, -expr.right)
    return combine("-", 0, expr)


def linear(expr: Expr) -> Linear | None:
    """Return the coefficients of `expr` if it is linear in the symbols, None otherwise."""
    if isinstance(expr, int):
        return {"": expr}
    if isinstance(expr, str):
        return {expr: 1}
    a, b = linear(expr.left), linear(expr.right)
    if a is None or b is None or expr.op == "//":
        return None
    if expr.op in ("+", "-"):
        factor = 1 if expr.op == "+" else -1
        keys = [*a, *(k for k in b if k not in a)]
        return {k: a.get(k, 0) + factor * b.get(k, 0) for k in keys}
    if set(a) <= {""}:
        a, b = b, a
    return {k: v * b.get("", 0) for k, v in a.items()} if set(b) <= {""} else None


def from_linear(terms: Linear) -> tuple[Expr, int]:
    """Return the symbolic part in canonical order, and the constant, of a linear form."""
    parts: list[Expr] = [
        combine("*", name, factor) for name, factor in terms.items() if name and factor
    ]
    return _sum(parts) if parts else 0, terms.get("", 0)


def same(a: Expr, b: Expr) -> bool:
    """True if `a` and `b` are equal for every value of the symbols, as far as linear forms tell."""
    if a == b:
        return True
    difference = linear(combine("-", a, b))
    return difference is not None and not any(difference.values())


class Domain:
    """The box of the symbols and the constraints on them; knows what follows and records what must
    be asked for.
    """

    def __init__(
        self, ranges: Mapping[str, Interval], constraints: Sequence[Constraint] = ()
    ) -> None:
        self.ranges = dict(ranges)
        self.constraints = list(constraints)

    def require(self, expr: Expr, limit: int) -> None:
        """Demand `expr <= limit`: nothing if it follows from what is known, a new constraint
        otherwise.
        """
        terms = linear(expr)
        if terms is not None:
            divisor = gcd(*(factor for name, factor in terms.items() if name)) or 1
            limit = (limit - terms.get("", 0)) // divisor
            expr, _ = from_linear(
                {name: factor // divisor for name, factor in terms.items() if name}
            )
        if bounds(expr, self.ranges)[1] <= limit or any(
            c.max <= limit and same(c.expr, expr) for c in self.constraints
        ):
            return
        if bounds(expr, self.ranges)[0] > limit:
            raise ExportError(f"{show(expr)} <= {limit} never holds for the declared symbols")
        self.constraints = [c for c in self.constraints if not same(c.expr, expr)]
        self.constraints.append(Constraint(expr, limit))

    def allows(self, point: Mapping[str, int]) -> bool:
        """True if `point` lies in the box and within every constraint."""
        inside = all(low <= point[name] <= high for name, (low, high) in self.ranges.items())
        return inside and all(_holds(c, point) for c in self.constraints)


def _holds(constraint: Constraint, point: Mapping[str, int]) -> bool:
    try:
        return evaluate(constraint.expr, point) <= constraint.max
    except InputError:
        return False
