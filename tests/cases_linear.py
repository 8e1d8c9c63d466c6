"""Cases of linear layers as rows of data: the reference's table, and rows past it.

Input:  nothing. Output: `REFERENCE`, `PAST`, and for a row its arrays and its graph of one node.
Way of the data: read by tests only; the oracle is `tests.oracles_linear`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from exporter.quantize import pack, quantize
from runtime_py.schema import Attr, Graph, Node, Symbol, Value
from tests import tolerances
from tests.tolerances import Pair

EPS = 1e-5
MAX_ROWS = 8192


@dataclass(frozen=True)
class LinearCase:
    """One row. `act` other than "none" makes it gate_up_q; `options` are the session's."""

    name: str
    m: int
    k: int
    n: int
    group: int
    scheme: str = "q4gsw"
    bias: bool = False
    residual: bool = False
    norm: bool = False
    act: str = "none"
    scale_dtype: str = "f32"
    close: Pair = tolerances.LINEAR
    heavy: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def op(self) -> str:
        """The operator of the graph's one node."""
        if self.scheme == "f32":
            return "linear"
        return "linear_q" if self.act == "none" else "gate_up_q"

    @property
    def rows(self) -> int:
        """Rows of the weight."""
        return self.n if self.act == "none" else 2 * self.n


LONG = tolerances.LINEAR_LONG
F16: Mapping[str, Any] = {"compute": "f16"}
F16_SUMS: Mapping[str, Any] = {"compute": "f16", "f16_accumulate_gemm": True}

REFERENCE: tuple[LinearCase, ...] = (
    LinearCase("q_proj", 1, 2048, 2048, 32),
    LinearCase("kv_proj", 1, 2048, 512, 32),
    LinearCase("gate_proj", 1, 2048, 8192, 32),
    LinearCase("down_proj", 1, 8192, 2048, 32, close=LONG),
    LinearCase("lm_head", 1, 2048, 128256, 32, heavy=True),
    LinearCase("q_proj_4k", 4096, 2048, 2048, 32, heavy=True),
    LinearCase("kv_proj_4k", 4096, 2048, 512, 32, heavy=True),
    LinearCase("q_proj_8k", 8192, 2048, 2048, 32, heavy=True),
    LinearCase("kv_proj_8k", 8192, 2048, 512, 32, heavy=True),
    LinearCase("gate_proj_pf", 128, 2048, 8192, 32, heavy=True),
    LinearCase("down_proj_pf", 128, 8192, 2048, 32, close=LONG, heavy=True),
    LinearCase("shmem_edge", 130, 4096, 2056, 32, heavy=True),
    LinearCase("steel", 96, 2048, 256, 32),
    LinearCase("steel_f16", 96, 2048, 256, 32, close=tolerances.LINEAR_F16, options=F16),
    LinearCase("steel_f16_edge", 70, 1024, 136, 32, close=tolerances.LINEAR_F16, options=F16),
    LinearCase("pwdq_gs64", 96, 2048, 256, 64, close=tolerances.LINEAR_F16, options=F16),
    LinearCase("pwdq_gs8", 96, 2048, 256, 8, close=tolerances.LINEAR_F16, options=F16),
    LinearCase("pwdqf16acc", 96, 2048, 256, 32, close=tolerances.LINEAR_F16_SUMS, options=F16_SUMS),
    LinearCase(
        "pwdqf16acc_down",
        128,
        8192,
        2048,
        32,
        close=tolerances.LINEAR_F16_SUMS_LONG,
        options=F16_SUMS,
        heavy=True,
    ),
)

SCHEMES = ("q4gsw", "q4gaw", "q8gsw", "q8gaw")
GROUPS = {"gs8": 8, "gs24": 24, "gs32": 32, "gs128": 128, "gsK": 200}
EDGE_ROWS = (1, 2, 3, 7, 15, 16, 17, 31, 33, 63)

PAST: tuple[LinearCase, ...] = (
    *(LinearCase(f"{name}_{s}", 5, 200, 67, g, s) for name, g in GROUPS.items() for s in SCHEMES),
    *(LinearCase(f"m{m}", m, 96, 131, 32, "q4gaw", scale_dtype="f16") for m in EDGE_ROWS),
    *(LinearCase(f"m{m}_norm", m, 96, 64, 32, norm=True, residual=True) for m in EDGE_ROWS),
    *(LinearCase(f"k{k}", m, k, 37, 8, bias=True) for k in (33, 61, 80, 85) for m in (1, 9)),
    *(LinearCase(f"k{k}_8bit", m, k, 37, 4, "q8gaw") for k in (33, 62, 77) for m in (1, 9)),
    LinearCase("odd_groups", 1, 96, 5, 32, scale_dtype="f16"),
    LinearCase("one_output", 3, 64, 1, 32, bias=True, residual=True),
    *(LinearCase(f"{a}_m{m}", m, 96, 41, 32, "q4gaw", norm=True, act=a)
      for a in ("silu", "gelu_tanh") for m in (1, 2, 7, 33)),
    *(LinearCase(f"f32_k{k}_m{m}", m, k, 32, k, "f32", bias=True, residual=True)
      for k in (1, 63, 64, 130) for m in (1, 8, 64)),
)  # fmt: skip


