"""Dimension expressions: spelling, value, bounds, and what must be refused."""

from __future__ import annotations

import pytest

from runtime_py import symbols
from runtime_py.errors import BadBundleError, InputError

RANGES = {"S": (1, 512), "input_pos": (0, 2047)}


@pytest.mark.parametrize(
    ("data", "values", "want"),
    [
        (7, {}, 7),
        ("S", {"S": 3}, 3),
        (["+", "S", "input_pos"], {"S": 4, "input_pos": 12}, 16),
        (["*", 9, ["-", "S", 1]], {"S": 4}, 27),
        (["//", ["-", "input_pos", 3], 2], {"input_pos": 0}, -2),  # floors; truncation gives -1
        (["//", ["-", 0, 7], 2], {}, -4),
    ],
)
def test_evaluate(data: object, values: dict[str, int], want: int) -> None:
    expr = symbols.parse(data)
    assert symbols.evaluate(expr, values) == want
    assert symbols.parse(symbols.to_json(expr)) == expr


@pytest.mark.parametrize(
    "data",
    [
        True,
        1.5,
        None,
        "S + 1",
        "",
        ["%", 1, 2],
        ["+", 1],
        {"expr": 1},
        2**31,
        ["+", 1, "__import__('os')"],
    ],
)
def test_parse_refuses(data: object) -> None:
    with pytest.raises(BadBundleError):
        symbols.parse(data)


def test_parse_refuses_deep_nesting() -> None:
    data: object = 1
    for _ in range(100):
        data = ["+", data, 1]
    with pytest.raises(BadBundleError, match="nested deeper"):
        symbols.parse(data)


def test_zero_divisor_is_an_error_never_a_number() -> None:
    with pytest.raises(InputError, match="division by zero"):
        symbols.evaluate(symbols.parse(["//", 5, ["-", "S", 3]]), {"S": 3})


def test_past_int32_is_an_error() -> None:
    with pytest.raises(InputError, match="int32"):
        symbols.evaluate(symbols.parse(["*", "S", 2**30]), {"S": 4})


def test_missing_symbol_is_named() -> None:
    with pytest.raises(InputError, match="'S' has no value"):
        symbols.evaluate("S", {})


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (["+", "S", "input_pos"], (1, 2559)),
        (["-", "S", "input_pos"], (-2046, 512)),
        (["*", "S", ["-", 0, 1]], (-512, -1)),
        (["//", "S", 64], (0, 8)),
    ],
)
def test_bounds(data: object, want: tuple[int, int]) -> None:
    assert symbols.bounds(symbols.parse(data), RANGES) == want


def test_bounds_refuse_a_divisor_that_can_be_zero() -> None:
    with pytest.raises(BadBundleError, match="can be zero"):
        symbols.bounds(symbols.parse(["//", 8, "input_pos"]), RANGES)


def test_product_and_ceil_div_fold_constants() -> None:
    assert symbols.product((2, "S", 3)) == symbols.Op("*", "S", 6)
    assert symbols.product((2, 3)) == 6
    assert symbols.ceil_div(65, 64) == 2
    assert symbols.evaluate(symbols.ceil_div("S", 64), {"S": 65}) == 2
