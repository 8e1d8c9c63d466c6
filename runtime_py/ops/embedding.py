"""Where tokens enter and leave the model: embedding rows, the last rows of x, the greatest logit.

Input:  nodes `embedding`, `embedding_q`, `last_rows`, `argmax`.
Output: one dispatch, more for a table larger than one binding (one a window) and for long rows of
logits (two stages).
Way of the data: rows of `ops.registry`; the layout of weights is in `ops.weights`.

    attrs = {"scheme": "q8gsw", "group": 32, "width": 576}
    Node("n", "embedding_q", ("ids", "codes", "scales"), ("x",), attrs)
"""

from __future__ import annotations

from runtime_py.ops import layout, weights
from runtime_py.ops.base import Binding, Dispatch, KernelKey, Lowering, OpDef, Param, key
from runtime_py.ops.shape import OPS as SHAPES
from runtime_py.ops.weights import Weight
from runtime_py.schema import Graph, Node, expr_attr
from runtime_py.symbols import Shape, ceil_div, combine, product, show_shape

THREADS = 64
NAN_BITS = 0x7FC00000
ARGMAX_SPAN = 4096  # elements a workgroup: 64 a thread, and many workgroups for a vocabulary
MAX_PARTS = 256


def _weight(graph: Graph | Lowering, node: Node) -> Weight:
    values = graph.values if isinstance(graph, Graph) else graph.graph.values
    if node.op == "embedding":
        return weights.plain(values[str(node.inputs[1])])
    codes, scales = (values[str(name)] for name in node.inputs[1:3])
    return weights.quantised(node, codes, scales, "width")


def _lower_embedding(ctx: Lowering, node: Node) -> list[Dispatch]:
    weight, ids = _weight(ctx, node), str(node.inputs[0])
    chunks = combine("*", product(ctx.value(ids).shape), -(-weight.k // weight.chunk))
    grid = layout.fold(ctx, ceil_div(chunks, THREADS))
    result = []
    for first, rows in weight.windows(ctx.caps.limit("maxStorageBufferBindingSize")):
        params = (
            Param("n", "u32", chunks),
            Param("first", "i32", first),
            Param("rows", "i32", rows),
            Param("vocab", "i32", weight.rows),
            Param("nan", "u32", NAN_BITS),
        )
        y = Binding(node.outputs[0], "read_write")
        bindings = (Binding(ids), *weight.bindings(first, rows), y)
        result.append(Dispatch(key("embedding", **weight.axes()), bindings, grid, params))
    return result


def _check_embedding(graph: Graph, node: Node) -> str | None:
    ids, table = (graph.values[str(name)] for name in node.inputs[:2])
    if ids.dtype != "i32":
        return f"{node.op}: ids are {ids.dtype}, expected i32"
    if node.op == "embedding_q":
        reason = weights.reason_against(graph, node, "width")
    elif (
        table.dtype != "f32"
        or len(table.shape) != 2
        or not all(isinstance(d, int) for d in table.shape)
    ):
        reason = f"embedding: weight {table.dtype} {show_shape(table.shape)}, expected f32 [V, E]"
    else:
        reason = None
    return reason or layout.size_reason(graph, node)


def _embedding_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return ((*graph.values[str(node.inputs[0])].shape, _weight(graph, node).k),)


def _as_slice(graph: Graph, node: Node) -> Node:
    """Return `last_rows` as the slice along dimension 1 that it is."""
    start = combine("-", graph.values[str(node.inputs[0])].shape[1], expr_attr(node, "rows"))
    return Node(
        node.name, "slice", node.inputs, node.outputs, {"dim": 1, "start": start, "step": 1}
    )


def _lower_last_rows(ctx: Lowering, node: Node) -> list[Dispatch]:
    return _SLICE.lower(ctx, _as_slice(ctx.graph, node))


def _check_last_rows(graph: Graph, node: Node) -> str | None:
    x = graph.values[str(node.inputs[0])]
    if len(x.shape) != 3:
        return f"last_rows of {show_shape(x.shape)}, expected [B, S, E]"
    return layout.size_reason(graph, node)


def _last_rows_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    x = graph.values[str(node.inputs[0])].shape
    return ((x[0], expr_attr(node, "rows"), x[2]),)


def _lower_argmax(ctx: Lowering, node: Node) -> list[Dispatch]:
    x = ctx.value(str(node.inputs[0]))
    width, rows = int(str(x.shape[-1])), product(x.shape[:-1])
    span = max(ARGMAX_SPAN, -(-width // MAX_PARTS))
    parts = -(-width // span)
    across = layout.fold(ctx, rows)

    def stage(source: str, target: str, width: int, span: int, read: str, write: str) -> Dispatch:
        params = (
            Param("rows", "u32", rows),
            Param("width", "u32", width),
            Param("span", "u32", span),
        )
        grid = (-(-width // span), across[0], across[1])
        bindings = (Binding(read), Binding(write, "read_write"))
        return Dispatch(key("argmax", source=source, target=target), bindings, grid, params)

    ids = node.outputs[0]
    if parts == 1:
        return [stage("values", "ids", width, span, x.name, ids)]
    scratch = ctx.scratch(node, "parts", "u32", (rows, parts, 2))
    return [
        stage("values", "parts", width, span, x.name, scratch),
        stage("parts", "ids", parts, parts, scratch, ids),
    ]


def _check_argmax(graph: Graph, node: Node) -> str | None:
    x = graph.values[str(node.inputs[0])]
    if x.dtype != "f32" or not x.shape or not isinstance(x.shape[-1], int):
        return (
            f"argmax of {x.dtype} {show_shape(x.shape)}, expected f32 with a fixed last dimension"
        )
    return layout.size_reason(graph, node)


def _argmax_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.values[str(node.inputs[0])].shape[:-1],)


_SLICE = next(row for row in SHAPES if row.name == "slice")
OPS: tuple[OpDef, ...] = (
    OpDef(
        "embedding",
        ("embedding",),
        ("f32",),
        "rows of a table by id",
        _check_embedding,
        _embedding_shape,
        _lower_embedding,
    ),
    OpDef(
        "embedding_q",
        ("embedding",),
        ("f32",),
        "rows of a quantised table by id",
        _check_embedding,
        _embedding_shape,
        _lower_embedding,
    ),
    OpDef(
        "last_rows",
        _SLICE.kernels,
        ("f32",),
        "the last rows of x",
        _check_last_rows,
        _last_rows_shape,
        _lower_last_rows,
    ),
    OpDef(
        "argmax",
        ("argmax",),
        ("i32",),
        "index of the greatest element, -1 for NaN",
        _check_argmax,
        _argmax_shape,
        _lower_argmax,
    ),
)
KEYS: tuple[KernelKey, ...] = (
    key("embedding", scheme="q4gsw", scale_type="f16", group=32, k=64),
    key("embedding", scheme="q4gaw", scale_type="f16", group=32, k=576),
    key("embedding", scheme="q8gsw", scale_type="f16", group=32, k=576),
    key("embedding", scheme="q8gaw", scale_type="f32", group=20, k=77),
    key("embedding", scheme="f32", scale_type="f32", group=63, k=63),
    key("argmax", source="values", target="parts"),
    key("argmax", source="parts", target="ids"),
)
