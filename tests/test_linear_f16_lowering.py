"""Linear layers in f16 as dispatches: which options change which keys, and what never does. No browser."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from runtime_py.kernels import KernelLibrary
from runtime_py.ops.base import Axis, Dispatch
from tests.cases_linear import F16, F16_SUMS, PAST, REFERENCE, LinearCase, case_id
from tests.test_linear_lowering import (
    DEVICES,
    GPU,
    PLAIN,
    check_dispatch,
    planned,
    workgroup_bytes,
)

LIBRARY = KernelLibrary()
BY_NAME = {case.name: case for case in REFERENCE}
CASES = [c for c in (*REFERENCE, *PAST) if not c.options]


def axes(dispatch: Dispatch) -> dict[str, Axis]:
    return dict(dispatch.key.axes)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_nothing_is_f16_unless_an_option_asks_for_it(case: LinearCase, device: str) -> None:
    for dispatch in planned(case, DEVICES[device], 1, case.m)[1]:
        assert axes(dispatch).get("multiply", "f32") == axes(dispatch).get("sums", "f32") == "f32"
        assert "f16>" not in LIBRARY.render(dispatch.key)
        assert "enable f16" not in LIBRARY.render(dispatch.key)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", [F16, F16_SUMS], ids=["f16", "f16-sums"])
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_every_case_lowers_to_legal_f16_dispatches(
    case: LinearCase, options: dict[str, Any], device: str
) -> None:
    planner, dispatches = planned(case, DEVICES[device], 1, case.m, **options)
    products = [d for d in dispatches if d.key.kernel.startswith("linear")]
    for dispatch in dispatches:
        check_dispatch(planner, dispatch)
    for dispatch in products:
        assert axes(dispatch)["multiply"] == "f16"
        assert "f16 products" in dispatch.reason
        assert "enable f16;" in LIBRARY.render(dispatch.key)
    many = case.m > 16
    assert {d.key.kernel for d in products} == {"linear_gemm" if many else "linear_gemv"}
    assert {axes(d).get("sums") for d in products} == {
        ("f16" if options is F16_SUMS else "f32") if many else None
    }


@pytest.mark.parametrize("most", [1, 16, 17, 512])
def test_the_norm_is_a_dispatch_of_its_own_so_that_its_result_can_be_rounded(most: int) -> None:
    for caps in DEVICES.values():
        for act in ("none", "silu"):
            case = LinearCase("c", most, 576, 960, 32, norm=True, act=act)
            kernels = [d.key.kernel for d in planned(case, caps, 1, most, **F16)[1]]
            assert kernels == ["rms_norm", "linear_gemv" if most <= 16 else "linear_gemm"]


@pytest.mark.parametrize(
    ("name", "dequant"),
    [("steel_f16", "word"), ("pwdq_gs64", "word"), ("pwdq_gs8", "nibble"), ("steel", "word")],
)
def test_the_gate_of_the_packed_word_form(name: str, dequant: str) -> None:
    (dispatch,) = planned(BY_NAME[name], GPU, 96, 96)[1]
    assert axes(dispatch)["dequant"] == dequant
    assert ("code by code" in dispatch.reason) == (dequant == "nibble")


@pytest.mark.parametrize(
    ("scheme", "group", "dequant"),
    [
        ("q4gsw", 16, "nibble"), ("q4gsw", 24, "nibble"), ("q4gsw", 32, "word"), ("q4gaw", 48, "nibble"),
        ("q4gaw", 96, "word"), ("q8gsw", 4, "nibble"), ("q8gaw", 128, "word"), ("q8gaw", 200, "word"),
        ("f32", 200, "word"),
    ],
)  # fmt: skip
def test_a_group_that_ends_within_the_depth_is_read_code_by_code_in_f16_only(
    scheme: str, group: int, dequant: str
) -> None:
    case = LinearCase("c", 64, 200, 512, group, scheme)
    (half,), (wide,) = (planned(case, PLAIN, 1, 64, **options)[1] for options in (F16, {}))
    assert axes(half)["dequant"] == dequant
    assert axes(wide)["dequant"] == "word"


def test_the_nibble_form_is_there_for_the_asking() -> None:
    case = LinearCase("c", 64, 576, 512, 32)
    for options in ({}, F16, F16_SUMS):
        (nibble,) = planned(case, GPU, 1, 64, **options, linear="nibble")[1]
        (word,) = planned(case, GPU, 1, 64, **options, linear="tiled")[1]
        assert axes(nibble) == {**axes(word), "dequant": "nibble"}


def test_f16_layers_past_a_binding_are_computed_in_windows() -> None:
    caps = dataclasses.replace(GPU, limits={"maxStorageBufferBindingSize": 70_000})
    for most in (1, 17):
        case = LinearCase("c", most, 192, 1000, 32, bias=True)
        planner, dispatches = planned(case, caps, 1, most, **F16)
        assert len(dispatches) > 1
        for dispatch in dispatches:
            check_dispatch(planner, dispatch)


def test_tiles_of_f16_take_half_the_workgroup_memory() -> None:
    case = LinearCase("c", 512, 576, 4096, 32)
    (wide,), (half,) = (planned(case, GPU, 1, 512, **options)[1] for options in ({}, F16))
    for dispatch, value_bytes in ((wide, 4), (half, 2)):
        axes = dict(dispatch.key.axes)
        values = 2 * int(axes["tile"]) * int(axes["depth"])
        assert workgroup_bytes(LIBRARY.render(dispatch.key)) == value_bytes * values
