"""The GEMV in sizes that no adapter without a GPU asks for, against float64, on the software adapter.

Its subgroups have four threads, so with lanes=4 each subgroup sums alone, as subgroups of 32 do on a
GPU; K is so long that a thread takes several blocks, also where a workgroup shares a sum.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser

from exporter.hosts.server import Server
from runtime_py.ops import linear_routes
from runtime_py.ops.base import Caps
from runtime_py.ops.linear_gemv import Gemv
from tests.cases_linear import LinearCase
from tests.dispatches import Runner
from tests.linear_models import arrays_of, golden
from tests.test_linear_lowering import planned
from tests.tolerances import accept, require

pytestmark = pytest.mark.gpu

CAPS = Caps(features=frozenset({"subgroups"}), subgroup_min=4, subgroup_max=4)
SIZES = (
    Gemv("team", 4, 32, 1),
    Gemv("team", 4, 64, 2),
    Gemv("team", 4, 32, 8),
    Gemv("subgroup", 0, 32, 2),
    Gemv("workgroup", 0, 32, 2),
)
CASES = (
    LinearCase("whole_blocks", 1, 2048, 37, 32),
    LinearCase("tail", 3, 1100, 21, 24, "q4gaw", bias=True, residual=True, norm=True),
    LinearCase("eight_bit", 1, 1030, 19, 32, "q8gsw", norm=True),
    LinearCase("eight_bit_least", 5, 1024, 13, 32, "q8gaw"),
    LinearCase("gated", 2, 1056, 11, 32, "q4gaw", norm=True, act="silu", scale_dtype="f16"),
    LinearCase("floats", 4, 515, 9, 515, "f32", bias=True),
)


@pytest.fixture(scope="module")
def runner(browser: Browser) -> Iterator[Runner]:
    with Server() as server:
        page = browser.new_page()
        page.goto(server.origin)
        yield Runner(page)
        page.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size.reduce}{size.threads}x{size.cols}")
def test_sums_of_several_blocks(
    size: Gemv, case: LinearCase, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_routes, "size_for", lambda caps, **shape: size)
    _, dispatches = planned(case, CAPS, 1, max(case.m, 2 if case.m > 1 else 1))
    assert [d.key.kernel for d in dispatches] == ["linear_gemv"]
    shape = (1, case.m, case.n)
    got = runner.run(dispatches, arrays_of(case), {"S": case.m}, "y", shape)
    require(got, golden(case), case.close, case.name)


def test_one_weight_more_is_seen(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    case, size = CASES[0], SIZES[0]
    monkeypatch.setattr(linear_routes, "size_for", lambda caps, **shape: size)
    _, dispatches = planned(case, CAPS, 1, 1)
    arrays = dict(arrays_of(case))
    arrays["codes"] = arrays["codes"].copy()
    arrays["codes"][5, 200] ^= np.uint32(0x00000700)
    got = runner.run(dispatches, arrays, {"S": 1}, "y", (1, 1, case.n))
    assert not accept(got, golden(case), *case.close)
