"""A step after one whose asker gave up: it waits until that one's outputs have come. JavaScript is a stand-in."""

from __future__ import annotations

import asyncio
import sys
import types
from typing import Any

import pytest

JS_MODULES = (
    "js",
    "pyodide",
    "pyodide.ffi",
    *(f"tabfire_{name}" for name in ("ahead", "groups", "loop", "profile", "replay", "weights")),
)


class StandIn(types.ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        return type(name, (Exception,), {})


@pytest.fixture
def program_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in JS_MODULES:
        monkeypatch.setitem(sys.modules, name, StandIn(name))
    for name in ("runtime_py.device", "runtime_py.program"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import runtime_py.program as module

    yield module
    for name in ("runtime_py.device", "runtime_py.program"):
        sys.modules.pop(name, None)


class Device:
    """Starts steps that end when the test says so."""

    def __init__(self) -> None:
        self.calls = 0
        self.log: list[str] = []
        self.over: list[asyncio.Future[None]] = []

    async def ask(self, run: Any) -> None:
        self.log.append("run")
        self.over.append(asyncio.get_running_loop().create_future())
        await asyncio.shield(self.over[-1])


def make(module: Any, device: Device) -> Any:
    """Return a program whose JS side is `device`."""

    class Js:
        @property
        def reading(self) -> Any:
            return asyncio.shield(device.over[-1])

    program = module.Program.__new__(module.Program)
    program.device, program.js, program._under_way, program._js_run = device, Js(), False, None
    program._js_words = types.SimpleNamespace(assign=lambda words: device.log.append("words"))
    program.step_words = lambda values, wanted: b""
    return program


def test_a_step_after_a_cancelled_one_waits_for_its_end(program_module: Any) -> None:
    async def main() -> None:
        device = Device()
        program = make(program_module, device)
        first = asyncio.create_task(program.run({}, "js"))
        await asyncio.sleep(0)
        first.cancel()
        second = asyncio.create_task(program.run({}, "js"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert device.log == ["words", "run"], "its words went over those of the step under way"
        device.over[0].set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)
        assert device.log == ["words", "run"] * 2
        device.over[1].set_result(None)
        await second
        third = asyncio.create_task(program.run({}, "js"))
        await asyncio.sleep(0)
        assert device.log == ["words", "run"] * 3, "a step that ended well is waited for"
        device.over[2].set_result(None)
        await third

    asyncio.run(main())
