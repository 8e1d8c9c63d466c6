"""Shape arithmetic that the operator rows share: strides, broadcasting, merging, grids.

Input:  symbolic shapes.
Output: strides (in elements), fewer dimensions with the same element order, folded grids.
Way of the data: under the family modules of `ops`; knows no kernel. Symbols stay symbols: what
depends on them becomes a parameter of the dispatch, so that one pipeline serves every length.

    strides((2, "S", 64))                                   # (("S" * 64), 64, 1)
    collapse(("S", 8, 64), [(512, 64, 1)] * 2)              # one dimension of S * 512, strides 1
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runtime_py.errors import InternalError
from runtime_py.ops.base import Lowering, Param
from runtime_py.schema import Graph, Node
from runtime_py.symbols import Expr, Op, Shape, bounds, ceil_div, combine, product, show, show_shape

MAX_ELEMENTS = 2**31  # indices are u32 on the device, and element counts int32 on the host
MAX_RANK = 8
Terms = dict[tuple[str, ...], int]


def same(a: Expr, b: Expr) -> bool:
    """True if `a` and `b` are the same polynomial of the symbols (`S * 2 + S` equals `3 * S`)."""
    return a == b or _terms(a) == _terms(b)


def constant_difference(a: Expr, b: Expr) -> int | None:
    """Return `a - b` if that is a number whatever the symbols are, else None."""
    gap = _terms(Op("-", a, b))
    return gap.get((), 0) if not gap or list(gap) == [()] else None


def same_shape(a: Shape, b: Shape) -> bool:
    """True if two shapes agree in every dimension for all values of the symbols."""
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def strides(shape: Shape) -> Shape:
    """Return the row-major strides of `shape`, in elements."""
    result: list[Expr] = []
    step: Expr = 1
    for dim in reversed(shape):
        result.append(step)
        step = combine("*", dim, step)
    return tuple(reversed(result))


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """Return the shape to which `a` and `b` broadcast, or None if they do not."""
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    result: list[Expr] = []
    for x, y in pairs:
        if not (x == 1 or y == 1 or same(x, y)):
            return None
        result.append(y if x == 1 else x)
    return tuple(result)


def broadcast_strides(shape: Shape, out: Shape) -> Shape:
    """Return the strides that read a tensor of `shape` at the indices of `out` (0 = repeated)."""
    steps = (0,) * (len(out) - len(shape)) + strides(shape)
    sizes = (1,) * (len(out) - len(shape)) + shape
    return tuple(0 if size == 1 else step for size, step in zip(sizes, steps, strict=True))


def collapse(sizes: Shape, operands: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
    """Return sizes and strides of as few dimensions as address the same elements in order.

    Dimensions of size 1 go away, and two neighbours merge where all operands step over them evenly.
    """
    kept: list[tuple[Expr, list[Expr]]] = []
    for axis, size in enumerate(sizes):
        steps = [operand[axis] for operand in operands]
        if size == 1:
            continue
        if kept and all(
            same(o, combine("*", size, i)) for o, i in zip(kept[-1][1], steps, strict=True)
        ):
            kept[-1] = (combine("*", kept[-1][0], size), steps)
        else:
            kept.append((size, steps))
    if not kept:
        kept = [(1, [0] * len(operands))]
    columns = [tuple(steps[k] for _, steps in kept) for k in range(len(operands))]
    return tuple(size for size, _ in kept), columns


def shape_params(prefix: str, values: Iterable[Expr]) -> list[Param]:
    """Return one u32 parameter for each value: `prefix0`, `prefix1`, ..."""
    return [Param(f"{prefix}{index}", "u32", value) for index, value in enumerate(values)]


def fold(ctx: Lowering, groups: Expr) -> tuple[Expr, Expr, Expr]:
    """Return a grid of at least `groups` workgroups, none of whose sides passes the device's limit.

    The kernel counts `wid.x + wid.y * num_workgroups.x`; at most y - 1 workgroups are idle.
    """
    limit = ctx.caps.limit("maxComputeWorkgroupsPerDimension")
    rows = -(-max(ctx.upper(groups), 1) // limit)
    if rows > limit:
        raise InternalError(f"{show(groups)} workgroups do not fit a grid")
    return (ceil_div(groups, rows) if rows > 1 else groups), rows, 1


def indicator(ctx: Lowering, expr: Expr) -> Expr:
    """Return 1 where the non-negative `expr` is positive and 0 where it is 0, as an expression."""
    return ceil_div(expr, max(ctx.upper(expr), 1))


def size_reason(graph: Graph, node: Node) -> str | None:
    """Return why a tensor of `node` cannot be indexed on the device (too large, or empty)."""
    for name in (*node.inputs, *node.outputs, *node.mutates):
        if name is None:
            continue
        shape = graph.values[name].shape
        least, most = bounds(product(shape), graph.ranges)
        if most >= MAX_ELEMENTS:
            shown = f"{name} {show_shape(shape)} can have {most} elements"
            return f"{shown}, the most is {MAX_ELEMENTS - 1}"
        if least < 1:
            return f"{name} {show_shape(shape)} can be empty"
        if len(shape) > MAX_RANK:
            return f"{name} has {len(shape)} dimensions, the most is {MAX_RANK}"
    return None


def fits(graph: Graph, expr: Expr, limit: Expr) -> bool:
    """True if `expr <= limit` on every step, by the symbols' ranges or a declared constraint."""
    if bounds(combine("-", expr, limit), graph.ranges)[1] <= 0 or same(expr, limit):
        return True
    return any(
        isinstance(gap := constant_difference(combine("-", expr, limit), constraint.expr), int)
        and constraint.max + gap <= 0
        for constraint in graph.constraints
    )


def _terms(expr: Expr) -> Terms:
    if isinstance(expr, int):
        return {(): expr} if expr else {}
    if isinstance(expr, str):
        return {(expr,): 1}
    if expr.op == "//":
        return {(_canonical(expr),): 1}
    left, right = _terms(expr.left), _terms(expr.right)
    if expr.op == "*":
        pairs = [(tuple(sorted(a + b)), x * y) for a, x in left.items() for b, y in right.items()]
    else:
        sign = 1 if expr.op == "+" else -1
        pairs = [*left.items(), *((term, sign * count) for term, count in right.items())]
    total: Terms = {}
    for term, count in pairs:
        total[term] = total.get(term, 0) + count
    return {term: count for term, count in total.items() if count}


def _canonical(expr: Op) -> str:
    left, right = sorted(_terms(expr.left).items()), sorted(_terms(expr.right).items())
    return f"({left} // {right})"
