"""GPU time per dispatch, by timestamps, and how it adds up by kernel.

Input:  a program and a step's symbol values. Output: a time for every dispatch, in order, and sums.
Way of the data: `session.profile` -> profile -> web/profile.js.

    times = await session.profile({"tokens": [1]}, S=1, input_pos=0, L=1)
    by_kernel(times)[0]        # KernelTime("linear_gemv", dispatches=121, time_ms=1.93, share=0.7)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runtime_py.errors import FeatureMissingError
from runtime_py.program import EVERYTHING, Program
from runtime_py.reach import ALWAYS


@dataclass(frozen=True)
class DispatchTime:
    """GPU time of one dispatch in milliseconds, with what it ran."""

    node: str
    kernel: str
    key: str
    time_ms: float


@dataclass(frozen=True)
class KernelTime:
    """What the dispatches of one kernel took together: milliseconds, and the part of the step."""

    kernel: str
    dispatches: int
    time_ms: float
    share: float


async def profile_program(
    program: Program, values: Mapping[str, int], wanted: int = EVERYTHING
) -> list[DispatchTime]:
    """Return the time of every dispatch of one step that the outputs with the bits `wanted` need;
    raises `FeatureMissingError`.
    """
    if "timestamp-query" not in program.device.caps.features:
        raise FeatureMissingError("this adapter has no timestamp-query, which a profile needs")
    nanoseconds = await program.profile(values, wanted)
    plan, bits = program.plan, wanted | ALWAYS
    return [
        DispatchTime(d.node, d.key.kernel, str(d.key), ns / 1e6)
        for d, serves, ns in zip(plan.dispatches, plan.serves, nanoseconds, strict=True)
        if serves & bits
    ]


def by_kernel(times: Iterable[DispatchTime]) -> list[KernelTime]:
    """Return what each kernel took, the longest first."""
    groups: dict[str, list[float]] = {}
    for time in times:
        groups.setdefault(time.kernel, []).append(time.time_ms)
    whole = sum(map(sum, groups.values()))
    found = [
        KernelTime(kernel, len(ms), sum(ms), sum(ms) / whole if whole else 0.0)
        for kernel, ms in groups.items()
    ]
    return sorted(found, key=lambda one: -one.time_ms)
