"""The routes meant for a GPU give the same answers on the software adapter (option `tuning`)."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import numpy as np
import pytest

from exporter.run import run
from exporter.verify import verify
from tests import tolerances

pytestmark = [pytest.mark.gpu, pytest.mark.model]
BUNDLE = pathlib.Path(__file__).parent.parent / "models/smollm2"
PROMPT = [(i * 7919) % 40000 + 100 for i in range(40)]


def logits(tuning: str) -> Any:
    """Return the last row's logits after 40 tokens in one step, and after one more."""
    steps = [
        {
            "inputs": {"tokens": np.array([PROMPT], np.int32)},
            "symbols": {"S": 40, "input_pos": 0, "L": 1},
        },
        {
            "inputs": {"tokens": np.array([[504]], np.int32)},
            "symbols": {"S": 1, "input_pos": 40, "L": 1},
        },
    ]
    outputs = run(BUNDLE, steps, options={"tuning": tuning})
    return np.stack([step["logits"][0, 0] for step in outputs])


@pytest.mark.heavy
def test_golden_steps_pass_with_gpu_routes() -> None:
    tuned = functools.partial(run, options={"tuning": "gpu"})
    verdicts = list(verify(BUNDLE, run=tuned))
    assert len(verdicts) >= 5
    assert [str(v) for v in verdicts if not v.passed] == []


def test_tiles_and_streams_agree_with_the_routes_for_a_cpu() -> None:
    found, want = logits("gpu"), logits("cpu")
    assert tolerances.accept(found, want, *tolerances.MODEL_CUTS)
    assert not np.array_equal(found, want), "both ran the same routes"
