"""What a load of the real model makes, and what runs side by side meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from exporter.hosts.host import get_host
from tests import real_model

pytestmark = [pytest.mark.gpu, pytest.mark.model]


@pytest.fixture(scope="module")
def loaded() -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
    """The report of a loaded engine, and the counts of its worker before and after."""
    host = get_host("chromium")
    before = host.call("stats")[0]["counts"]
    handle = {"handle": host.load(real_model.bundle(), kind="engine")["handle"]}
    report, after = host.call("report", handle)[0], host.call("stats")[0]["counts"]
    host.call("close", handle)
    return report, before, after


def created(counts: Mapping[str, Any], name: str) -> int:
    return int(counts["created"].get(name, 0))


def test_layers_share_pipelines_and_all_compile_at_once(loaded: Any) -> None:
    report, before, after = loaded
    keys = {d["key"] for program in report["programs"] for d in program["dispatches"]}
    dispatches = sum(len(program["dispatches"]) for program in report["programs"])
    made = created(after, "createComputePipelineAsync") - created(
        before, "createComputePipelineAsync"
    )
    assert made == report["pipelines"] <= len(keys) < dispatches / 5
    assert created(after, "createShaderModule") - created(before, "createShaderModule") == made
    assert created(after, "createComputePipeline") == created(before, "createComputePipeline")
    # None waits for another; while the last are rendered, the first may be done already.
    assert after["in_flight"] > made / 2


def test_bind_groups_are_made_in_one_call_a_program(loaded: Any) -> None:
    report, before, after = loaded
    programs = [program["dispatches"] for program in report["programs"]]
    calls = after["calls"].get("makeGroups", 0) - before["calls"].get("makeGroups", 0)
    assert calls == len(programs) + 1  # and the decode loop's, over the plan of one token
    made = created(after, "createBindGroup") - created(before, "createBindGroup")
    assert made == sum(map(len, programs)) + len(programs[0])
    assert "createBindGroup" not in after["calls"]


def test_what_needs_no_pipeline_is_done_while_they_compile(loaded: Any) -> None:
    """The order of the code, not of chance: the thread gets to these once all were asked for."""
    begin = {name: start for name, (start, _) in loaded[0]["phases"].items()}
    for name in ("weights", "bind", "text"):
        assert begin["plan"] < begin["compile"] < begin[name] < begin["finish"], name


def test_phases_say_what_ran_side_by_side(loaded: Any) -> None:
    phases = loaded[0]["phases"]
    names = (
        "download",
        "manifest",
        "device",
        "weights",
        "plan",
        "compile",
        "text",
        "bind",
        "finish",
    )
    assert set(names) <= set(phases)
    assert all(0 <= start <= end <= phases["total"][1] for start, end in phases.values())
    assert phases["download"][0] == phases["total"][0] == 0
    (weights_start, weights_end), (compile_start, compile_end) = (
        phases["weights"],
        phases["compile"],
    )
    assert max(weights_start, compile_start) < min(weights_end, compile_end)
