"""Linear layers in f16 on a host that has it: the reference's table and rows past it.

Twice against float64: exactly, with the tolerance of f16; and from the factors that compute="f16" is
defined by (x after its norm and the weight, rounded to f16), with the strict tolerance of f32 sums.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import exporter
from exporter import QuantLinear, ops
from runtime_py.errors import NonFiniteError
from runtime_py.sampling import Sampler, SamplingOptions
from tests import gpu, oracles
from tests.cases_linear import F16, F16_SUMS, HEAVY, TABLES, LinearCase, case_id
from tests.linear_models import Layers, golden
from tests.tolerances import (
    LINEAR,
    LINEAR_F16,
    LINEAR_F16_SUMS,
    LINEAR_ROUTES,
    SDPA_F16,
    accept,
    require,
    worst,
)

pytestmark = pytest.mark.gpu

TABLES_F16 = ("reference", "reference_f16", "tokens", "tiled")
ROWS = [
    pytest.param(name, i, id=case_id(case))
    for name in TABLES_F16
    for i, case in enumerate(TABLES[name])
]
REFERENCE_ROWS = [row for row in ROWS if row.values[0] in ("reference", "reference_f16")]
SUMS_ROWS = [
    pytest.param(name, i, id=case_id(case))
    for name in ("reference_f16", "tiled")
    for i, case in enumerate(TABLES[name])
]


@functools.cache
def answers(
    name: str, sums: str = "f32", linear: str = "auto"
) -> tuple[list[gpu.Array], list[Any]]:
    """Return y of every row of a table with compute="f16", and the dispatches."""
    options = {**(F16 if sums == "f32" else F16_SUMS), "linear": linear}
    return Layers(name, TABLES[name]).run(options, gpu.f16_host())


def keys(name: str, sums: str = "f32") -> dict[str, str]:
    """Return the kernel key of every row of a table, by the row's name."""
    products = [d["key"] for d in answers(name, sums)[1] if d["kernel"].startswith("linear")]
    return dict(zip((case.name for case in TABLES[name]), products, strict=True))


@pytest.mark.parametrize(("name", "index"), ROWS)
def test_a_row_is_what_the_definition_says(name: str, index: int) -> None:
    case = TABLES[name][index]
    require(answers(name)[0][index], golden(case, f16=True), LINEAR, case.name)


@pytest.mark.parametrize(("name", "index"), REFERENCE_ROWS)
def test_a_reference_row_is_within_the_tolerance_of_f16(name: str, index: int) -> None:
    case = TABLES[name][index]
    pair = tuple(max(both) for both in zip(case.close, LINEAR_F16, strict=True))
    if case.options == F16_SUMS:
        pair = LINEAR_F16  # here without its f16 sums
    require(answers(name)[0][index], golden(case), (pair[0], pair[1]), case.name)


@pytest.mark.parametrize(("name", "index"), SUMS_ROWS)
def test_f16_sums_are_within_their_tolerance(name: str, index: int) -> None:
    case = TABLES[name][index]
    got = answers(name, "f16")[0][index]
    require(got, golden(case), LINEAR_F16_SUMS, case.name)
    assert worst(got, golden(case, f16=True)) > 0, "sums in f32 after all"


def test_the_gate_of_the_packed_word_form() -> None:
    by_name = keys("reference_f16")
    for name, dequant in (("steel_f16", "word"), ("pwdq_gs64", "word"), ("pwdq_gs8", "nibble")):
        assert f"dequant={dequant}," in by_name[name], name
        assert "multiply=f16," in by_name[name]
        assert "sums=f32," in by_name[name]
    assert "sums=f16," in keys("reference_f16", "f16")["pwdqf16acc"]


@pytest.mark.parametrize(("name", "sums"), [("tiled", "f32"), ("reference_f16", "f16")])
def test_words_and_nibbles_give_the_same_bits(name: str, sums: str) -> None:
    words, nibbles = (answers(name, sums, linear) for linear in ("auto", "nibble"))
    for case, word, nibble in zip(TABLES[name], words[0], nibbles[0], strict=True):
        np.testing.assert_array_equal(word, nibble, case_id(case))
    forms = {d["key"].split("dequant=")[1].split(",")[0] for d in words[1]}
    assert forms == {"word", "nibble"}
    assert all("dequant=nibble," in d["key"] for d in nibbles[1])


def test_the_arithmetic_does_not_depend_on_the_number_of_tokens() -> None:
    table = zip(TABLES["tokens"], answers("tokens")[0], strict=True)
    rows = {case.m: y for case, y in table if not case.norm}
    for m, y in rows.items():
        require(y, rows[63][:, :m], LINEAR_ROUTES, f"M = {m}")
    kernels = {case.m: keys("tokens")[case.name].split("(")[0] for case in TABLES["tokens"]}
    assert {m: k for m, k in kernels.items() if (k == "linear_gemv") != (m <= 16)} == {}


def test_nothing_is_f16_by_default_even_where_the_host_has_it() -> None:
    table = Layers("reference_f16", TABLES["reference_f16"])
    outputs, dispatches = table.run({"tuning": "gpu"}, gpu.f16_host())
    for case, y in zip(table.cases, outputs, strict=True):
        require(y, golden(case), LINEAR, case.name)
    for key in (d["key"] for d in dispatches):
        assert "multiply=f32," in key
        assert "sums=f32," in key


