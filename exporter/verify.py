"""Replays a bundle's golden steps in a real host and compares every number with what eager PyTorch
answered.

Input:  a bundle's folder with `golden/`, a host's name.
Output: one `Verdict` a step and output: the worst absolute error, and how far it is from the step's
tolerance.
Way of the data: `golden` -> verify -> `run` -> hosts.

    worst = max(verdict.ratio for verdict in verify(Path("models/smollm2")))    # <= 1 is a pass
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from exporter.golden import GoldenStep, read_golden

Run: TypeAlias = "Callable[..., list[dict[str, Any]]]"
LEAST_WANTED = 1e-6  # a relative error is taken against at least this much


@dataclass(frozen=True)
class Verdict:
    """One output of one step. `ratio` is the worst element's error over its tolerance: a miss is
    above 1.
    """

    step: str
    output: str
    symbols: Mapping[str, int]
    worst_abs: float
    ratio: float

    @property
    def passed(self) -> bool:
        return self.ratio <= 1.0

    def __str__(self) -> str:
        where = " ".join(f"{name}={value}" for name, value in self.symbols.items())
        word = "ok" if self.passed else "MISS"
        return (
            f"{self.step:<20} {where:<28} {self.output:<10} worst error {self.worst_abs:.3g}"
            f" ({self.ratio:.3g} of the tolerance)  {word}"
        )


def verify(
    bundle_dir: Path, *, host: str = "chromium", run: Run | None = None
) -> Iterator[Verdict]:
    """Yield a verdict for every output of every golden step.

    Steps up to the next `reset` share one session. Raises `ExportError` if the bundle has no
    golden steps, and what the host raises.
    """
    if run is None:
        from exporter.run import run as run_in_host

        run = run_in_host
    for steps in _sessions(read_golden(bundle_dir)):
        answers = run(bundle_dir, [_request(step) for step in steps], host=host)
        for step, answer in zip(steps, answers, strict=True):
            for name, wanted in step.outputs.items():
                yield compare(step, name, answer.get(name), wanted)


def compare(step: GoldenStep, name: str, found: Any, wanted: torch.Tensor) -> Verdict:
    """Return the verdict on output `name`; a missing output, another shape or a NaN is infinitely
    wrong.
    """
    want = wanted.to(torch.float64).numpy()
    if found is None or np.shape(found) != want.shape:
        return Verdict(step.name, name, step.symbols, math.inf, math.inf)
    error = np.abs(np.asarray(found, dtype=np.float64) - want)
    relative = error / np.maximum(np.abs(want), LEAST_WANTED)
    ratio = np.minimum(_over(error, step.atol), _over(relative, step.rtol))
    ratio = np.where(np.isnan(ratio), math.inf, ratio)
    worst_abs = np.where(np.isnan(error), math.inf, error)
    return Verdict(
        step.name,
        name,
        step.symbols,
        float(worst_abs.max(initial=0.0)),
        float(ratio.max(initial=0.0)),
    )


def _over(error: np.ndarray[Any, Any], tolerance: float) -> np.ndarray[Any, Any]:
    """Return error / tolerance, where a tolerance of 0 takes exact answers only."""
    if tolerance > 0:
        return error / tolerance
    return np.where(error == 0, 0.0, np.where(np.isnan(error), math.nan, math.inf))


def _request(step: GoldenStep) -> dict[str, Any]:
    return {
        "inputs": {name: tensor.numpy() for name, tensor in step.inputs.items()},
        "symbols": dict(step.symbols),
    }


def _sessions(steps: Sequence[GoldenStep]) -> Iterator[list[GoldenStep]]:
    """Yield runs of steps, cut before every step that starts from the initial buffers."""
    current: list[GoldenStep] = []
    for step in steps:
        if step.reset and current:
            yield current
            current = []
        current.append(step)
    if current:
        yield current
