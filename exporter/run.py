"""Runs a bundle in a real host and returns what every step put out.

Input:  a bundle's folder; steps `{"inputs": {name: array}, "symbols": {name: int}, "state": bool}`.
Output: per step, a dict from output name to numpy array; with "state": also `"state"`, the mutable
buffers.
Way of the data: tests, `verify` -> run -> `hosts` -> runtime_py.session.

    run("bundle", [{"inputs": {"x": x}, "symbols": {"S": 3}}])[0]["y"]
"""

from __future__ import annotations

import operator
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from exporter.debug import Comparison
from exporter.hosts.host import DEFAULT_TIMEOUT_S, Host, debug_option, get_host
from runtime_py.debug import COMPARE
from runtime_py.errors import InputError

STEP_KEYS = {"inputs", "symbols", "state"}


def run(
    bundle_dir: str | pathlib.Path,
    steps: Sequence[Mapping[str, Any]],
    *,
    host: str = "chromium",
    options: Mapping[str, Any] | None = None,
    reset: bool = False,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> list[dict[str, Any]]:
    """Return the outputs of every step, run in order in one session.

    `options` are the session's, and `{"debug": 5}` (or $TABFIRE_DEBUG) compares every intermediate
    with the numpy reference and raises `InternalError` at the first node that differs; `reset` puts
    the mutable buffers back before every step; `timeout_s` bounds each call. Raises the runtime's
    own exceptions, and `HostError` if the host cannot be started or goes away.
    """
    folder, machine = pathlib.Path(bundle_dir), get_host(host)
    chosen = {**debug_option(os.environ), **(options or {})}
    session = machine.load(folder, kind="session", options=chosen, timeout_s=timeout_s)["handle"]
    with machine.loaded(session):
        if chosen.get("debug") == COMPARE:
            compared = Comparison(folder, f16_cache=chosen.get("kv_dtype") == "f16")
            return [_compared(machine, session, step, reset, timeout_s, compared) for step in steps]
        return [_step(machine, session, step, reset, timeout_s) for step in steps]


def _compared(
    machine: Host,
    session: int,
    step: Mapping[str, Any],
    reset: bool,
    timeout_s: float,
    compared: Comparison,
) -> dict[str, Any]:
    """Run a step and compare every intermediate with the numpy reference's."""
    result = _step(machine, session, step, reset, timeout_s)
    if reset:
        compared.reset()
    return compared.step(step.get("inputs", {}), _symbols(step.get("symbols", {})), result)


def _step(
    machine: Host, session: int, step: Mapping[str, Any], reset: bool, timeout_s: float
) -> dict[str, Any]:
    unknown = set(step) - STEP_KEYS
    if unknown:
        raise InputError(
            f"a step has no field {sorted(unknown)}", hint=f"fields: {sorted(STEP_KEYS)}"
        )
    if reset:
        machine.call("reset", {"handle": session}, timeout_s=timeout_s)
    params = {"handle": session, "symbols": _symbols(step.get("symbols", {}))}
    _, outputs = machine.call("run", params, step.get("inputs", {}), timeout_s=timeout_s)
    result: dict[str, Any] = dict(outputs)
    if step.get("state"):
        _, result["state"] = machine.call("state", {"handle": session}, timeout_s=timeout_s)
    return result


def _symbols(values: Mapping[str, Any]) -> dict[str, int]:
    """Return the symbol values as plain integers; numpy's and torch's whole numbers are taken."""
    result = {}
    for name, value in values.items():
        try:
            result[name] = operator.index(value)
        except TypeError:
            raise InputError(f"symbol {name} = {value!r}, expected an integer") from None
        if isinstance(value, bool):
            raise InputError(f"symbol {name} = {value!r}, expected an integer")
    return result
