"""Operators that move elements without computing: views, slices, copies, casts, constants.

Input:  nodes such as `permute(x, dims)`. Output: strided copies (one kernel), or none for `view`.
Way of the data: rows of `ops.registry`. Starts and steps may be expressions; they become
parameters.

    Node("n", "slice", ("x",), ("y",), {"dim": 1, "start": SymbolAttr("input_pos"), "step": 1})
"""

from __future__ import annotations

from runtime_py.ops import layout, slicing
from runtime_py.ops.base import Binding, Dispatch, KernelKey, Lowering, OpDef, Param, key
from runtime_py.ops.copying import dim_of, plain_copy, same_dtype_reason, strided_copy
from runtime_py.ops.elementwise import ANY_DTYPE, CHUNK, inputs, scalar_param
from runtime_py.schema import Graph, Node
from runtime_py.symbols import Shape, ceil_div, product, show_shape

NAN_BITS = 0x7FC00000

KEYS: tuple[KernelKey, ...] = (
    *(
        key("copy_strided", src=t, dst=t, rank=r)
        for t, r in zip(ANY_DTYPE, (1, 2, 4, 8), strict=True)
    ),
    *(key("copy_strided", src=t, dst="f32", rank=1) for t in ("f16", "i32", "u32")),
    *(key("copy_strided", src=t, dst="u32", rank=1) for t in ("f32", "f16", "i32")),
    *(key("copy_strided", src="f32", dst=t, rank=1) for t in ("f16", "i32")),
    *(key("fill", dtype=t) for t in ANY_DTYPE),
    *(key("index_select", dtype=t) for t in ("f32", "i32", "u32")),
)


def _declared(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.values[node.outputs[0]].shape,)


def _input_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.values[inputs(node)[0]].shape,)


def _check_view(graph: Graph, node: Node) -> str | None:
    before, after = graph.values[inputs(node)[0]].shape, graph.values[node.outputs[0]].shape
    if not layout.same(product(before), product(after)):
        return f"view of {show_shape(before)} as {show_shape(after)}: another number of elements"
    return same_dtype_reason(graph, node)


def _dims(node: Node) -> tuple[int, ...]:
    value = node.attrs.get("dims", ())
    dims = value if isinstance(value, tuple) else (value,)
    return tuple(int(str(dim)) for dim in dims)


def _check_permute(graph: Graph, node: Node) -> str | None:
    rank = len(graph.values[inputs(node)[0]].shape)
    if sorted(dim % max(rank, 1) for dim in _dims(node)) != list(range(rank)):
        return f"permute by {_dims(node)} of {rank} dimensions"
    return same_dtype_reason(graph, node)


def _permute_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    shape = graph.values[inputs(node)[0]].shape
    return (tuple(shape[dim] for dim in _dims(node)),)


def _lower_permute(ctx: Lowering, node: Node) -> list[Dispatch]:
    x, y = ctx.value(inputs(node)[0]), ctx.value(node.outputs[0])
    steps = layout.strides(x.shape)
    read = tuple(steps[dim] for dim in _dims(node))
    return [strided_copy(ctx, x.name, y.name, y.shape, (0, read), (0, layout.strides(y.shape)))]


def _check_expand(graph: Graph, node: Node) -> str | None:
    before, after = graph.values[inputs(node)[0]].shape, graph.values[node.outputs[0]].shape
    result = layout.broadcast(before, after)
    if result is None or not layout.same_shape(result, after):
        return f"expand of {show_shape(before)} to {show_shape(after)}"
    return same_dtype_reason(graph, node)


def _lower_expand(ctx: Lowering, node: Node) -> list[Dispatch]:
    x, y = ctx.value(inputs(node)[0]), ctx.value(node.outputs[0])
    read = layout.broadcast_strides(x.shape, y.shape)
    return [strided_copy(ctx, x.name, y.name, y.shape, (0, read), (0, layout.strides(y.shape)))]


def _check_copy(graph: Graph, node: Node) -> str | None:
    src, dst = (graph.values[name] for name in inputs(node))
    if not layout.same_shape(src.shape, dst.shape):
        return f"copy of {show_shape(src.shape)} into {dst.name} {show_shape(dst.shape)}"
    return layout.size_reason(graph, node)


