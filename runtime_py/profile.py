"""GPU time per dispatch, by timestamps, and how it adds up by kernel.

Input:  a program and a step's symbol values. Output: a time for every dispatch, in order.
Way of the data: `session.profile` -> profile -> web/profile.js.

    times = await session.profile({"tokens": [1]}, S=1, input_pos=0, L=1)
    by_kernel(times)                      # {"linear_q_gemv": 1.93, ...} in milliseconds
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runtime_py.errors import FeatureMissingError
from runtime_py.program import Program


@dataclass(frozen=True)
class DispatchTime:
    """GPU time of one dispatch in milliseconds, with what it ran."""

    node: str
    kernel: str
    key: str
    time_ms: float


async def profile_program(program: Program, values: Mapping[str, int]) -> list[DispatchTime]:
    """Return the time of every dispatch of one step; raises `FeatureMissingError`."""
    if "timestamp-query" not in program.device.caps.features:
        raise FeatureMissingError("this adapter has no timestamp-query, which a profile needs")
    nanoseconds = await program.profile(values)
    return [
        DispatchTime(d.node, d.key.kernel, str(d.key), ns / 1e6)
        for d, ns in zip(program.plan.dispatches, nanoseconds, strict=True)
    ]


def by_kernel(times: Iterable[DispatchTime]) -> dict[str, float]:
    """Return kernel -> summed milliseconds, the longest first."""
    sums: dict[str, float] = {}
    for time in times:
        sums[time.kernel] = sums.get(time.kernel, 0.0) + time.time_ms
    return dict(sorted(sums.items(), key=lambda item: -item[1]))
