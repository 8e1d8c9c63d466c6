"""What a session runs and why, as plain data for people, tests and the page.

Input:  a `Session`. Output: a JSON-ready dict.
Way of the data: read from `session` and its programs; changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from runtime_py import symbols
from runtime_py.graph import value_bytes

if TYPE_CHECKING:
    from runtime_py.program import Program
    from runtime_py.session import Session


def session_report(session: Session) -> dict[str, Any]:
    """Return adapter, options, fallbacks, programs, memory in bytes and timings in milliseconds."""
    return {
        "model": dict(session.bundle.manifest.model),
        "adapter": session.device.describe(),
        "options": dataclasses.asdict(session.options),
        "fallbacks": list(session.fallbacks),
        "programs": [program_report(p) for p in session.resources.programs],
        "pipelines": len(session.resources.pipelines),
        "pipelines_ahead": session.device.pipelines_ahead,
        "memory": _memory(session),
        "timings": dict(session.timings),
        "js_calls": session.device.calls,
    }


def program_report(program: Program) -> dict[str, Any]:
    """Return one program's symbol ranges, how often they were computed anew, and its dispatches."""
    return {
        "ranges": {name: list(span) for name, span in program.plan.ranges.items()},
        "updates": program.updates,
        "dispatches": [
            {
                "node": d.node,
                "kernel": d.key.kernel,
                "key": str(d.key),
                "grid": [symbols.show(dim) for dim in d.grid],
                "reason": d.reason,
            }
            for d in program.plan.dispatches
        ],
    }


def load_phases(
    session: Session, before: Mapping[str, Mapping[str, float]], shift_ms: float, end_ms: float
) -> dict[str, list[float]]:
    """Return when each phase of a load began and ended, in milliseconds since it was asked for.

    before    spans {name: {start, end}} of the worker, by its clock: "download" began first, and a
              phase that was over by then (Python's start, for a second load) is left out
    shift_ms  what to add to Python's clock to get the worker's
    end_ms    the end of the load by Python's clock; what came after the session is "finish"
    """
    spans = {name: (span["start"], span["end"]) for name, span in before.items()}
    own = dict(session.resources.phases)
    own["finish"] = (own.pop("load")[1], end_ms)
    spans |= {name: (start + shift_ms, end + shift_ms) for name, (start, end) in own.items()}
    zero = (
        spans["download"][0] if "download" in spans else min(start for start, _ in spans.values())
    )
    spans["total"] = (zero, end_ms + shift_ms)
    kept = {name: [a - zero, b - zero] for name, (a, b) in spans.items() if b >= zero}
    return dict(sorted(kept.items(), key=lambda item: item[1]))


def _memory(session: Session) -> dict[str, int]:
    def total(names: Any) -> int:
        values = (session.values[name] for name in names)
        return sum(value_bytes(v, symbols.evaluate(symbols.product(v.shape), {})) for v in values)

    return {
        "weights_bytes": total(session.graph.constants),
        "state_bytes": total(session.graph.buffers),
        "scratch_bytes": session.resources.pool.total_bytes,
        "scratch_plain_bytes": session.resources.pool.plain_bytes,
    }
