"""Session options: unknown names and values are refused; a lossy or missing feature fails closed."""

from __future__ import annotations

from typing import Any

import pytest

from runtime_py.errors import FeatureMissingError, OptionError
from runtime_py.ops.base import Caps
from runtime_py.options import SessionOptions


@pytest.mark.parametrize(
    "given",
    [
        {"repaly": "js"},
        {"replay": "c"},
        {"scratch_pool": 1},
        {"debug": 9},
        {"prefer": "kv_dtype"},
        {"prefer": ["x"]},
        {"compute": "f64"},
        {"linear": "matrix"},
        {"f16_accumulate_gemm": 1, "compute": "f16"},
        {"f16_accumulate_gemm": True},
        {"f16_accumulate_gemm": True, "compute": "f32", "prefer": ["f16_accumulate_gemm"]},
    ],
)
def test_refused(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        SessionOptions.parse(given)


def test_defaults_are_exact_and_plain() -> None:
    options = SessionOptions.parse(None)
    assert (options.replay, options.kv_dtype, options.scratch_pool) == ("js", "auto", True)
    assert (options.compute, options.f16_accumulate_gemm, options.linear) == ("f32", False, "auto")
    assert options.resolve(Caps()) == (options, [])


def test_f16_cache_fails_closed() -> None:
    with pytest.raises(FeatureMissingError, match="shader-f16"):
        SessionOptions.parse({"kv_dtype": "f16"}).resolve(Caps())


def test_f16_cache_falls_back_only_when_allowed_and_says_so() -> None:
    options, notes = SessionOptions.parse({"kv_dtype": "f16", "prefer": ["kv_dtype"]}).resolve(
        Caps()
    )
    assert options.kv_dtype == "auto"
    assert "fell back" in notes[0]


def test_f16_cache_is_kept_where_the_device_has_it() -> None:
    caps = Caps(features=frozenset(["shader-f16"]))
    assert SessionOptions.parse({"kv_dtype": "f16"}).resolve(caps)[0].kv_dtype == "f16"


SUMS = {"compute": "f16", "f16_accumulate_gemm": True}


@pytest.mark.parametrize(
    "given", [{"compute": "f16"}, SUMS, {**SUMS, "prefer": ["f16_accumulate_gemm"]}]
)
def test_f16_arithmetic_fails_closed(given: dict[str, Any]) -> None:
    with pytest.raises(FeatureMissingError, match=r"compute='f16' needs .*shader-f16"):
        SessionOptions.parse(given).resolve(Caps())


@pytest.mark.parametrize("prefer", [["compute"], ["compute", "f16_accumulate_gemm"]])
def test_f16_sums_fall_back_with_the_products(prefer: list[str]) -> None:
    options, notes = SessionOptions.parse({**SUMS, "prefer": prefer}).resolve(Caps())
    assert (options.compute, options.f16_accumulate_gemm) == ("f32", False)
    assert [note.split("=")[0] for note in notes] == ["compute", "f16_accumulate_gemm"]


def test_the_three_f16_options_are_independent_where_the_device_has_f16() -> None:
    caps = Caps(features=frozenset(["shader-f16"]))
    for given in ({"compute": "f16"}, SUMS, {"kv_dtype": "f16"}, {**SUMS, "kv_dtype": "f16"}):
        options, notes = SessionOptions.parse(given).resolve(caps)
        kept = (options.compute, options.f16_accumulate_gemm, options.kv_dtype)
        names = ("compute", "f16_accumulate_gemm", "kv_dtype")
        assert kept == tuple(
            given.get(n, d) for n, d in zip(names, ("f32", False, "auto"), strict=True)
        )
        assert notes == []