# Rows of the tiled form alone, few of them: each scheme, a group below the tile's depth, one equal to it
# and one of all K, partial tiles of both sizes, K that ends within a word.
TILED: tuple[LinearCase, ...] = (
    LinearCase("tile", 33, 200, 67, 32, "q4gsw", bias=True),
    LinearCase("tile_one_group", 33, 200, 67, 200, "q4gaw"),
    LinearCase("tile_8bit", 33, 200, 67, 32, "q8gsw", residual=True),
    LinearCase("tile_small_groups", 33, 200, 67, 8, "q8gaw"),
    LinearCase("tile_tail", 17, 85, 37, 85),
    LinearCase("tile_plain", 17, 85, 37, 85, "f32", bias=True),
    LinearCase("wide", 70, 136, 521, 32, scale_dtype="f16"),
    LinearCase("wide_silu", 70, 136, 521, 32, "q4gaw", act="silu", scale_dtype="f16"),
)


# One weight for every number of tokens at which another kernel begins, with a norm for some.
TOKENS = [*(f"m{m}" for m in EDGE_ROWS), "m7_norm", "m33_norm"]


def named(*prefixes: str) -> tuple[LinearCase, ...]:
    """Return the rows of `PAST` whose names begin with one of `prefixes`."""
    return tuple(case for case in PAST if case.name.startswith(prefixes))


# Rows that are exported as one bundle: few bundles keep the tests on a GPU cheap.
TABLES: Mapping[str, tuple[LinearCase, ...]] = {
    "reference": tuple(c for c in REFERENCE if not c.options and not c.heavy),
    "reference_f16": tuple(c for c in REFERENCE if c.options and not c.heavy),
    "groups": named("gs"),
    "rows": named("m"),
    "tails": named("k"),
    "gated": named("odd", "one", "silu", "gelu"),
    "plain": named("f32"),
    "tiled": TILED,
    "tokens": tuple(c for c in PAST if c.name in TOKENS),
}
HEAVY = tuple(case for case in REFERENCE if case.heavy)


def case_id(case: LinearCase) -> str:
    """Return a readable, unique test id."""
    return f"{case.name}-{case.scheme}-{case.m}x{case.k}x{case.n}"


def arrays(case: LinearCase) -> dict[str, NDArray[Any]]:
    """Return the inputs and constants of a case: x as the reference's, a Linear of seed 0."""
    index = np.arange(case.m * case.k)
    x = ((index % 17 - 8) / 16).astype(np.float32).reshape(1, case.m, case.k)
    torch.manual_seed(0)
    weight = torch.nn.Linear(case.k, case.rows, bias=False).weight.detach()
    result: dict[str, NDArray[Any]] = {"x": x}
    if case.scheme == "f32":
        result["weight"] = weight.numpy()
    else:
        dtype = torch.float16 if case.scale_dtype == "f16" else torch.float32
        codes, scales, mins = quantize(weight, case.scheme, case.group, scale_dtype=dtype)
        words, stored = pack(codes, scales, mins, case.scheme, case.group)
        result |= {"codes": words.numpy().view(np.uint32), "scales": stored.numpy()}
    random = np.random.default_rng(0)
    if case.bias:
        result["bias"] = random.standard_normal(case.n).astype(np.float32)
    if case.residual:
        result["residual"] = random.standard_normal((1, case.m, case.n)).astype(np.float32)
    if case.norm:
        result["norm_weight"] = random.uniform(-1.5, 1.5, case.k).astype(np.float32)
    return result


def node(case: LinearCase) -> Node:
    """Return the node of a case; its tensors bear the names of `arrays`."""
    flags = {"bias": case.bias, "residual": case.residual, "norm_weight": case.norm}
    optional = tuple(name if on else None for name, on in flags.items())
    attrs: dict[str, Attr] = {"scheme": case.scheme, "group": case.group, "in_features": case.k}
    attrs |= {"eps": EPS} if case.norm else {}
    if case.op == "linear":
        return Node("n", "linear", ("x", "weight", *optional[:2]), ("y",))
    if case.op == "gate_up_q":
        attrs["act"] = case.act
        optional = optional[2:]
    return Node("n", case.op, ("x", "codes", "scales", *optional), ("y",), attrs)


def graph(case: LinearCase, words: int, scale_shape: tuple[int, ...]) -> Graph:
    """Return the graph of a case for 1 to 8192 rows; `words` a row of codes, `scale_shape` of scales."""
    values = {
        "x": Value("x", "f32", (1, "S", case.k)),
        "y": Value("y", "f32", (1, "S", case.n)),
        "weight": Value("weight", "f32", (case.rows, case.k)),
        "codes": Value("codes", "u32", (case.rows, words)),
        "scales": Value("scales", case.scale_dtype, scale_shape),
        "bias": Value("bias", "f32", (case.n,)),
        "residual": Value("residual", "f32", (1, "S", case.n)),
        "norm_weight": Value("norm_weight", "f32", (case.k,)),
    }
    symbols = (Symbol("S", 1, MAX_ROWS),)
    return Graph(symbols, (), values, {}, {}, (node(case),), (), ())
