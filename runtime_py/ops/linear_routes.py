"""Which kernel serves a linear layer: the choice by device and by the number of rows of x.

Input:  a node of the linear family, the device's caps, M (the product of x's leading dimensions).
Output: a `Linear` (the node taken apart) and a `Route` (a kernel key and the tile it computes).
Way of the data: under `ops.linear`, which turns a route into dispatches.

| device         | M at most | kernel           | a workgroup computes                        |
|----------------|-----------|------------------|---------------------------------------------|
| a GPU          | 16        | linear_gemv      | a few outputs of all rows                   |
| a GPU          | more      | linear_gemm      | a 32x32 or 64x64 tile                       |
| a CPU adapter  | 4         | linear_quad_gemv | 16 or 32 outputs of all rows, by 4 threads  |
| a CPU adapter  | more      | linear_quad_gemm | 8 rows by 16 outputs, by 4 threads          |

M is the upper bound over the program's ranges: a kernel is right for every M below it.

    route = pick(ctx, take_apart(ctx, node))
    route.reason        # "M up to 512 on a CPU adapter"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runtime_py.ops import weights
from runtime_py.ops.base import Axis, KernelKey, Lowering, key
from runtime_py.ops.weights import Weight
from runtime_py.schema import Node
from runtime_py.symbols import Expr, product

GEMV_ROWS = 16
QUAD_GEMV_ROWS = 4


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
    rows, quads = 2, 4 if part.act == "none" else 2
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
        "linear_gemv",
        rows=rows,
        cols=cols,
        threads=threads,
        reduce="subgroup" if subgroups else "workgroup",
        **axes,
    )
    return Route(
        kernel_key, rows, cols, f"M <= {most}: a workgroup of {threads} for {cols} outputs"
    )


def _gemm(part: Linear, most: int) -> Route:
    tile = 64 if most > 32 and part.n >= 512 else 32
    depth = 32 if part.act == "none" else 16  # three tiles instead of two in 16 KiB
    kernel_key = key("linear_gemm", tile=tile, depth=depth, **part.axes())
    return Route(kernel_key, tile, tile, f"M up to {most}: {tile}x{tile} tiles")


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


EPILOGUES: Mapping[str, Mapping[str, Axis]] = {
    "plain": {"bias": False, "residual": False, "act": "none"},
    "full": {"bias": True, "residual": True, "act": "none"},
    "silu": {"bias": False, "residual": False, "act": "silu"},
    "gelu": {"bias": False, "residual": False, "act": "gelu_tanh"},
}
WEIGHTS: Mapping[str, Mapping[str, Axis]] = {
    "q4gsw": {"scheme": "q4gsw", "scale_type": "f16", "group": 32, "k": 576},
    "q4gaw": {"scheme": "q4gaw", "scale_type": "f16", "group": 32, "k": 576},
    "q8gsw": {"scheme": "q8gsw", "scale_type": "f16", "group": 32, "k": 576},
    "q8gaw": {"scheme": "q8gaw", "scale_type": "f32", "group": 12, "k": 77},
    "f32": {"scheme": "f32", "scale_type": "f32", "group": 63, "k": 63},
}


def _example(
    kernel: str, weight: str, epilogue: str, norm: bool | None = None, **axes: Axis
) -> KernelKey:
    prologue: dict[str, Axis] = {} if norm is None else {"norm": norm, "eps": 1e-5 if norm else 0.0}
    return key(kernel, **WEIGHTS[weight], **EPILOGUES[epilogue], **prologue, **axes)


# Keys whose golden texts are kept: every value of every axis at least once.
KEYS: tuple[KernelKey, ...] = (
    _example("linear_quad_gemv", "q4gaw", "silu", True, rows=1, cols=4),
    _example("linear_quad_gemv", "q8gsw", "plain", True, rows=1, cols=8),
    _example("linear_quad_gemv", "q4gsw", "full", False, rows=2, cols=4),
    _example("linear_quad_gemv", "q8gaw", "gelu", True, rows=1, cols=4),
    _example("linear_quad_gemv", "f32", "full", False, rows=1, cols=4),
    _example("linear_quad_gemm", "q4gaw", "silu", rows=2, quads=2),
    _example("linear_quad_gemm", "q4gsw", "full", rows=2, quads=4),
    _example("linear_quad_gemm", "q8gsw", "plain", rows=1, quads=4),
    _example("linear_quad_gemm", "q8gaw", "gelu", rows=1, quads=2),
    _example("linear_quad_gemm", "f32", "full", rows=1, quads=4),
    _example("linear_gemv", "q4gaw", "silu", True, rows=1, cols=2, threads=32, reduce="subgroup"),
    _example("linear_gemv", "q4gsw", "full", False, rows=8, cols=2, threads=64, reduce="subgroup"),
    _example("linear_gemv", "q8gsw", "plain", True, rows=1, cols=4, threads=128, reduce="subgroup"),
    _example("linear_gemv", "q8gaw", "gelu", True, rows=1, cols=2, threads=64, reduce="workgroup"),
    _example("linear_gemv", "f32", "full", False, rows=1, cols=2, threads=256, reduce="subgroup"),
    _example("linear_gemm", "q4gaw", "full", tile=64, depth=32),
    _example("linear_gemm", "q4gsw", "silu", tile=64, depth=16),
    _example("linear_gemm", "q8gsw", "plain", tile=32, depth=32),
    _example("linear_gemm", "q8gaw", "gelu", tile=32, depth=16),
    _example("linear_gemm", "f32", "full", tile=32, depth=32),
    key("gated", act="silu"),
    key("gated", act="gelu_tanh"),
)
