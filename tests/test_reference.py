"""The numpy interpreter against torch's own float64 formulas and against numbers worked out by
hand.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from exporter import schemes
from exporter.reference import attend, rotate
from runtime_py import reference
from runtime_py.errors import InputError, UnsupportedOpError
from runtime_py.ops import registry
from runtime_py.reference_ops import REFERENCE
from runtime_py.schema import Buffer, Constant, Graph, Node, Port, Symbol, SymbolAttr, Value
from tests import tolerances

X64 = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def one_node(
    op: str,
    inputs: dict[str, Any],
    out_shape: tuple[Any, ...],
    attrs: dict[str, Any] | None = None,
    *,
    dtypes: dict[str, str] | None = None,
    caches: tuple[str, ...] = (),
    symbols: dict[str, int] | None = None,
    out_dtype: str = "f32",
) -> tuple[Any, dict[str, Any]]:
    """Return the result of one node over `inputs` (None for an absent one), and the buffers after
    it.
    """
    given = {name: np.asarray(a) for name, a in inputs.items() if a is not None}
    kinds = dtypes or {}
    values = {n: Value(n, kinds.get(n, "f32"), tuple(a.shape)) for n, a in given.items()}
    values["out"] = Value("out", out_dtype, out_shape)
    names = tuple(name if a is not None else None for name, a in inputs.items())
    graph = Graph(
        symbols=tuple(Symbol(name, 0, 99) for name in symbols or {}),
        constraints=(),
        values=values,
        constants={name: Constant(name, ()) for name in given if name not in caches},
        buffers={name: Buffer(name, None) for name in caches},
        nodes=(Node("n", op, names, ("out",) if out_shape else (), attrs or {}, caches),),
        inputs=(),
        outputs=(Port("out", "out"),) if out_shape else (),
    )
    buffers = {name: given[name] for name in caches}
    constants = {name: a for name, a in given.items() if name not in caches}
    return reference.run(graph, constants, buffers, {}, symbols or {}).get("out"), buffers


def test_every_registered_operator_has_a_meaning_here() -> None:
    assert set(registry) - set(REFERENCE) == set()


def test_the_runtime_starts_without_numpy() -> None:
    code = "import sys, runtime_py.reference; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


FUNCTIONS: dict[str, Any] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "softmax": lambda x: torch.softmax(x, -1),
    "square": torch.square,
    "relu": torch.relu,
}


@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions(op: str) -> None:
    got, _ = one_node(op, {"x": X64}, (2, 3, 8))
    tolerances.require(got, FUNCTIONS[op](X64), tolerances.FUSED_F64)


def test_norms_and_linear() -> None:
    weight, bias = X64[0, 0], X64[0, 1]
    got, _ = one_node("rms_norm", {"x": X64, "w": weight}, (2, 3, 8), {"eps": 1e-5})
    tolerances.require(got, F.rms_norm(X64, (8,), weight, 1e-5), tolerances.FUSED_F64)
    got, _ = one_node("layer_norm", {"x": X64, "w": weight, "b": bias}, (2, 3, 8), {"eps": 1e-5})
    tolerances.require(got, F.layer_norm(X64, (8,), weight, bias, 1e-5), tolerances.FUSED_F64)
    matrix = X64[1]
    got, _ = one_node(
        "linear", {"x": X64, "w": matrix, "b": bias[:3], "r": X64[..., :3]}, (2, 3, 3)
    )
    want = F.linear(X64, matrix, bias[:3]) + X64[..., :3]
    tolerances.require(got, want, tolerances.FUSED_F64)


@pytest.mark.parametrize("scheme", ["q4gsw", "q4gaw", "q8gsw", "q8gaw"])
@pytest.mark.parametrize("columns", [32, 50])
def test_quantised_weights_are_what_the_exporter_packed(scheme: str, columns: int) -> None:
    kind = schemes.scheme_of(scheme)
    chance = torch.Generator().manual_seed(1)
    codes = torch.randint(kind.least, kind.greatest + 1, (6, columns), generator=chance)
    scales = torch.rand(6, -(-columns // 16), generator=chance) + 0.5
    mins = -scales if kind.affine else None
    words, packed = schemes.pack(codes, scales, mins, scheme, 16)
    weight = schemes.dequantize(words, packed, scheme, 16, columns).double()
    attrs = {"scheme": scheme, "group": 16, "in_features": columns, "width": columns, "act": "silu"}
    x = torch.randn(1, 2, columns, generator=chance, dtype=torch.float64)
    inputs = {"x": x, "codes": words, "scales": packed.float()}
    dtypes = {"codes": "u32"}
    got, _ = one_node("linear_q", inputs, (1, 2, 6), attrs, dtypes=dtypes)
    tolerances.require(got, x @ weight.T, tolerances.DEQUANTIZED)
    got, _ = one_node("gate_up_q", inputs, (1, 2, 3), attrs, dtypes=dtypes)
    want = F.silu(x @ weight[:3].T) * (x @ weight[3:].T)
    tolerances.require(got, want, tolerances.DEQUANTIZED)
    ids = torch.tensor([[5, 0]])
    got, _ = one_node(
        "embedding_q",
        {"ids": ids, "codes": words, "scales": packed.float()},
        (1, 2, columns),
        attrs,
        dtypes={**dtypes, "ids": "i32"},
    )
    tolerances.require(got, weight[ids], tolerances.DEQUANTIZED)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope(interleaved: bool) -> None:
    x = X64.reshape(1, 3, 2, 8)
    inv_freq = torch.tensor([1.0, 0.1, 0.01], dtype=torch.float32)
    attrs = {"input_pos": 7, "interleaved": interleaved, "scale": 1.5}
    got, _ = one_node("rope", {"x": x, "f": inv_freq}, (1, 3, 2, 8), attrs)
    want = rotate(x, inv_freq, 7, interleaved, 1.5)
    tolerances.require(got, want, tolerances.INTERPRETED_F32)


@pytest.mark.parametrize(
    "options",
    [
        {"causal": True},
        {"causal": False},
        {"causal": True, "window": 2},
        {"causal": True, "softcap": 3.0},
    ],
    ids=str,
)
def test_attention_over_a_cache(options: dict[str, Any]) -> None:
    chance = torch.Generator().manual_seed(2)
    q = torch.randn(1, 3, 6, 4, generator=chance, dtype=torch.float64)
    k, v = (torch.randn(1, 3, 2, 4, generator=chance, dtype=torch.float64) for _ in range(2))
    caches = [torch.randn(1, 9, 2, 4, generator=chance, dtype=torch.float64) for _ in range(2)]
    attrs = {"window": 0, "softcap": 0.0, "scale": 0.5, "input_pos": SymbolAttr("pos")} | options
    inputs = {"q": q, "k": k, "v": v, "kc": caches[0], "vc": caches[1]}
    got, buffers = one_node(
        "sdpa_with_kv_cache", inputs, (1, 3, 6, 4), attrs, caches=("kc", "vc"), symbols={"pos": 4}
    )
    for cache, new, name in zip(caches, (k, v), ("kc", "vc"), strict=True):
        cache[:, 4:7] = new
        np.testing.assert_array_equal(buffers[name], cache)
    want = attend(q, caches[0], caches[1], 4, scale=0.5, **options)
    tolerances.require(got, want, tolerances.FUSED_F64)


def test_one_product_for_q_k_and_v() -> None:
    chance = torch.Generator().manual_seed(3)
    qkv = torch.randn(1, 2, 8 * 4, generator=chance, dtype=torch.float64)
    inv_freq = torch.tensor([1.0, 0.25])
    attrs = {
        "input_pos": 3,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 4,
        "interleaved": False,
        "scale": 1.0,
    }
    cache = torch.zeros(1, 8, 2, 4)
    got, buffers = one_node(
        "rope_qkv_update",
        {"x": qkv, "f": inv_freq, "kc": cache, "vc": cache.clone()},
        (1, 2, 4, 4),
        attrs,
        caches=("kc", "vc"),
    )
    split = qkv.reshape(1, 2, 8, 4)
    tolerances.require(got, rotate(split[:, :, :4], inv_freq, 3), tolerances.INTERPRETED_F32)
    tolerances.require(
        buffers["kc"][:, 3:5], rotate(split[:, :, 4:6], inv_freq, 3), tolerances.INTERPRETED_F32
    )
    np.testing.assert_array_equal(buffers["vc"][:, 3:5], split[:, :, 6:])
    assert not buffers["kc"][:, :3].any()
    assert not buffers["vc"][:, 5:].any()


def test_a_row_that_sees_nothing_is_zero() -> None:
    got, _ = one_node("softmax", {"x": np.full((2, 3), -np.inf)}, (2, 3))
    assert not got.any()


def test_shapes_are_checked_against_the_declaration() -> None:
    with pytest.raises(InputError, match=r"'out' has shape \[2, 3, 8\], declared \[2, 3, 9\]"):
        one_node("neg", {"x": X64}, (2, 3, 9))


def test_an_unknown_operator_is_named() -> None:
    with pytest.raises(UnsupportedOpError, match="'wobble'"):
        one_node("wobble", {"x": X64}, (2, 3, 8))


def test_every_node_can_be_observed() -> None:
    graph = Graph(
        symbols=(),
        constraints=(),
        values={name: Value(name, "f32", (2,)) for name in ("x", "a", "b")},
        constants={},
        buffers={},
        nodes=(Node("first", "neg", ("x",), ("a",)), Node("second", "exp", ("a",), ("b",))),
        inputs=(Port("x", "x"),),
        outputs=(Port("b", "b"),),
    )
    seen = []
    reference.run(
        graph, {}, {}, {"x": [1.0, 2.0]}, {}, observe=lambda node, _: seen.append(node.name)
    )
    assert seen == ["first", "second"]
    with pytest.raises(InputError, match="input 'x' is missing"):
        reference.run(graph, {}, {}, {}, {})
