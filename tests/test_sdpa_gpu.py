"""Every row of the reference's attention table, on a GPU, against float64.

One graph a row, its position a number, the caches passed in and out. On a host without shader-f16
the f16 rows run with f32 caches and the strict tolerance; the whole table with f16 caches is then
counted as skipped, with the reason.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

import exporter
from runtime_py.errors import FeatureMissingError, UserError
from tests import gpu, oracles, tolerances
from tests.cases import SDPA, SDPA_REJECT, Sdpa

pytestmark = pytest.mark.gpu

HEAVY = {"llama1b_prefill_2048"}
# Where the f16 rows run; naming one demands that it has shader-f16.
F16_HOST = os.environ.get("TABFIRE_F16_HOST", "")
ROWS = [pytest.param(row, marks=pytest.mark.heavy) if row.name in HEAVY else row for row in SDPA]


def inputs_of(row: Sdpa) -> dict[str, Tensor]:
    """Return the row's q, k, v and caches."""
    sizes = (row.context, row.kv_heads, row.head_dim)
    return {
        "q": oracles.queries(row.tokens, row.heads, row.head_dim, row.den),
        "k": oracles.keys(row.tokens, row.kv_heads, row.head_dim, row.den),
        "v": oracles.values(row.tokens, row.kv_heads, row.head_dim, row.den),
        "k_cache": oracles.cache(row.input_pos, *sizes, mod=7, off=3),
        "v_cache": oracles.cache(row.input_pos, *sizes, mod=5, off=2),
    }


def golden(row: Sdpa, inputs: dict[str, Tensor], f16_kv: bool) -> Tensor:
    """Return the float64 result, cast to float32."""
    k, v = (
        torch.cat((inputs[f"{name}_cache"][:, : row.input_pos], inputs[name]), dim=1)
        for name in ("k", "v")
    )
    return oracles.attention(inputs["q"], k, v, row.input_pos, f16_kv)


def answer(
    row: Sdpa,
    inputs: dict[str, Tensor],
    *,
    position: int | None = None,
    options: dict[str, Any] | None = None,
    host: str = gpu.HOST,
) -> Any:
    """Return what the host answers; `position` is the row's own if not given."""
    at = row.input_pos if position is None else position
    folder = gpu.bundle(f"{row.name}-{at}", lambda: (gpu.AttendAt(at), inputs, {}, ()))
    return exporter.run(folder, [gpu.step(inputs)], host=host, options=options)[0]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_f32_caches(row: Sdpa) -> None:
    inputs = inputs_of(row)
    options = {"kv_dtype": "f32"}
    got = answer(row, inputs, options=options)
    oracles.check(got["output"], golden(row, inputs, False), tolerances.SDPA_F32, row.name)
    end = row.input_pos + row.tokens
    for name in ("k", "v"):
        cache = inputs[f"{name}_cache"].clone()
        cache[:, row.input_pos : end] = inputs[name]
        oracles.check(got[f"{name}_cache"], cache, tolerances.CACHE, f"{row.name}: {name} cache")


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_f16_caches(row: Sdpa) -> None:
    host = F16_HOST or gpu.HOST
    if "shader-f16" not in gpu.features(host):
        reason = f"host {host} has no shader-f16: f16 caches of {row.name} not run"
        assert not F16_HOST, reason
        pytest.skip(reason)
    inputs = inputs_of(row)
    got = answer(row, inputs, options={"kv_dtype": "f16"}, host=host)
    oracles.check(got["output"], golden(row, inputs, True), tolerances.SDPA_F16, row.name)


def test_f16_caches_fail_closed_or_fall_back_with_a_line_in_the_report() -> None:
    if "shader-f16" in gpu.features():
        pytest.skip(f"host {gpu.HOST} has shader-f16: nothing to refuse")
    row = SDPA[0]
    inputs = inputs_of(row)
    folder = gpu.bundle(f"{row.name}-0", lambda: (gpu.AttendAt(0), inputs, {}, ()))
    with pytest.raises(FeatureMissingError, match="shader-f16"):
        exporter.run(folder, [gpu.step(inputs)], options={"kv_dtype": "f16"})
    with gpu.opened(folder, {"kv_dtype": "f16", "prefer": ["kv_dtype"]}) as session:
        got = session.run(inputs)["output"]
        assert any("kv_dtype" in line for line in session.report()["fallbacks"])
    oracles.check(got, golden(row, inputs, False), tolerances.SDPA_F32, row.name)


def test_a_head_width_of_six_is_right_or_refused() -> None:
    inputs = inputs_of(SDPA_REJECT)
    try:
        got = answer(SDPA_REJECT, inputs)
    except UserError as error:
        assert error.message  # noqa: PT017  (a typed refusal is one of the two right answers)
    else:
        want = golden(SDPA_REJECT, inputs, False)
        oracles.check(got["output"], want, tolerances.SDPA_F32, SDPA_REJECT.name)


# -- controls: the comparer can fail

DECODE = next(row for row in SDPA if row.name == "gqa31_decode")


def test_control_a_pinned_position_is_noticed() -> None:
    inputs = inputs_of(DECODE)
    got = answer(DECODE, inputs, position=0)["output"]
    assert oracles.differs(got, golden(DECODE, inputs, False), tolerances.SDPA_F32)


@pytest.mark.parametrize("name", ["k", "v", "k_cache", "v_cache", "q"])
def test_control_one_element_is_noticed(name: str) -> None:
    inputs = inputs_of(DECODE)
    want = golden(DECODE, inputs, False)
    touched = {**inputs, name: inputs[name].clone()}
    touched[name].view(-1)[3] += 0.5
    got = answer(DECODE, touched)["output"]
    assert oracles.differs(got, want, tolerances.SDPA_F32)
    oracles.check(got, golden(DECODE, touched, False), tolerances.SDPA_F32, "the touched inputs")


def test_control_nan_never_passes() -> None:
    assert oracles.differs([float("nan")], [float("nan")], tolerances.SDPA_F32)
    assert oracles.differs([0.0], [1.1e-4], tolerances.SDPA_F32)
    assert not oracles.differs([0.0], [0.9e-4], tolerances.SDPA_F32)
    assert not oracles.differs([1000.0], [1000.9], tolerances.SDPA_F32)
