"""Operators that treat every element alone: arithmetic, comparisons, functions, `where`.

Input:  nodes such as `add(a, b)` or `mul(a, scalar=0.5)`. Output: one dispatch a node.
Way of the data: rows of `ops.registry`. Operands broadcast through strides; neighbouring dimensions
that every operand steps over evenly are merged first, so tensors of equal shapes need one dimension
and share one pipeline.

    Node("n", "mul", ("x",), ("y",), {"scalar": 0.125})     # y = x * 0.125
"""

from __future__ import annotations

from collections.abc import Callable

from runtime_py.ops import layout
from runtime_py.ops.base import Binding, Dispatch, KernelKey, Lowering, OpDef, Param, key
from runtime_py.schema import Attr, Graph, Node, SymbolAttr
from runtime_py.symbols import Expr, Op, Shape, ceil_div, product, show_shape

CHUNK = 1024  # elements of a workgroup in the element kernels
ARITHMETIC = ("add", "sub", "mul", "div", "maximum", "minimum", "pow")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
FUNCTIONS = [
    "neg",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "abs",
    "tanh",
    "sigmoid",
    "silu",
    "gelu",
    "gelu_tanh",
    "relu",
    "reciprocal",
    "square",
    "logical_not",
]
ANY_DTYPE = ("f32", "f16", "i32", "u32")
INTEGER_FUNCTIONS = ("neg", "abs", "relu", "square", "logical_not")
POWERS = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}

KEYS: tuple[KernelKey, ...] = (
    *(key("binary", op=op, dtype="f32", rank=1, scalar=False, reverse=False) for op in ARITHMETIC),
    *(key("binary", op=op, dtype="i32", rank=1, scalar=True, reverse=False) for op in COMPARISONS),
    key("binary", op="add", dtype="f16", rank=2, scalar=False, reverse=False),
    key("binary", op="maximum", dtype="u32", rank=8, scalar=False, reverse=False),
    key("binary", op="sub", dtype="f32", rank=4, scalar=True, reverse=True),
    *(key("unary", op=op, dtype="f32") for op in FUNCTIONS),
    key("unary", op="neg", dtype="i32"),
    key("unary", op="exp", dtype="f16"),
    key("unary", op="logical_not", dtype="u32"),
    *(
        key("where", dtype=dtype, rank=rank)
        for dtype, rank in zip(ANY_DTYPE, (1, 2, 4, 8), strict=True)
    ),
)


def scalar_param(name: str, dtype: str, value: Attr | Expr) -> Param:
    """Return parameter `name` of the type in which `dtype` is computed.

    `value` is a number or an expression.
    """
    kind = "f32" if dtype == "f16" else dtype
    if isinstance(value, SymbolAttr):
        return Param(name, kind, value.name)
    if isinstance(value, (str, Op)):
        return Param(name, kind, value)
    if not isinstance(value, (bool, int, float)):
        raise TypeError(f"{name} is {value!r}, expected a number or an expression")
    return Param(name, kind, float(value) if kind == "f32" else int(value))


def inputs(node: Node) -> tuple[str, ...]:
    """Return the inputs that are present."""
    return tuple(name for name in node.inputs if name is not None)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, SymbolAttr, Op))


def _check_binary(graph: Graph, node: Node) -> str | None:
    names = inputs(node)
    if not 1 <= len(names) <= 2:
        return f"{node.op} takes one or two tensors, found {len(names)}"
    dtypes = {graph.values[name].dtype for name in names}
    if len(dtypes) > 1:
        return f"{node.op} of {' and '.join(sorted(dtypes))}: cast one of them"
    if node.op in ("div", "pow") and not dtypes <= {"f32", "f16"}:
        return f"{node.op} of integers is not supported: cast to f32 first"
    if len(names) == 1:
        if not _is_number(node.attrs.get("scalar")):
            return f"{node.op} of one tensor needs a number, found {node.attrs.get('scalar')!r}"
    elif _broadcast(graph, names) is None:
        return f"{node.op}: {_shapes(graph, names)} do not broadcast"
    return layout.size_reason(graph, node)


def _shapes(graph: Graph, names: tuple[str, ...]) -> str:
    return " and ".join(show_shape(graph.values[name].shape) for name in names)


def _broadcast(graph: Graph, names: tuple[str, ...]) -> Shape | None:
    result: Shape | None = graph.values[names[0]].shape
    for name in names[1:]:
        result = None if result is None else layout.broadcast(result, graph.values[name].shape)
    return result


def _broadcast_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    shape = _broadcast(graph, inputs(node))
    return () if shape is None else (shape,)


