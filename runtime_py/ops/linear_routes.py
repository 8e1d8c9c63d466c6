"""Which kernel serves a linear layer: the choice by device and by the number of rows of x.

Input:  a node of the linear family, the device's caps, M (the product of x's leading dimensions).
Output: a `Linear` (the node taken apart) and a `Route` (a kernel key and the tile it computes).
Way of the data: under `ops.linear`, which turns a route into dispatches.

| device         | M at most | kernel           | a workgroup computes                        |
|----------------|-----------|------------------|---------------------------------------------|
| a GPU          | 16        | linear_gemv      | a few outputs of all rows                   |
| a GPU          | more      | linear_gemm      | a tile of 32 to 128 rows and outputs        |
| f16, matrices  | more      | linear_matrix    | 64 or 128 rows by 64 outputs                |
| a CPU adapter  | 4         | linear_quad_gemv | 16 or 32 outputs of all rows, by 4 threads  |
| a CPU adapter  | more      | linear_quad_gemm | 8 rows by 16 outputs, by 4 threads          |

With compute="f16" every device takes the routes of a GPU, and linear_matrix where it has subgroup
matrices (unless option `linear` says otherwise). The numbers are defined once, for every M: x
(after its RMS norm, a dispatch of its own then) and the weight are rounded to f16, their products
are summed in f32, and what follows is f32. `f16_accumulate_gemm` alone depends on M: linear_gemm
then sums in f16; matrices sum in f32 all the same, which costs them nothing. Where a group of
weights ends inside a tile's depth, the f16 tile takes its codes one by one ("nibble") instead of a
run of words a thread ("word"); the bits are the same.

M is the upper bound over the program's ranges: a kernel is right for every M below it.

    route = pick(ctx, take_apart(ctx, node))
    route.reason        # "M up to 512 on a CPU adapter"
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime_py.ops import weights
from runtime_py.ops.base import Axis, KernelKey, Lowering, key
from runtime_py.ops.linear_gemv import size_for
from runtime_py.ops.linear_tiles import MatrixTile, pick_matrix_tile, pick_tile
from runtime_py.ops.weights import Weight
from runtime_py.schema import Node
from runtime_py.symbols import Expr, product

GEMV_ROWS = 16
QUAD_GEMV_ROWS = 4
NORM_APART = 1 << 26  # elements of a weight from which on an RMS norm of its own costs less


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

    def norm_axes(self, *, fused: bool = True) -> dict[str, Axis]:
        """Return the axes of the RMS prologue, none if it is not `fused`."""
        norm = fused and self.norm_weight is not None
        return {"norm": norm, "eps": self.eps if norm else 0.0}


@dataclass(frozen=True)
class Route:
    """A kernel and the rows and outputs of y that one of its workgroups computes."""

    key: KernelKey
    tile_rows: int
    tile_cols: int
    reason: str


def pick(ctx: Lowering, part: Linear) -> Route:
    """Return the route of `part` for this device, its options and the greatest M of the program."""
    most = ctx.upper(part.m)
    if multiply_of(ctx) == "f32" and ctx.caps.is_software and ctx.caps.has_subgroups:
        return _quad_gemv(part, most) if most <= QUAD_GEMV_ROWS else _quad_gemm(part, most)
    return _gemv(ctx, part, most) if most <= GEMV_ROWS else _gemm(ctx, part, most)


def multiply_of(ctx: Lowering) -> str:
    """Return the type of a product's factors, "f32" or "f16"."""
    return "f16" if ctx.options.get("compute") == "f16" else "f32"


def _quad_gemv(part: Linear, most: int) -> Route:
    cols = 4 if part.act != "none" or part.n < 2048 else 8
    axes = {**part.axes(), **part.norm_axes()}
    kernel_key = key("linear_quad_gemv", rows=most, cols=cols, **axes)
    return Route(kernel_key, most, 4 * cols, f"M <= {most} on a CPU adapter")


def _quad_gemm(part: Linear, most: int) -> Route:
    rows, quads = 2, 4 if part.act == "none" else 2
    kernel_key = key("linear_quad_gemm", rows=rows, quads=quads, **part.axes())
    return Route(kernel_key, 4 * rows, 4 * quads, f"M up to {most} on a CPU adapter")


def _gemv(ctx: Lowering, part: Linear, most: int) -> Route:
    rows = next(size for size in (1, 2, 4, 8, 16) if size >= most)
    blocks = -(-part.weight.k // (4 * part.weight.chunk))
    gated = part.act != "none"
    size = size_for(
        ctx.caps,
        blocks=blocks,
        rows=rows,
        outputs=part.n,
        gated=gated,
        chunk=part.weight.chunk,
    )
    multiply = multiply_of(ctx)
    fused = multiply == "f32" and part.weight.rows * part.weight.k < NORM_APART
    axes = {**part.axes(), **part.norm_axes(fused=fused), **size.axes()}
    kernel_key = key("linear_gemv", multiply=multiply, rows=rows, **axes)
    who = "subgroups" if size.reduce == "team" else "a workgroup"
    reason = f"M <= {most}: {who} of {size.lanes or size.threads} for {size.cols} outputs"
    return Route(kernel_key, rows, size.outputs, reason + products(multiply))


def _gemm(ctx: Lowering, part: Linear, most: int) -> Route:
    multiply = multiply_of(ctx)
    sides = 1 if part.act == "none" else 2
    if multiply == "f16" and ctx.options.get("linear", "auto") == "auto":
        matrix = pick_matrix_tile(ctx.caps, most=most, outputs=part.n, sides=sides)
        if matrix is not None:
            return _matrix(part, matrix, most, sides)
    sums = "f16" if multiply == "f16" and ctx.options.get("f16_accumulate_gemm") else "f32"
    tile = pick_tile(ctx.caps, most=most, outputs=part.n, multiply=multiply, sums=sums, sides=sides)
    dequant, why = _dequant(ctx, part.weight, multiply, tile.depth)
    kernel_key = key(
        "linear_gemm", multiply=multiply, sums=sums, dequant=dequant, **tile.axes(), **part.axes()
    )
    reason = f"M up to {most}: {tile.size}x{tile.size} tiles{products(multiply, sums)}{why}"
    return Route(kernel_key, tile.size, tile.size, reason)


def _matrix(part: Linear, tile: MatrixTile, most: int, sides: int) -> Route:
    kernel_key = key("linear_matrix", **tile.axes(), **part.axes())
    reason = f"M up to {most}: subgroup matrices, tiles of {tile.rows} rows{products('f16')}"
    return Route(kernel_key, tile.rows, 64 // sides, reason)


def _dequant(ctx: Lowering, weight: Weight, multiply: str, depth: int) -> tuple[str, str]:
    """Return how a tile's weights are read, and why if it is not the usual way."""
    if ctx.options.get("linear") == "nibble":
        return "nibble", ", code by code as asked"
    if multiply == "f16" and weight.group % depth and weight.group < weight.k:
        return "nibble", f", code by code: groups of {weight.group} end within a depth of {depth}"
    return "word", ""


def products(multiply: str, sums: str = "f32") -> str:
    """Return the part of a reason that tells the arithmetic, empty for plain f32."""
    return f", f16 products, {sums} sums" if multiply == "f16" else ""


def take_apart(ctx: Lowering, node: Node) -> Linear:
    """Return the tensors of a checked node by name; y is its output."""
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
    return Linear(node, x.name, node.outputs[0], weight, m, optional[3], optional[4], optional[5])
