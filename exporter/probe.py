"""Probe: check a captured graph where torch.export takes its word for it.

Input:  a `Captured` and the module it came from.
Output: nothing (its domain may gain constraints), or an `ExportError` that names the symbol and the
model's line.
Way of the data: beside `capture` -> `emit`.

torch.export assumes that every symbolic size is at least 2, and records as guards what else it
assumed. A guard that holds everywhere is fine; one between two symbols (`pos + S <= 2048`) becomes
a constraint of the bundle; one that fails somewhere in the declared range is settled by running the
module and the graph there and comparing.

    settle(captured, model)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from traceback import FrameSummary
from typing import Any, TypeAlias

import torch
from torch import nn

from exporter.capture import Captured, as_traced
from exporter.eager import mutated_buffers, run_module
from exporter.examples import set_symbols
from exporter.ops import cached_weights
from exporter.symbolic import linear, to_expr
from runtime_py.errors import ExportError
from runtime_py.symbols import Expr, bounds, combine, show

Point: TypeAlias = "dict[str, int]"
MAX_POINTS = 4096
TORCH = str(Path(torch.__file__).parent)
RTOL, ATOL = (
    1e-3,
    1e-4,
)  # another size may take another kernel; a wrong path differs in the first digits


@dataclass(frozen=True)
class Assumption:
    """A guard of torch: its sympy form, where it arose, and whether a line of the model asked for
    it.
    """

    expr: Any
    where: str
    by_user: bool


def settle(captured: Captured, module: nn.Module, *, run: bool = True) -> None:
    """Turn guards into constraints and (if `run`) execute the doubtful points; raises
    `ExportError`.
    """
    doubts: dict[tuple[int, ...], tuple[Point, str]] = {}
    for assumption in assumptions(captured):
        for point in _doubtful(captured, assumption):
            doubts.setdefault(tuple(point.values()), (point, assumption.where))
    for point in _corners(captured):
        doubts.setdefault(tuple(point.values()), (point, "the smallest sizes"))
    with cached_weights():
        for point, where in doubts.values() if run else ():
            if captured.domain.allows(point):
                compare_at(captured, module, point, where)


def assumptions(captured: Captured) -> list[Assumption]:
    """Return torch's guards over declared symbols, conjunctions taken apart."""
    result = []
    for guard in _guards(captured):
        terms = guard.expr.args if type(guard.expr).__name__ == "And" else (guard.expr,)
        where, by_user = _origin(guard)
        result += [
            Assumption(term, where, by_user)
            for term in terms
            if all(str(s) in captured.names for s in term.free_symbols) and term.free_symbols
        ]
    return result


def _guards(captured: Captured) -> list[Any]:
    for node in captured.program.graph.nodes:
        value = node.meta.get("val")
        for number in (value, *(value.shape if isinstance(value, torch.Tensor) else ())):
            if isinstance(number, torch.SymInt):
                return list(number.node.shape_env.guards)
    return []


def _origin(guard: Any) -> tuple[str, bool]:
    """Return the model's line of a guard ("" if torch has none), and True if that line itself
    branched.
    """
    place = getattr(guard.sloc, "framework_loc", None)
    if isinstance(place, FrameSummary):
        by_user = not place.filename.startswith(TORCH)
        return (
            f"{Path(place.filename).name}:{place.lineno}  {place.line}" if by_user else ""
        ), by_user
    user = getattr(guard.sloc, "maybe_user_loc", None)
    return str(user or ""), False


def _doubtful(captured: Captured, assumption: Assumption) -> list[Point]:
    """Return points of the domain where `assumption` fails and running must decide; may add a
    constraint.
    """
    limit = _as_limit(captured, assumption.expr)
    if limit is not None and not assumption.by_user:
        expr, most = limit
        symbols = [name for name in (linear(expr) or {}) if name]
        if len(symbols) > 1:
            captured.domain.require(expr, most)
            return []
        if len(symbols) == 1 and _narrows(captured, symbols[0], assumption):
            raise ExportError(
                f"symbol {symbols[0]!r} is declared {_span(captured, symbols[0])}, but the model "
                "only works "
                f"where {_named(captured, assumption.expr)}  {assumption.where}",
                hint="narrow the range to what the model's tensors can hold",
            )
    failing = [p for p in _points(captured) if not _holds_at(captured, assumption.expr, p)]
    return _telling(captured, assumption.expr, failing)


def _telling(captured: Captured, expr: Any, failing: list[Point]) -> list[Point]:
    """Return the cheapest failing point, and the cheapest at the other end of what the guard is
    about.

    Values of 0 and 1 are no news: torch excludes them everywhere, and one run at the least sizes
    tells.
    """
    about = [captured.names[str(symbol)] for symbol in expr.free_symbols]
    by_cost = sorted(failing, key=lambda point: sum(point.values()))
    first = by_cost[:1]
    far = sorted(by_cost, key=lambda point: -max(point[name] for name in about))[:1]
    grown = [p for p in far if max(p[name] for name in about) > 1 and p not in first]
    return first + grown


