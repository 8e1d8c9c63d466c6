"""Runs a bundle in a real host and returns what every step put out.

Input:  a bundle's folder; steps `{"inputs": {name: array}, "symbols": {name: int}, "state": bool}`.
Output: per step, a dict from output name to numpy array; with "state": also `"state"`, the mutable
buffers.
Way of the data: tests, `verify` -> run -> `hosts` -> runtime_py.session.

    run("bundle", [{"inputs": {"x": x}, "symbols": {"S": 3}}])[0]["y"]
"""

from __future__ import annotations

import operator
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from exporter.hosts.host import DEFAULT_TIMEOUT_S, Host, get_host
from runtime_py.errors import BadBundleError, InputError

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

    `options` are the session's; `reset` puts the mutable buffers back before every step;
    `timeout_s` bounds each call. Raises the runtime's own exceptions, and `HostError` if the host
    cannot be started or goes away.
    """
    folder = pathlib.Path(bundle_dir)
    if not (folder / "manifest.json").is_file():
        raise BadBundleError(
            f"{folder} holds no manifest.json", hint="make one: python -m exporter"
        )
    machine = get_host(host)
    load = {"url": machine.mount(folder), "options": dict(options or {}), "kind": "session"}
    loaded, _ = machine.call("load", load, timeout_s=timeout_s)
    session = loaded["handle"]
    with machine.loaded(session):
        return [_step(machine, session, step, reset, timeout_s) for step in steps]


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
