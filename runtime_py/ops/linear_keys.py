"""Linear kernels at representative axes: the keys whose WGSL is kept as golden texts.

Input:  nothing. Output: `KEYS`, every value of every axis at least once.
Way of the data: beside `ops.linear_routes`, which makes such keys from nodes; read by tests.

    KernelLibrary().render(KEYS[0])
"""

from __future__ import annotations

from collections.abc import Mapping

from runtime_py.ops.base import Axis, KernelKey, key
from runtime_py.ops.linear_gemv import Gemv
from runtime_py.ops.linear_tiles import MatrixTile, Tile

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


def _gemv(
    weight: str, epilogue: str, norm: bool, size: Gemv, multiply: str = "f32", *, rows: int
) -> KernelKey:
    axes = {"multiply": multiply, "rows": rows, **size.axes()}
    return _example("linear_gemv", weight, epilogue, norm, **axes)


def _matrix(weight: str, epilogue: str, tile: MatrixTile) -> KernelKey:
    return key("linear_matrix", **WEIGHTS[weight], **EPILOGUES[epilogue], **tile.axes())


def _gemm(
    weight: str,
    epilogue: str,
    tile: Tile,
    multiply: str = "f32",
    sums: str = "f32",
    dequant: str = "word",
) -> KernelKey:
    numbers: dict[str, Axis] = {"multiply": multiply, "sums": sums, "dequant": dequant}
    axes = {**WEIGHTS[weight], **EPILOGUES[epilogue], **numbers, **tile.axes()}
    return key("linear_gemm", **axes)


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
    _gemv("q4gaw", "silu", True, Gemv("team", 32, 64, 2), rows=1),
    _gemv("q8gsw", "plain", True, Gemv("team", 32, 64, 8), rows=1),
    _gemv("q4gsw", "full", False, Gemv("team", 16, 32, 2), rows=4),
    _gemv("q4gaw", "plain", True, Gemv("team", 32, 64, 1), rows=16),
    _gemv("q4gaw", "silu", True, Gemv("subgroup", 0, 32, 2), rows=1),
    _gemv("q4gsw", "full", False, Gemv("subgroup", 0, 64, 2), rows=8),
    _gemv("q8gsw", "plain", True, Gemv("subgroup", 0, 128, 4), rows=1),
    _gemv("q8gaw", "gelu", True, Gemv("workgroup", 0, 64, 2), rows=1),
    _gemv("f32", "full", False, Gemv("subgroup", 0, 256, 2), rows=1),
    _gemv("q4gsw", "plain", False, Gemv("subgroup", 0, 64, 2), "f16", rows=2),
    _gemv("q8gaw", "silu", False, Gemv("workgroup", 0, 32, 1), "f16", rows=1),
    _gemv("f32", "full", False, Gemv("subgroup", 0, 32, 2), "f16", rows=1),
    _gemm("q4gaw", "full", Tile(64, 32, 8, 4)),
    _gemm("q4gsw", "silu", Tile(64, 16, 4, 4)),
    _gemm("q8gsw", "plain", Tile(32, 32, 4, 4)),
    _gemm("q8gaw", "gelu", Tile(32, 16, 4, 4)),
    _gemm("f32", "full", Tile(32, 32, 4, 4)),
    _gemm("q4gsw", "plain", Tile(32, 32, 4, 4), dequant="nibble"),
    _gemm("q4gsw", "full", Tile(64, 32, 4, 8), "f16"),
    _gemm("q4gaw", "silu", Tile(32, 32, 4, 4), "f16"),
    _gemm("q8gaw", "gelu", Tile(32, 32, 4, 4), "f16", dequant="nibble"),
    _gemm("f32", "plain", Tile(32, 32, 4, 4), "f16"),
    _gemm("q4gsw", "plain", Tile(64, 32, 8, 8), "f16", "f16"),
    _gemm("q8gsw", "silu", Tile(32, 32, 4, 4), "f16", "f16"),
    _gemm("q4gsw", "plain", Tile(128, 32, 8, 8), "f16", "f16", "nibble"),
    _gemm("q4gsw", "plain", Tile(64, 64, 8, 8), "f16", "f16"),
    _matrix("q4gaw", "silu", MatrixTile(64, 64)),
    _matrix("q4gsw", "full", MatrixTile(128, 32)),
    _matrix("q8gsw", "gelu", MatrixTile(64, 64)),
    _matrix("q8gaw", "plain", MatrixTile(64, 32)),
    _matrix("f32", "full", MatrixTile(64, 64)),
    key("gated", act="silu"),
    key("gated", act="gelu_tanh"),
)
