"""Linear layers in f32 on a GPU, against float64: the reference's table and rows past it, by the routes of
a CPU adapter and those of a GPU. The f16 rows run here too where the host has no shader-f16: in f32, by
`prefer`, with the strict tolerance.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

from runtime_py.errors import FeatureMissingError
from tests import gpu
from tests.cases_linear import F16_SUMS, HEAVY, TABLES, LinearCase, case_id
from tests.linear_models import Layers, arrays_of, golden
from tests.tolerances import LINEAR, LINEAR_LONG, accept, require, worst

pytestmark = pytest.mark.gpu

ROUTES = ("cpu", "gpu")
F32_TABLES = tuple(name for name in TABLES if name not in ("reference_f16", "tokens"))
ROWS = [
    pytest.param(name, i, id=case_id(case))
    for name in F32_TABLES
    for i, case in enumerate(TABLES[name])
]
PREFER = {**F16_SUMS, "prefer": ["compute"]}


@functools.cache
def answers(name: str, tuning: str) -> tuple[list[gpu.Array], list[Any]]:
    """Return y of every row of a table, and the dispatches."""
    return Layers(name, TABLES[name]).run({"tuning": tuning})


@pytest.mark.parametrize("tuning", ROUTES)
@pytest.mark.parametrize(("name", "index"), ROWS)
def test_a_row(name: str, index: int, tuning: str) -> None:
    case = TABLES[name][index]
    require(answers(name, tuning)[0][index], golden(case), case.close, case.name)


@pytest.mark.parametrize("tuning", ROUTES)
@pytest.mark.parametrize("name", F32_TABLES)
def test_the_report_names_no_f16_and_the_routes_of_the_adapter(name: str, tuning: str) -> None:
    dispatches = answers(name, tuning)[1]
    assert not [
        d["key"] for d in dispatches if "multiply=f16" in d["key"] or "sums=f16" in d["key"]
    ]
    quads = [d for d in dispatches if "quad" in d["kernel"]]
    products = [d for d in dispatches if d["kernel"].startswith("linear")]
    assert len(products) == len(TABLES[name])
    assert quads == (products if tuning == "cpu" else [])


def test_the_nibble_form_gives_the_same_bits() -> None:
    table = Layers("tiled-small", [c for c in TABLES["tiled"] if c.name.startswith("tile")])
    nibbles, dispatches = table.run({"tuning": "gpu", "linear": "nibble"})
    words = dict(zip((c.name for c in TABLES["tiled"]), answers("tiled", "gpu")[0], strict=True))
    for case, nibble in zip(table.cases, nibbles, strict=True):
        np.testing.assert_array_equal(words[case.name], nibble, case_id(case))
    assert all("dequant=nibble," in d["key"] for d in dispatches)
    assert not any("dequant=nibble," in d["key"] for d in answers("tiled", "gpu")[1])


def test_f16_rows_fall_back_where_asked_and_hold_the_strict_tolerance() -> None:
    if "shader-f16" in gpu.features():
        pytest.skip(f"host {gpu.HOST} has shader-f16: nothing to fall back from")
    table = Layers("reference_f16", TABLES["reference_f16"])
    with gpu.opened(table.folder, PREFER) as session:
        outputs = list(session.run(table.inputs).values())
        report = session.report()
    assert [line.split("=")[0] for line in report["fallbacks"]] == [
        "compute",
        "f16_accumulate_gemm",
    ]
    assert "f16," not in "".join(d["key"] for d in report["programs"][0]["dispatches"])
    for case, y in zip(table.cases, outputs, strict=True):
        require(y, golden(case), LINEAR, case.name)


@pytest.mark.parametrize("options", [{"compute": "f16"}, F16_SUMS], ids=["f16", "f16-sums"])
def test_f16_arithmetic_fails_closed(options: dict[str, Any]) -> None:
    if "shader-f16" in gpu.features():
        pytest.skip(f"host {gpu.HOST} has shader-f16: nothing to refuse")
    with (
        pytest.raises(FeatureMissingError, match="compute='f16'"),
        gpu.opened(Layers("plain", TABLES["plain"]).folder, options),
    ):
        pass


@pytest.mark.parametrize("tuning", ROUTES)
def test_control_one_code_is_noticed(tuning: str) -> None:
    names = [case.name for case in TABLES["reference"]]
    for name in ("kv_proj", "steel"):
        case = TABLES["reference"][names.index(name)]
        got = answers("reference", tuning)[0][names.index(name)]
        touched = {**arrays_of(case), "codes": arrays_of(case)["codes"].copy()}
        touched["codes"][17, 2] ^= 1  # x[.., 16] is half, the greatest
        assert accept(got, golden(case), *case.close)
        assert not accept(got, golden(case, data=touched), *case.close)


@pytest.mark.heavy
@pytest.mark.parametrize("case", HEAVY, ids=case_id)
def test_a_heavy_row(case: LinearCase) -> None:
    if "shader-f16" not in gpu.features() and case.options:
        case = dataclasses.replace(case, options=PREFER, close=LINEAR_LONG)
    (y,) = Layers(case.name, [case]).run_heavy(case.options)
    want = golden(case)
    print(f"\n{case.name}: worst error {worst(y, want):.2g}")
    require(y, want, case.close, case.name)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "case", [c for c in HEAVY if c.m in (128, 130) and not c.options], ids=case_id
)
def test_a_heavy_row_by_the_routes_of_a_gpu(case: LinearCase) -> None:
    (y,) = Layers(case.name, [case]).run_heavy({"tuning": "gpu"})
    require(y, golden(case), case.close, case.name)
