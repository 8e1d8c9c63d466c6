"""Normalisations of the last dimension: RMS and layer norm.

Input:  nodes `rms_norm(x, weight?)`, `layer_norm(x, weight?, bias?)` with `eps`.
Output: one dispatch, a workgroup a row.
Way of the data: rows of `ops.registry`. The width is a parameter, so that one pipeline serves all
widths; threads and vector width depend on the width alone, never on the number of rows, so a row
has the same bits in any company.

    Node("n", "rms_norm", ("x", "w"), ("y",), {"eps": 1e-5})
"""

from __future__ import annotations

from runtime_py.ops import layout
from runtime_py.ops.base import Binding, Dispatch, KernelKey, Lowering, OpDef, Param, key
from runtime_py.schema import Graph, Node
from runtime_py.symbols import Shape, product, show_shape

WIDE = (
    2048  # rows from here on get 256 threads: enough work a thread to pay for the wider reduction
)

KEYS: tuple[KernelKey, ...] = (
    key("rms_norm", dtype="f32", vec=4, threads=64, weight=True),
    key("rms_norm", dtype="f32", vec=1, threads=256, weight=False),
    key("rms_norm", dtype="f16", vec=4, threads=256, weight=True),
    key("layer_norm", dtype="f32", vec=4, threads=64, weight=True, bias=True),
    key("layer_norm", dtype="f32", vec=1, threads=256, weight=False, bias=False),
    key("layer_norm", dtype="f16", vec=1, threads=64, weight=True, bias=False),
)


def _check(graph: Graph, node: Node) -> str | None:
    names = [name for name in node.inputs if name is not None]
    x = graph.values[names[0]]
    if not x.shape or not isinstance(x.shape[-1], int):
        return f"{node.op} over {show_shape(x.shape)}: the last dimension must be a fixed size"
    if x.dtype not in ("f32", "f16"):
        return f"{node.op} of {x.dtype}: cast to f32 first"
    for name in names[1:]:
        weight = graph.values[name]
        if weight.shape != x.shape[-1:] or weight.dtype != "f32":
            found = f"{name} is {weight.dtype} {show_shape(weight.shape)}"
            return f"{node.op}: {found}, expected f32 [{x.shape[-1]}]"
    return layout.size_reason(graph, node)


def _shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.values[str(node.inputs[0])].shape,)


def _lower(ctx: Lowering, node: Node) -> list[Dispatch]:
    x, y = ctx.value(str(node.inputs[0])), node.outputs[0]
    width, rows = int(str(x.shape[-1])), product(x.shape[:-1])
    weights = [name for name in node.inputs[1:] if name is not None]
    flags = {"weight": len(node.inputs) > 1 and node.inputs[1] is not None}
    if node.op == "layer_norm":
        flags["bias"] = len(node.inputs) > 2 and node.inputs[2] is not None
    vec, threads = 4 if width % 4 == 0 else 1, 256 if width >= WIDE else 64
    params = (
        Param("rows", "u32", rows),
        Param("units", "u32", width // vec),
        Param("width", "f32", float(width)),
        Param("eps", "f32", float(str(node.attrs.get("eps", 1e-5)))),
    )
    bindings = (Binding(x.name), *(Binding(name) for name in weights), Binding(y, "read_write"))
    kernel_key = key(node.op, dtype=x.dtype, vec=vec, threads=threads, **flags)
    reason = f"a row of {width} in {threads} threads"
    return [Dispatch(kernel_key, bindings, layout.fold(ctx, rows), params, reason)]


OPS: tuple[OpDef, ...] = (
    OpDef(
        "rms_norm",
        ("rms_norm",),
        ("f32", "f16"),
        "x / sqrt(mean(x^2) + eps) * weight",
        _check,
        _shape,
        _lower,
    ),
    OpDef(
        "layer_norm",
        ("layer_norm",),
        ("f32", "f16"),
        "(x - mean) / sqrt(variance + eps) * weight + bias",
        _check,
        _shape,
        _lower,
    ),
)
