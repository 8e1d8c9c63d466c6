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
    ],
)
def test_refused(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        SessionOptions.parse(given)


def test_defaults_are_exact_and_plain() -> None:
    options = SessionOptions.parse(None)
    assert (options.replay, options.kv_dtype, options.scratch_pool) == ("js", "auto", True)
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
