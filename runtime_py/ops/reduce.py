"""Operators that reduce a dimension: sum, mean, amax, softmax, matmul.

Input:  nodes such as `mean(x, dims=(-1,), keepdim=True)` or `matmul(a, b)`.
Output: one dispatch a node.
Way of the data: rows of `ops.registry`. Sizes are parameters; ranks (after merging) are axes.

    Node("n", "matmul", ("a", "b"), ("y",))     # [..., M, K] x [..., K, N] -> [..., M, N]
"""

from __future__ import annotations

from runtime_py.ops import layout
from runtime_py.ops.base import Binding, Dispatch, KernelKey, Lowering, OpDef, Param, key
from runtime_py.schema import Graph, Node
from runtime_py.symbols import Shape, ceil_div, combine, product, show_shape

WIDE = 2048
FLOATS = ("f32", "f16")

KEYS: tuple[KernelKey, ...] = (
    key("softmax", dtype="f32", threads=64),
    key("softmax", dtype="f16", threads=256),
    key("reduce", op="sum", dtype="f32", kept=1, gone=1),
    key("reduce", op="mean", dtype="f16", kept=2, gone=2),
    key("reduce", op="amax", dtype="i32", kept=4, gone=1),
    key("reduce", op="amax", dtype="f32", kept=1, gone=8),
    key("matmul", dtype="f32", rank=1, rows=1),
    key("matmul", dtype="f32", rank=2, rows=4),
    key("matmul", dtype="f16", rank=8, rows=4),
)


def _shape_of(graph: Graph, node: Node, index: int = 0) -> Shape:
    return graph.values[str(node.inputs[index])].shape


def _check_softmax(graph: Graph, node: Node) -> str | None:
    x = graph.values[str(node.inputs[0])]
    dim = int(str(node.attrs.get("dim", -1)))
    if not x.shape or dim % len(x.shape) != len(x.shape) - 1:
        return (
            f"softmax over dimension {dim} of {show_shape(x.shape)}: only the last one is supported"
        )
    if x.dtype not in FLOATS:
        return f"softmax of {x.dtype}: cast to f32 first"
    return layout.size_reason(graph, node)


def _lower_softmax(ctx: Lowering, node: Node) -> list[Dispatch]:
    x = ctx.value(str(node.inputs[0]))
    rows, width = product(x.shape[:-1]), x.shape[-1]
    threads = 256 if ctx.upper(width) >= WIDE else 64
    params = (Param("rows", "u32", rows), Param("width", "u32", width))
    bindings = (Binding(x.name), Binding(node.outputs[0], "read_write"))
    kernel_key = key("softmax", dtype=x.dtype, threads=threads)
    return [Dispatch(kernel_key, bindings, layout.fold(ctx, rows), params)]


def _reduced(node: Node, rank: int) -> tuple[int, ...]:
    """Return the reduced dimensions counted from the front; none given means all."""
    dims = node.attrs.get("dims", ())
    listed = dims if isinstance(dims, tuple) else (dims,)
    return tuple(sorted({int(str(dim)) % max(rank, 1) for dim in listed})) or tuple(range(rank))


def _check_reduce(graph: Graph, node: Node) -> str | None:
    x = graph.values[str(node.inputs[0])]
    if x.dtype == "u32" or (x.dtype == "i32" and node.op == "mean"):
        return f"{node.op} of {x.dtype}: cast first"
    return layout.size_reason(graph, node)


def _reduce_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    shape = _shape_of(graph, node)
    gone = _reduced(node, len(shape))
    if node.attrs.get("keepdim", False):
        return (tuple(1 if axis in gone else dim for axis, dim in enumerate(shape)),)
    return (tuple(dim for axis, dim in enumerate(shape) if axis not in gone),)