class Outliers(nn.Module):
    """An attention block whose residual stream is about 800, as that of real models can be."""

    k_cache: Tensor
    v_cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        chance = torch.Generator().manual_seed(0)
        self.norm = gpu.Norm(128)
        self.parts = nn.ModuleList(
            QuantLinear.from_float(
                torch.randn(64, 128, generator=chance) / 11, None, "q4gsw", 32, name=name
            )
            for name in "qkv"
        )
        self.register_buffer("k_cache", torch.zeros(1, 32, 2, 32))
        self.register_buffer("v_cache", torch.zeros(1, 32, 2, 32))

    def heads(self, x: Tensor) -> list[Tensor]:
        """Return q, k and v `[1, S, 2, 32]`."""
        x = self.norm(x)
        return [part(x).view(1, -1, 2, 32) for part in self.parts]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = ops.sdpa_with_kv_cache(*self.heads(x), self.k_cache, self.v_cache, 0)
        return y


@pytest.mark.parametrize("tokens", [3, 20])
def test_outliers_of_800_survive_the_norm_and_an_f16_cache(tokens: int) -> None:
    x = 800 * torch.sign(gpu.tensor(1, tokens, 128) + 0.01) + gpu.tensor(1, tokens, 128, mod=13)
    module = Outliers()
    folder = gpu.bundle(f"outliers-{tokens}", lambda: (module, {"x": x}, {}, ()))
    options = {"compute": "f16", "kv_dtype": "f16"}
    got = exporter.run(folder, [gpu.step({"x": x})], host=gpu.f16_host(), options=options)[0]
    q, k, v = (part.detach().double().numpy() for part in module.double().heads(x.double()))
    cache = np.zeros((1, 32, 2, 32))
    cache_k, cache_v = cache.copy(), cache.copy()
    cache_k[:, :tokens], cache_v[:, :tokens] = k, v
    require(got["output"], oracles.sdpa(q, cache_k, cache_v, 0), SDPA_F16, "outliers")


OVER = {  # name: (factor of x, weight), both beside ones
    "sums past 65504": (60000.0, 1.0),
    "x past 65504": (70000.0, 1.0),
    "a weight past 65504": (1.0, 70000.0),
}


@functools.cache
def overflowing(sums: str) -> list[gpu.Array]:
    """Return x @ w.T for M = 2 and 20 and each of `OVER`, K = 64."""
    xs, ws = zip(*OVER.values(), strict=True)
    inputs = [torch.full((1, m, 64), x) for m in (2, 20) for x in xs]
    weights = [torch.full((16, 64), w) for w in ws]
    options = F16 if sums == "f32" else F16_SUMS

    def products(*given: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            nn.functional.linear(x, w) for x, w in zip(given, (*weights, *weights), strict=True)
        )

    return gpu.run_batch("overflow", products, inputs, options, gpu.f16_host())


@pytest.mark.parametrize("sums", ["f32", "f16"])
def test_what_passes_the_range_of_f16_is_right_or_infinite_never_another_number(sums: str) -> None:
    few, many = overflowing(sums)[:3], overflowing(sums)[3:]
    assert accept(few[0], np.full((1, 2, 16), 60000.0 * 64), *LINEAR)
    for y in (*few[1:], *many[1:]):
        assert not np.isfinite(y).any()
    if sums == "f32":
        assert accept(many[0], np.full((1, 20, 16), 60000.0 * 64), *LINEAR)
        return
    assert not np.isfinite(many[0]).any()
    with pytest.raises(NonFiniteError):
        Sampler(SamplingOptions(), 16, 0).sample(many[0][0, 0], 0)


@pytest.mark.heavy
@pytest.mark.parametrize("case", [c for c in HEAVY if c.options], ids=case_id)
def test_a_heavy_row(case: LinearCase) -> None:
    (y,) = Layers(case.name, [case]).run_heavy(case.options, gpu.f16_host())
    print(f"\n{case.name}: worst error {worst(y, golden(case)):.2g}")
    require(y, golden(case), case.close, case.name)


@pytest.mark.heavy
@pytest.mark.parametrize(("scheme", "windows"), [("q4gsw", 1), ("q8gsw", 2)])
def test_the_head_on_a_device_whose_bindings_hold_128_mib(scheme: str, windows: int) -> None:
    """The reference's head fits one binding; of 8 bits (263 MB) it takes two."""
    host = gpu.f16_host()
    (head,) = (case for case in HEAVY if case.name == "lm_head")
    table = Layers(f"head_{scheme}", [dataclasses.replace(head, scheme=scheme)])
    with gpu.opened(table.folder, {"tuning": "gpu"}, host) as session:
        report = session.report()
        (y,) = session.run(table.inputs).values()
    if report["adapter"]["limits"]["maxStorageBufferBindingSize"] == 2**27:
        assert len(report["programs"][0]["dispatches"]) == windows
    require(y, golden(table.cases[0]), head.close, head.name)
