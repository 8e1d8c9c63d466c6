"""Linear layers: rows of the registry, and the choice of a kernel by the number of rows of x.

Input:  nodes `linear_q`, `gate_up_q`, `linear`; x is [..., K], M is the product of its leading dimensions.
Output: dispatches of one of four kernels, a dispatch for each window of a weight larger than one binding.
Way of the data: rows of `ops.registry`; the layout of weights is in `ops.weights`.

| device            | M at most            | kernel           |
|-------------------|----------------------|------------------|
| a GPU             | 16                   | linear_gemv      |
| a GPU             | more                 | linear_gemm      |
| a CPU adapter     | 2                    | linear_quad_gemv |
| a CPU adapter     | more                 | linear_quad_gemm |

M is the upper bound over the program's ranges: a kernel is right for every M below it.

    Node("n", "linear_q", ("x", "codes", "scales"), ("y",), {"scheme": "q4gsw", "group": 32, "in_features": 576})
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime_py.ops import layout, weights
from runtime_py.ops.base import Axis, Binding, Dispatch, KernelKey, Lowering, OpDef, Param, key
from runtime_py.ops.norm import OPS as NORMS
from runtime_py.ops.weights import WINDOW_ROWS, Weight
from runtime_py.schema import Graph, Node, Value
from runtime_py.symbols import Expr, Shape, ceil_div, combine, product, show_shape

ACTIVATIONS = ("silu", "gelu_tanh")
GEMV_ROWS = 16
QUAD_GEMV_ROWS = 2


@dataclass(frozen=True)
class Linear:
    """A node taken apart: names of its tensors (None = absent), its weight, M."""

    node: Node
    x: str
    y: str
    weight: Weight
    m: Expr
    bias: str | None = None
    residual: str | None = None
    norm_weight: str | None = None
    act: str = "none"

    @property
    def n(self) -> int:
        """Outputs of a row."""
        return self.weight.rows // (1 if self.act == "none" else 2)

    @property
    def eps(self) -> float:
        """What the RMS norm adds to the mean square."""
        return float(str(self.node.attrs.get("eps", 1e-5)))

    def axes(self) -> dict[str, Axis]:
        """Return the axes that all four kernels have."""
        flags = {"bias": self.bias is not None, "residual": self.residual is not None}
        return {**self.weight.axes(), **flags, "act": self.act}

    def norm_axes(self) -> dict[str, Axis]:
        """Return the axes of the RMS prologue."""
        norm = self.norm_weight is not None
        return {"norm": norm, "eps": self.eps if norm else 0.0}


@dataclass(frozen=True)
class Route:
    """A kernel and the rows and outputs of y that one of its workgroups computes."""

    key: KernelKey
    tile_rows: int
    tile_cols: int
    reason: str


def _lower(ctx: Lowering, node: Node) -> list[Dispatch]:
    part = _take_apart(ctx, node)
    if part.act != "none" and len(_windows(ctx, part)) > 1:
        return _lower_apart(ctx, part)
    route, norm = pick(ctx, part), []
    if part.norm_weight is not None and not dict(route.key.axes).get("norm", False):
        norm, part = _norm_first(ctx, part)
    return [*norm, *_dispatches(ctx, part, route)]


def pick(ctx: Lowering, part: Linear) -> Route:
    """Return the route of `part` for this device and the greatest M of the program."""
    most = ctx.upper(part.m)
    if ctx.caps.is_software and ctx.caps.has_subgroups:
        return _quad_gemv(part, most) if most <= QUAD_GEMV_ROWS else _quad_gemm(part, most)
    return _gemv(ctx, part, most) if most <= GEMV_ROWS else _gemm(part, most)


def _quad_gemv(part: Linear, most: int) -> Route:
    cols = 4 if part.act != "none" or part.n < 2048 else 8
    axes = {**part.axes(), **part.norm_axes()}
    kernel_key = key("linear_quad_gemv", rows=most, cols=cols, **axes)
    return Route(kernel_key, most, 4 * cols, f"M <= {most} on a CPU adapter")


def _quad_gemm(part: Linear, most: int) -> Route:
    rows, quads = 1 if most <= 4 else 2, 4 if part.act == "none" else 2
    kernel_key = key("linear_quad_gemm", rows=rows, quads=quads, **part.axes())
    return Route(kernel_key, 4 * rows, 4 * quads, f"M up to {most} on a CPU adapter")


def _gemv(ctx: Lowering, part: Linear, most: int) -> Route:
    rows = next(size for size in (1, 2, 4, 8, 16) if size >= most)
    blocks = -(-part.weight.k // (4 * part.weight.chunk))
    threads = next((size for size in (32, 64, 128) if size >= blocks), 256)
    cols = 4 if rows <= 4 and part.act == "none" and part.n >= 2048 else 2 if rows <= 8 else 1
    subgroups = ctx.caps.has_subgroups
    threads = threads if subgroups else min(threads, 64)  # partial sums of all threads: 16 KiB
    axes = {**part.axes(), **part.norm_axes()}
    kernel_key = key(
        "linear_gemv", rows=rows, cols=cols, threads=threads,
        reduce="subgroup" if subgroups else "workgroup", **axes,
    )
    return Route(kernel_key, rows, cols, f"M <= {most}: a workgroup of {threads} for {cols} outputs")


def _gemm(part: Linear, most: int) -> Route:
    tile = 64 if most > 32 and part.n >= 512 else 32
    depth = 32 if part.act == "none" else 16  # three tiles instead of two in 16 KiB
    kernel_key = key("linear_gemm", tile=tile, depth=depth, **part.axes())
    return Route(kernel_key, tile, tile, f"M up to {most}: {tile}x{tile} tiles")


def _take_apart(ctx: Lowering, node: Node) -> Linear:
    x = ctx.value(str(node.inputs[0]))
    optional = [*node.inputs, None, None, None, None]
    m = product(x.shape[:-1])
    if node.op == "linear":
        weight = weights.plain(ctx.value(str(node.inputs[1])))
        return Linear(node, x.name, node.outputs[0], weight, m, optional[2], optional[3])
    codes, scales = (ctx.value(str(name)) for name in node.inputs[1:3])
    weight = weights.quantised(node, codes, scales, "in_features")
    if node.op == "gate_up_q":
        act = str(node.attrs.get("act", "silu"))
        return Linear(node, x.name, node.outputs[0], weight, m, norm_weight=optional[3], act=act)
    return Linear(node, x.name, node.outputs[0], weight, m, *optional[3:6])


def _norm_first(ctx: Lowering, part: Linear) -> tuple[list[Dispatch], Linear]:
    """Return the dispatch that normalises x, and `part` reading what it wrote."""
    scratch = ctx.scratch(part.node, "normalised", "f32", ctx.value(part.x).shape)
    norm = Node(part.node.name, "rms_norm", (part.x, part.norm_weight), (scratch,), {"eps": part.eps})
    row = next(row for row in NORMS if row.name == "rms_norm")
    return row.lower(ctx, norm), _replace(part, x=scratch, norm_weight=None)


def _lower_apart(ctx: Lowering, part: Linear) -> list[Dispatch]:
    """Gate and up rows do not lie in one window: one plain linear, then the activation alone."""
    scratch = ctx.scratch(part.node, "gate_up", "f32", (part.m, part.weight.rows))
    whole = _replace(part, y=scratch, act="none")
    route, norm = pick(ctx, whole), []
    if part.norm_weight is not None and not dict(route.key.axes).get("norm", False):
        norm, whole = _norm_first(ctx, whole)
    size = combine("*", part.m, part.n)
    params = (Param("n", "u32", size), Param("width", "u32", part.n))
    bindings = (Binding(scratch), Binding(part.y, "read_write"))
    grid = layout.fold(ctx, ceil_div(size, 256))
    gated = Dispatch(key("gated", act=part.act), bindings, grid, params, "weight larger than a binding")
    return [*norm, *_dispatches(ctx, whole, route), gated]


def _dispatches(ctx: Lowering, part: Linear, route: Route) -> list[Dispatch]:
    limit = ctx.caps.limit("maxStorageBufferBindingSize")
    result = []
    for start, rows in _row_windows(ctx.upper(part.m), 4 * max(part.n, part.weight.k), limit):
        for first, count in _windows(ctx, part):
            cols = count if part.act == "none" else part.n
            params = (
                Param("rows", "i32", combine("-", part.m, start)), Param("cols", "u32", cols),
                Param("first", "u32", first), Param("stride", "u32", part.n),
            )
            bindings = tuple(_bindings(ctx, part, (start, rows), (first, count)))
            across = layout.fold(ctx, -(-cols // route.tile_cols))
            tall: Expr = ceil_div(part.m if start == 0 and rows is None else rows or 1, route.tile_rows)
            grid = (across[0], across[1], tall)
            result.append(Dispatch(route.key, bindings, grid, params, route.reason))
    return result


def _bindings(
    ctx: Lowering, part: Linear, rows: tuple[int, int | None], cols: tuple[int, int]
) -> Iterator[Binding]:
    def window(name: str, width: int, access: str = "read") -> Binding:
        if rows[1] is None:
            return Binding(name, access)
        return Binding(name, access, 4 * width * rows[0], 4 * width * rows[1])

    yield window(part.x, part.weight.k)
    yield from part.weight.bindings(*cols)
    if part.norm_weight is not None:
        yield Binding(part.norm_weight)
    if part.bias is not None:
        yield Binding(part.bias)
    if part.residual is not None:
        yield window(part.residual, part.n)
    yield window(part.y, part.n, "read_write")


def _windows(ctx: Lowering, part: Linear) -> tuple[tuple[int, int], ...]:
    return part.weight.windows(ctx.caps.limit("maxStorageBufferBindingSize"))


def _row_windows(most: int, row_bytes: int, limit: int) -> list[tuple[int, int | None]]:
    """Return `(first row, rows)` runs of x and y that fit a binding; `(0, None)` is the plain whole."""
    if most * row_bytes <= limit:
        return [(0, None)]
    step = max(limit // row_bytes // WINDOW_ROWS, 1) * WINDOW_ROWS
    return [(start, min(step, most - start)) for start in range(0, most, step)]


def _replace(part: Linear, **changes: object) -> Linear:
    return Linear(**{**vars(part), **changes})  # type: ignore[arg-type]


def _check(graph: Graph, node: Node) -> str | None:
    x = graph.values[str(node.inputs[0])]
    if x.dtype != "f32":
        return f"{node.op} of {x.dtype}: cast to f32 first"
    if not x.shape or not isinstance(x.shape[-1], int):
        return f"{node.op} over {show_shape(x.shape)}: the last dimension must be a fixed size"
    if node.op == "linear":
        weight = graph.values[str(node.inputs[1])]
        if weight.dtype != "f32" or len(weight.shape) != 2 or weight.shape[1] != x.shape[-1]:
            return f"linear: weight {weight.dtype} {show_shape(weight.shape)}, expected f32 [N, {x.shape[-1]}]"
        if not isinstance(weight.shape[0], int):
            return f"linear: weight {show_shape(weight.shape)} must have a fixed size"
    else:
        reason = weights.reason_against(graph, node, "in_features")
        if reason is None and node.attrs["in_features"] != x.shape[-1]:
            reason = f"{node.op}: in_features {node.attrs['in_features']}, x is {show_shape(x.shape)}"
        if reason is not None:
            return reason
    return _check_vectors(graph, node, x) or layout.size_reason(graph, node)


def _check_vectors(graph: Graph, node: Node, x: Value) -> str | None:
    """Check bias, residual, norm_weight and the activation against the sizes of x and the weight."""
    rows = graph.values[str(node.inputs[1])].shape[0]
    if node.op == "gate_up_q":
        if node.attrs.get("act", "silu") not in ACTIVATIONS:
            return f"gate_up_q: act {node.attrs.get('act')!r}, expected one of {', '.join(ACTIVATIONS)}"
        if int(str(rows)) % 2:
            return f"gate_up_q: {rows} rows cannot be halves of gate and up"
        wanted: tuple[tuple[str, Shape], ...] = (("norm_weight", x.shape[-1:]),)
        names = node.inputs[3:]
    else:
        y = (*x.shape[:-1], rows)
        wanted = (("bias", (rows,)), ("residual", y), ("norm_weight", x.shape[-1:]))
        names = node.inputs[2 if node.op == "linear" else 3 :]
    for (what, shape), name in zip(wanted, names, strict=False):
        if name is None:
            continue
        value = graph.values[name]
        if value.dtype != "f32" or not layout.same_shape(value.shape, shape):
            found = f"{value.dtype} {show_shape(value.shape)}"
            return f"{node.op}: {what} is {found}, expected f32 {show_shape(shape)}"
    return None


def _shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    x, weight = (graph.values[str(name)] for name in node.inputs[:2])
    rows = int(str(weight.shape[0]))
    return ((*x.shape[:-1], rows // 2 if node.op == "gate_up_q" else rows),)


KERNELS = ("linear_gemv", "linear_gemm", "linear_quad_gemv", "linear_quad_gemm", "rms_norm")
OPS: tuple[OpDef, ...] = (
    OpDef("linear_q", KERNELS, ("f32",), "norm(x) @ dequantised(codes).T + bias + residual",
          _check, _shape, _lower),
    OpDef("gate_up_q", (*KERNELS, "gated"), ("f32",), "act(norm(x) @ gate.T) * (norm(x) @ up.T)",
          _check, _shape, _lower),
    OpDef("linear", KERNELS[:4], ("f32",), "x @ weight.T + bias + residual", _check, _shape, _lower),
)


def _examples() -> tuple[KernelKey, ...]:
    """Keys whose golden texts are kept: every value of every axis at least once."""
    plain_epilogue: dict[str, Axis] = {"bias": False, "residual": False, "act": "none"}
    full: dict[str, Axis] = {"bias": True, "residual": True, "act": "none"}
    silu, gelu = {**plain_epilogue, "act": "silu"}, {**plain_epilogue, "act": "gelu_tanh"}
    normed: dict[str, Axis] = {"norm": True, "eps": 1e-5}
    bare: dict[str, Axis] = {"norm": False, "eps": 0.0}
    q4gaw: dict[str, Axis] = {"scheme": "q4gaw", "scale_type": "f16", "group": 32, "k": 576}
    q4gsw: dict[str, Axis] = {"scheme": "q4gsw", "scale_type": "f16", "group": 32, "k": 576}
    q8gsw: dict[str, Axis] = {"scheme": "q8gsw", "scale_type": "f16", "group": 32, "k": 576}
    q8gaw: dict[str, Axis] = {"scheme": "q8gaw", "scale_type": "f32", "group": 12, "k": 77}
    f32: dict[str, Axis] = {"scheme": "f32", "scale_type": "f32", "group": 63, "k": 63}
    subgroup: dict[str, Axis] = {"reduce": "subgroup"}
    return (
        key("linear_quad_gemv", rows=1, cols=4, **q4gaw, **silu, **normed),
        key("linear_quad_gemv", rows=1, cols=8, **q8gsw, **plain_epilogue, **normed),
        key("linear_quad_gemv", rows=2, cols=4, **q4gsw, **full, **bare),
        key("linear_quad_gemv", rows=1, cols=4, **q8gaw, **gelu, **normed),
        key("linear_quad_gemv", rows=1, cols=4, **f32, **full, **bare),
        key("linear_quad_gemm", rows=2, quads=2, **q4gaw, **silu),
        key("linear_quad_gemm", rows=2, quads=4, **q4gsw, **full),
        key("linear_quad_gemm", rows=1, quads=4, **q8gsw, **plain_epilogue),
        key("linear_quad_gemm", rows=1, quads=2, **q8gaw, **gelu),
        key("linear_quad_gemm", rows=1, quads=4, **f32, **full),
        key("linear_gemv", rows=1, cols=2, threads=32, **q4gaw, **silu, **normed, **subgroup),
        key("linear_gemv", rows=8, cols=2, threads=64, **q4gsw, **full, **bare, **subgroup),
        key("linear_gemv", rows=1, cols=4, threads=128, **q8gsw, **plain_epilogue, **normed, **subgroup),
        key("linear_gemv", rows=1, cols=2, threads=64, **q8gaw, **gelu, **normed, reduce="workgroup"),
        key("linear_gemv", rows=1, cols=2, threads=256, **f32, **full, **bare, **subgroup),
        key("linear_gemm", tile=64, depth=32, **q4gaw, **full),
        key("linear_gemm", tile=64, depth=16, **q4gsw, **silu),
        key("linear_gemm", tile=32, depth=32, **q8gsw, **plain_epilogue),
        key("linear_gemm", tile=32, depth=16, **q8gaw, **gelu),
        key("linear_gemm", tile=32, depth=32, **f32, **full),
        key("gated", act="silu"),
        key("gated", act="gelu_tanh"),
    )


KEYS: tuple[KernelKey, ...] = _examples()
