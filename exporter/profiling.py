"""GPU time of a decode step and of a prefill step of a loaded model, added up by kernel.

Input:  a `headless.Model`. Output: plain data for JSON, and a table.
Way of the data: `headless.bench` -> profiling -> `profile` of runtime_py/rpc.py -> web/profile.js.

Every dispatch runs in a compute pass of its own between two timestamps, which costs it the overlap
with its neighbours: the sum is more than the step takes. Of several steps each kernel's median
counts. Chrome rounds timestamps to 0.1 ms unless it runs with
`--enable-webgpu-developer-features`.

    steps = profile_steps(model, prompt_tokens=512, repeat=5)
    print(table("decode", steps["decode"]))
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporter.headless import Model

WARM_UP = 1


def profile_steps(
    model: Model, prompt_ids: Sequence[int], *, longest: int, repeat: int
) -> dict[str, Any]:
    """Return the profile of a step over the first `longest` ids and of the step that decodes the
    token after all of them.
    """
    first, last = list(prompt_ids[:longest]), [prompt_ids[-1]]
    at = min(len(prompt_ids), model.info["context"] - 1)
    return {
        "prefill": profile_step(model, first, 0, repeat),
        "decode": profile_step(model, last, at, repeat),
    }


def profile_step(model: Model, ids: Sequence[int], input_pos: int, repeat: int) -> dict[str, Any]:
    """Return what one step of `ids` at `input_pos` takes: tokens, dispatches, milliseconds, and
    those of every kernel, the longest first. Raises `FeatureMissingError` without timestamps.
    """
    asked = {"ids": list(ids), "input_pos": input_pos}
    runs = [model.ask("profile", **asked) for _ in range(repeat + WARM_UP)][WARM_UP:]
    kernels = []
    for kernel in runs[0]["kernels"]:
        times = [_time_of(run["kernels"], kernel["kernel"]) for run in runs]
        kernels.append({**kernel, "time_ms": statistics.median(times)})
    whole = sum(kernel["time_ms"] for kernel in kernels)
    for kernel in kernels:
        kernel["share"] = kernel["time_ms"] / whole if whole else 0.0
    return {
        "tokens": len(ids),
        "input_pos": input_pos,
        "dispatches": len(runs[0]["dispatches"]),
        "time_ms": whole,
        "kernels": sorted(kernels, key=lambda kernel: -kernel["time_ms"]),
        "steps": repeat,
    }


def table(name: str, step: Mapping[str, Any]) -> str:
    """Return the lines of one step: kernel, dispatches, microseconds, share."""
    lines = [
        f"{name}: {step['tokens']} tokens at {step['input_pos']}, {step['dispatches']} dispatches,"
        f" {step['time_ms']:.2f} ms of GPU time",
        f"  {'kernel':<24} {'dispatches':>10} {'us':>10} {'share':>7}",
    ]
    for kernel in step["kernels"]:
        lines.append(
            f"  {kernel['kernel']:<24} {kernel['dispatches']:>10} {1000 * kernel['time_ms']:>10.0f}"
            f" {100 * kernel['share']:>5.1f} %"
        )
    return "\n".join(lines)


def _time_of(kernels: Sequence[Mapping[str, Any]], name: str) -> float:
    return sum(float(kernel["time_ms"]) for kernel in kernels if kernel["kernel"] == name)