def _lower_fill(ctx: Lowering, node: Node) -> list[Dispatch]:
    out = ctx.value(node.outputs[0])
    count = product(out.shape)
    constant = node.op == "full"
    start = node.attrs.get("value" if constant else "start", 0)
    step = 0 if constant else node.attrs.get("step", 1)
    params = (
        Param("n", "u32", count),
        scalar_param("start", out.dtype, start),
        scalar_param("step", out.dtype, step),
    )
    grid = layout.fold(ctx, ceil_div(count, CHUNK))
    return [
        Dispatch(key("fill", dtype=out.dtype), (Binding(out.name, "read_write"),), grid, params)
    ]


def _check_index_select(graph: Graph, node: Node) -> str | None:
    x, ids = (graph.values[name] for name in inputs(node))
    if ids.dtype != "i32" or len(ids.shape) != 1:
        return f"index_select by {ids.dtype} {show_shape(ids.shape)}, expected i32 [n]"
    if x.dtype == "f16":
        return "index_select of f16: cast to f32 first"
    return layout.size_reason(graph, node)


def _index_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    x, ids = (graph.values[name].shape for name in inputs(node))
    dim = dim_of(node, len(x))
    return ((*x[:dim], ids[0], *x[dim + 1 :]),)


def _lower_index_select(ctx: Lowering, node: Node) -> list[Dispatch]:
    x, ids = (ctx.value(name) for name in inputs(node))
    dim, out = dim_of(node, len(x.shape)), ctx.value(node.outputs[0])
    count = product(out.shape)
    numbers = {
        "n": count,
        "size": x.shape[dim],
        "count": ids.shape[0],
        "inner": product(x.shape[dim + 1 :]),
        "nan": NAN_BITS,
    }
    params = tuple(Param(name, "u32", value) for name, value in numbers.items())
    bindings = (Binding(x.name), Binding(ids.name), Binding(out.name, "read_write"))
    grid = layout.fold(ctx, ceil_div(count, CHUNK))
    return [Dispatch(key("index_select", dtype=x.dtype), bindings, grid, params)]


_STRIDED = ("copy_strided",)
OPS: tuple[OpDef, ...] = (
    OpDef(
        "view",
        (),
        ANY_DTYPE,
        "the same elements under another shape (an alias, no dispatch)",
        _check_view,
        _declared,
        lambda ctx, node: [],
        alias=True,
    ),
    OpDef(
        "permute",
        _STRIDED,
        ANY_DTYPE,
        "dimensions in another order",
        _check_permute,
        _permute_shape,
        _lower_permute,
    ),
    OpDef(
        "expand",
        _STRIDED,
        ANY_DTYPE,
        "dimensions of size 1 repeated to the output's shape",
        _check_expand,
        _declared,
        _lower_expand,
    ),
    OpDef(
        "slice",
        _STRIDED,
        ANY_DTYPE,
        "every step-th element of a dimension from start on",
        slicing.check_slice,
        _declared,
        slicing.lower_slice,
    ),
    OpDef(
        "slice_scatter",
        _STRIDED,
        ANY_DTYPE,
        "base with src written over a slice of a dimension",
        slicing.check_slice,
        _input_shape,
        slicing.lower_slice_scatter,
    ),
    OpDef(
        "cat",
        _STRIDED,
        ANY_DTYPE,
        "tensors one after another along a dimension",
        slicing.check_cat,
        slicing.cat_shape,
        slicing.lower_cat,
    ),
    OpDef(
        "copy",
        _STRIDED,
        ANY_DTYPE,
        "a whole buffer overwritten by a tensor of its shape",
        _check_copy,
        lambda graph, node: (),
        lambda ctx, node: [plain_copy(ctx, inputs(node)[0], inputs(node)[1])],
        mutates=True,
    ),
    OpDef(
        "cast",
        _STRIDED,
        ANY_DTYPE,
        "the same numbers as another dtype (u32 is truth, 0 or 1)",
        layout.size_reason,
        _input_shape,
        lambda ctx, node: [plain_copy(ctx, inputs(node)[0], node.outputs[0])],
    ),
    OpDef(
        "full",
        ("fill",),
        ANY_DTYPE,
        "one number (or expression) everywhere",
        layout.size_reason,
        _declared,
        _lower_fill,
    ),
    OpDef(
        "arange",
        ("fill",),
        ("f32", "f16", "i32"),
        "start, start + step, ...",
        layout.size_reason,
        _declared,
        _lower_fill,
    ),
    OpDef(
        "index_select",
        ("index_select",),
        ("f32", "i32", "u32"),
        "slices of a dimension by index",
        _check_index_select,
        _index_shape,
        _lower_index_select,
    ),
)