def _strided(
    ctx: Lowering,
    node: Node,
    prefixes: str,
    kernel_key: Callable[[int], KernelKey],
    extra: list[Param],
) -> list[Dispatch]:
    names = inputs(node)
    out = ctx.value(node.outputs[0]).shape
    operands = [layout.broadcast_strides(ctx.value(name).shape, out) for name in names]
    sizes, steps = layout.collapse(out, [*operands, layout.strides(out)])
    params = [Param("n", "u32", product(out)), *layout.shape_params("d", sizes)]
    for prefix, step in zip(prefixes, steps, strict=False):
        params += layout.shape_params(prefix, step)
    bindings = (*(Binding(name) for name in names), Binding(node.outputs[0], "read_write"))
    grid = layout.fold(ctx, ceil_div(product(out), CHUNK))
    return [Dispatch(kernel_key(len(sizes)), bindings, grid, (*params, *extra))]


def _lower_binary(ctx: Lowering, node: Node) -> list[Dispatch]:
    names = inputs(node)
    dtype, scalar = ctx.value(names[0]).dtype, node.attrs.get("scalar")
    single, reverse = len(names) == 1, bool(node.attrs.get("reverse", False))
    if node.op == "pow" and not reverse and isinstance(scalar, (int, float)) and scalar in POWERS:
        return _unary(ctx, node, POWERS[scalar])
    extra = [scalar_param("scalar", dtype, scalar)] if single else []

    def kernel_key(rank: int) -> KernelKey:
        return key("binary", op=node.op, dtype=dtype, rank=rank, scalar=single, reverse=reverse)

    return _strided(ctx, node, "a" if single else "ab", kernel_key, extra)


def _check_unary(graph: Graph, node: Node) -> str | None:
    dtype = graph.values[inputs(node)[0]].dtype
    if dtype in ("i32", "u32") and node.op not in INTEGER_FUNCTIONS:
        return f"{node.op} of {dtype}: cast to f32 first"
    if dtype == "u32" and node.op in ("neg", "abs"):
        return f"{node.op} of u32 (truth values) has no meaning"
    return layout.size_reason(graph, node)


def _same_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.values[inputs(node)[0]].shape,)


def _unary(ctx: Lowering, node: Node, op: str) -> list[Dispatch]:
    x = ctx.value(inputs(node)[0])
    count = product(x.shape)
    bindings = (Binding(x.name), Binding(node.outputs[0], "read_write"))
    grid = layout.fold(ctx, ceil_div(count, CHUNK))
    return [
        Dispatch(key("unary", op=op, dtype=x.dtype), bindings, grid, (Param("n", "u32", count),))
    ]


def _check_where(graph: Graph, node: Node) -> str | None:
    names = inputs(node)
    if len(names) != 3:
        return f"where takes a condition and two tensors, found {len(names)} inputs"
    condition, left, right = (graph.values[name] for name in names)
    if condition.dtype != "u32" or left.dtype != right.dtype:
        found = f"{condition.dtype}, {left.dtype}, {right.dtype}"
        return f"where of {found}: expected u32 and twice the same"
    if _broadcast(graph, names) is None:
        return f"where: {_shapes(graph, names)} do not broadcast"
    return layout.size_reason(graph, node)


def _lower_where(ctx: Lowering, node: Node) -> list[Dispatch]:
    dtype = ctx.value(inputs(node)[1]).dtype
    return _strided(ctx, node, "cab", lambda rank: key("where", dtype=dtype, rank=rank), [])


OPS: tuple[OpDef, ...] = (
    *(
        OpDef(
            op,
            ("binary", "unary"),
            ANY_DTYPE,
            f"{op} of two tensors, or a tensor and a number, broadcast",
            _check_binary,
            _broadcast_shape,
            _lower_binary,
        )
        for op in ARITHMETIC
    ),
    *(
        OpDef(
            op,
            ("binary",),
            ANY_DTYPE,
            f"{op} comparison, 1 or 0, broadcast",
            _check_binary,
            _broadcast_shape,
            _lower_binary,
        )
        for op in COMPARISONS
    ),
    *(
        OpDef(
            op,
            ("unary",),
            ANY_DTYPE if op in INTEGER_FUNCTIONS else ("f32", "f16"),
            f"{op} of each element",
            _check_unary,
            _same_shape,
            lambda ctx, node: _unary(ctx, node, node.op),
        )
        for op in FUNCTIONS
    ),
    OpDef(
        "where",
        ("where",),
        ANY_DTYPE,
        "elements of a where cond holds, else of b, broadcast",
        _check_where,
        _broadcast_shape,
        _lower_where,
    ),
)