def _lower_reduce(ctx: Lowering, node: Node) -> list[Dispatch]:
    x, y = ctx.value(str(node.inputs[0])), ctx.value(node.outputs[0])
    steps, gone = layout.strides(x.shape), _reduced(node, len(x.shape))
    kept = tuple(axis for axis in range(len(x.shape)) if axis not in gone)
    kept_sizes, (kept_steps,) = layout.collapse(
        tuple(x.shape[axis] for axis in kept), [tuple(steps[axis] for axis in kept)]
    )
    gone_sizes, (gone_steps,) = layout.collapse(
        tuple(x.shape[axis] for axis in gone), [tuple(steps[axis] for axis in gone)]
    )
    count = product(y.shape)
    params = (
        Param("n", "u32", count),
        Param("width", "u32", product(gone_sizes)),
        *layout.shape_params("kept", kept_sizes),
        *layout.shape_params("o", kept_steps),
        *layout.shape_params("gone", gone_sizes),
        *layout.shape_params("r", gone_steps),
    )
    kernel_key = key(
        "reduce", op=node.op, dtype=x.dtype, kept=len(kept_sizes), gone=len(gone_sizes)
    )
    bindings = (Binding(x.name), Binding(y.name, "read_write"))
    return [Dispatch(kernel_key, bindings, layout.fold(ctx, count), params)]


def _check_matmul(graph: Graph, node: Node) -> str | None:
    a, b = (graph.values[str(name)] for name in node.inputs[:2])
    if a.dtype != b.dtype or a.dtype not in FLOATS:
        return f"matmul of {a.dtype} and {b.dtype}: expected twice f32 or twice f16"
    if len(a.shape) < 2 or len(b.shape) < 2 or not layout.same(a.shape[-1], b.shape[-2]):
        return f"matmul of {show_shape(a.shape)} and {show_shape(b.shape)}"
    if layout.broadcast(a.shape[:-2], b.shape[:-2]) is None:
        shapes = f"{show_shape(a.shape)} and {show_shape(b.shape)}"
        return f"matmul of {shapes}: the stacks do not broadcast"
    return layout.size_reason(graph, node)


def _matmul_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    a, b = _shape_of(graph, node, 0), _shape_of(graph, node, 1)
    stack = layout.broadcast(a[:-2], b[:-2])
    return () if stack is None else ((*stack, a[-2], b[-1]),)


def _lower_matmul(ctx: Lowering, node: Node) -> list[Dispatch]:
    a, b = (ctx.value(str(name)) for name in node.inputs[:2])
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    stack = layout.broadcast(a.shape[:-2], b.shape[:-2]) or ()
    sizes, (a_steps, b_steps) = layout.collapse(
        stack, [_stack_strides(a.shape, stack), _stack_strides(b.shape, stack)]
    )
    rows = 1 if ctx.upper(m) <= 8 else 4
    tiles = combine("*", product(sizes), combine("*", ceil_div(m, 8 * rows), ceil_div(n, 32)))
    params = (
        Param("M", "u32", m),
        Param("N", "u32", n),
        Param("K", "u32", k),
        Param("tiles", "u32", tiles),
        *layout.shape_params("d", sizes),
        *layout.shape_params("a", a_steps),
        *layout.shape_params("b", b_steps),
    )
    bindings = (Binding(a.name), Binding(b.name), Binding(node.outputs[0], "read_write"))
    kernel_key = key("matmul", dtype=a.dtype, rank=len(sizes), rows=rows)
    reason = f"at most {ctx.upper(m)} rows: {rows} a thread"
    return [Dispatch(kernel_key, bindings, layout.fold(ctx, tiles), params, reason)]


def _stack_strides(shape: Shape, stack: Shape) -> Shape:
    matrix = product(shape[-2:])
    steps = layout.broadcast_strides(shape[:-2], stack)
    return tuple(combine("*", matrix, step) for step in steps)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "softmax",
        ("softmax",),
        FLOATS,
        "softmax over the last dimension",
        _check_softmax,
        lambda graph, node: (_shape_of(graph, node),),
        _lower_softmax,
    ),
    *(
        OpDef(
            op,
            ("reduce",),
            (*FLOATS, "i32"),
            f"{op} over some dimensions",
            _check_reduce,
            _reduce_shape,
            _lower_reduce,
        )
        for op in ("sum", "mean", "amax")
    ),
    OpDef(
        "matmul",
        ("matmul",),
        FLOATS,
        "product of two stacks of matrices, the stacks broadcast",
        _check_matmul,
        _matmul_shape,
        _lower_matmul,
    ),
)
