"""Every row of the reference's attention table, on a GPU, against float64.

One graph a row, its position a number, the caches passed in and out. The table runs twice: with f32
caches and the strict tolerance, and with f16 caches on a host that has shader-f16 (`gpu.f16_host`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import exporter
from runtime_py.errors import FeatureMissingError
from tests import gpu, oracles
from tests.cases import SDPA, SDPA_ROWS, FloatArray, Sdpa
from tests.tolerances import CACHE, SDPA_F16, SDPA_F32, accept, require

pytestmark = pytest.mark.gpu

HEAVY = {"llama1b_prefill_2048"}  # 40 s on SwiftShader and two cores
TABLE = [
    pytest.param(row, id=row.name, marks=[pytest.mark.heavy] if row.name in HEAVY else [])
    for row in SDPA_ROWS
]
Inputs = dict[str, FloatArray]


def caches_after(row: Sdpa, inputs: Inputs) -> tuple[FloatArray, FloatArray]:
    """Return both caches as they must be after the step."""
    k, v = (inputs[f"{name}_cache"].copy() for name in "kv")
    k[:, row.pos : row.pos + row.s] = inputs["k"]
    v[:, row.pos : row.pos + row.s] = inputs["v"]
    return k, v


def golden(row: Sdpa, inputs: Inputs, *, f16: bool = False) -> FloatArray:
    """Return the float64 result, cast to float32; `f16` rounds K and V as the cache does."""
    k, v = caches_after(row, inputs)
    if f16:
        k, v = (cache.astype(np.float16).astype(np.float32) for cache in (k, v))
    return oracles.sdpa(inputs["q"], k, v, row.pos).astype(np.float32)


def answer(row: Sdpa, steps: list[Inputs], position: int | None = None, **how: Any) -> Any:
    """Return what a host answers to `steps`; `position` is the row's own if not given."""
    at = row.pos if position is None else position
    example = {name: torch.from_numpy(array) for name, array in row.inputs().items()}
    folder = gpu.bundle(f"{row.name}-{at}", lambda: (gpu.AttendAt(at), example, {}, ()))
    return exporter.run(folder, [{"inputs": inputs} for inputs in steps], **how)


@pytest.mark.parametrize("row", TABLE)
def test_f32_caches(row: Sdpa) -> None:
    inputs = row.inputs()
    got = answer(row, [inputs], options={"kv_dtype": "f32"})[0]
    require(got["output"], golden(row, inputs), SDPA_F32, row.name)
    for name, want in zip(("k_cache", "v_cache"), caches_after(row, inputs), strict=True):
        require(got[name], want, CACHE, f"{row.name}: {name}")


@pytest.mark.parametrize("row", TABLE)
def test_f16_caches(row: Sdpa) -> None:
    host = gpu.f16_host()
    inputs = row.inputs()
    got = answer(row, [inputs], options={"kv_dtype": "f16"}, host=host)[0]
    require(got["output"], golden(row, inputs, f16=True), SDPA_F16, row.name)


def test_f16_caches_fail_closed_or_fall_back_with_a_line_in_the_report() -> None:
    if "shader-f16" in gpu.features():
        pytest.skip(f"host {gpu.HOST} has shader-f16: nothing to refuse")
    row = SDPA["gqa31_prefill"]
    inputs = row.inputs()
    with pytest.raises(FeatureMissingError, match="shader-f16"):
        answer(row, [inputs], options={"kv_dtype": "f16"})
    example = {name: torch.from_numpy(array) for name, array in inputs.items()}
    folder = gpu.bundle(f"{row.name}-0", lambda: (gpu.AttendAt(0), example, {}, ()))
    with gpu.opened(folder, {"kv_dtype": "f16", "prefer": ["kv_dtype"]}) as session:
        got = session.run(inputs)["output"]
        assert any("kv_dtype" in line for line in session.report()["fallbacks"])
    require(got, golden(row, inputs), SDPA_F32, row.name)


def test_control_a_pinned_position_is_noticed() -> None:
    row = SDPA["gqa31_decode"]
    got = answer(row, [row.inputs()], position=0)[0]["output"]
    assert not accept(got, golden(row, row.inputs()), *SDPA_F32)


def test_control_one_element_is_noticed() -> None:
    row = SDPA["gqa31_decode"]
    want = golden(row, row.inputs())
    cases = []
    for name in row.inputs():
        touched = row.inputs()
        touched[name].reshape(-1)[3] += 0.5
        cases.append(touched)
    answers = answer(row, cases)
    for name, touched, got in zip(row.inputs(), cases, answers, strict=True):
        assert not accept(got["output"], want, *SDPA_F32), name
        require(got["output"], golden(row, touched), SDPA_F32, f"{name} touched")


def test_control_the_rule() -> None:
    assert not accept([float("nan")], [float("nan")], *SDPA_F32)
    assert not accept([0.0], [1.1e-4], *SDPA_F32)
    assert accept([0.0], [0.9e-4], *SDPA_F32)
    assert accept([1000.0], [1000.9], *SDPA_F32)
    assert not accept([1000.0], [1002.0], *SDPA_F32)