def _as_limit(captured: Captured, expr: Any) -> tuple[Expr, int] | None:
    """Return `expr` as (e, limit) meaning `e <= limit`, None if it is no linear inequality."""
    kind = type(expr).__name__
    if kind not in ("GreaterThan", "StrictGreaterThan", "LessThan", "StrictLessThan"):
        return None
    left, right = (to_expr(side, captured.names) for side in expr.args)
    if "Greater" in kind:
        left, right = right, left
    difference = combine("-", left, right)
    return (difference, -1 if kind.startswith("Strict") else 0) if linear(difference) else None


def _narrows(captured: Captured, symbol: str, assumption: Assumption) -> bool:
    """True if a one-symbol guard fails at a value of 2 or more (below that, torch's own 0/1 habits
    speak).
    """
    low, high = captured.domain.ranges[symbol]
    others = dict.fromkeys(captured.domain.ranges, 2)
    return any(
        not _holds_at(captured, assumption.expr, {**others, symbol: value})
        for value in {max(2, low), high}
        if value >= 2
    )


def _holds_at(captured: Captured, expr: Any, point: Mapping[str, int]) -> bool:
    values = {s: point[captured.names[str(s)]] for s in expr.free_symbols}
    return bool(expr.subs(values))


def _points(captured: Captured) -> list[Point]:
    """Return allowed points: small values, the ends, the middle, and numbers that the guards
    mention.
    """
    mentioned = {
        int(n) + d
        for a in assumptions(captured)
        for n in a.expr.atoms()
        if n.is_Integer
        for d in (-1, 0, 1)
    }
    axes: list[list[int]] = []
    for low, high in captured.domain.ranges.values():
        some = {low, low + 1, 2, 3, (low + high) // 2, high - 1, high, *mentioned}
        axes.append(sorted(v for v in some if low <= v <= high))
    grid = itertools.islice(itertools.product(*axes), MAX_POINTS)
    named = (dict(zip(captured.domain.ranges, point, strict=True)) for point in grid)
    return [point for point in named if captured.domain.allows(point)]


def _corners(captured: Captured) -> Iterator[Point]:
    """Yield the point of least values, if it has a 0 or a 1 that torch has never seen."""
    least = {name: low for name, (low, _) in captured.domain.ranges.items()}
    if any(low < 2 for low in least.values()) and captured.domain.allows(least):
        yield least


def compare_at(captured: Captured, module: nn.Module, point: Point, where: str) -> None:
    """Run module and graph at `point`; raises `ExportError` if the module fails there or the two
    differ.
    """
    arguments = _stirred(set_symbols(captured.arguments, captured.symbols, point))
    mutated = mutated_buffers(captured)
    at = ", ".join(f"{name}={value}" for name, value in point.items())
    try:
        want = run_module(module, arguments, mutated)
    except Exception as error:
        raise ExportError(
            f"the model does not run at {at}, which the declared symbols allow: {error}",
            hint="narrow a range, or add constraints=[(expression, greatest value)]",
        ) from error
    try:
        got = run_module(_graph_module(captured), as_traced(arguments, captured.scalars), mutated)
    except Exception as error:
        raise ExportError(f"the captured graph does not run at {at}: {error}  {where}") from error
    for name, tensor in want.items():
        if not _close(got.get(name), tensor):
            raise ExportError(
                f"at {at} the model computes something else than at the traced sizes (output "
                f"{name!r})  {where}",
                hint="a Python `if` or `int()` on a symbolic size freezes one path; use "
                "torch.where, or narrow the range",
            )


def _stirred(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Add fixed random numbers of 0..1 to float inputs: on zeros or ones two paths may agree by
    chance.
    """
    chance = torch.Generator().manual_seed(0)
    return {
        name: value + torch.rand(value.shape, generator=chance, dtype=value.dtype)
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
        for name, value in arguments.items()
    }


def _graph_module(captured: Captured) -> nn.Module:
    """Return the captured graph as a module that takes any size: its own checks know only what
    torch assumed.
    """
    module = captured.program.module(check_guards=False)
    module._forward_pre_hooks.clear()
    return module


def _close(got: torch.Tensor | None, want: torch.Tensor) -> bool:
    if got is None or got.shape != want.shape:
        return False
    if not want.is_floating_point():
        return bool(torch.equal(got, want))
    return bool(torch.allclose(got, want, rtol=RTOL, atol=ATOL, equal_nan=True))


def _span(captured: Captured, symbol: str) -> str:
    low, high = captured.domain.ranges[symbol]
    return f"{low}..{high}"


def _named(captured: Captured, expr: Any) -> str:
    limit = _as_limit(captured, expr)
    if limit is None:
        return str(expr)
    low, _ = bounds(limit[0], captured.domain.ranges)
    return f"{show(limit[0])} <= {limit[1]}" if low <= limit[1] else str(expr)
