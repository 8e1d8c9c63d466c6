"""What a step records, seen by a device that only writes it down: tests/node_replay.mjs."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
from typing import Any

HERE = pathlib.Path(__file__).parent
GRIDS = [[4, 1, 1], [0, 3, 1], [2, 5, 1], [1, 1, 1]]
SERVES = [1, 1, 2, 1]


def record(wanted: int, steps: int = 1) -> dict[str, Any]:
    program = shutil.which("node")
    assert program, "Node is required: install Node 20 or later"
    job = json.dumps({"grids": GRIDS, "serves": SERVES, "wanted": wanted, "steps": steps})
    command = [program, str(HERE / "node_replay.mjs")]
    done = subprocess.run(command, input=job, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_route_that_the_step_does_not_take_is_left_out() -> None:
    assert record(1)["step"] == ["set p0", "p0:4x1x1", "set p3", "p3:1x1x1"]


def test_what_only_an_unwanted_output_needs_is_left_out() -> None:
    wanted = [line for line in record(3)["step"] if ":" in line]
    assert wanted == ["p0:4x1x1", "p2:2x5x1", "p3:1x1x1"]


def test_a_group_is_one_write_and_one_submit_and_every_step_takes_its_parameters() -> None:
    found = record(1, steps=3)
    assert (found["writes"], found["submits"]) == (1, 1)
    size = 4 * (1 + 3 * len(GRIDS) + 1)
    copies = [line for line in found["group"] if "->" in line]
    assert copies == [f"parameters of a group {size * i} -> params" for i in range(3)]
    assert found["group"] == [part for copy in copies for part in (copy, *found["step"])]


def test_an_output_on_its_way_is_taken_by_its_own_sizes_and_its_end_is_known() -> None:
    """So that a step may wait for the one before it, whose asker gave up."""
    events = record(1)["abandoned"]
    assert events[:3] == ["map 0+4", "take 0+4", "unmap"]
    assert sorted(events[3:]) == ["answer 9", "over"]
