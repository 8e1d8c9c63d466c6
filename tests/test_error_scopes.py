"""Error scopes over a stand-in for a device that complains when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from runtime_py.error_scopes import ErrorScopes
from runtime_py.errors import InternalError, OutOfMemoryError


class Device:
    """Pushes and pops as WebGPU does; `says` maps a kind to the complaint of the next scope."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.says: dict[str, str] = {}

    def pushErrorScope(self, kind: str) -> None:
        self.open.append(kind)

    def popErrorScope(self) -> asyncio.Future[Any]:
        message = self.says.pop(self.open.pop(), None)
        popped = asyncio.get_running_loop().create_future()
        popped.set_result(None if message is None else SimpleNamespace(message=message))
        return popped


def run(main: Callable[[Device, ErrorScopes], Coroutine[Any, Any, None]]) -> None:
    device = Device()
    asyncio.run(main(device, ErrorScopes(device)))
    assert device.open == []


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("validation", InternalError),
        ("internal", InternalError),
        ("out-of-memory", OutOfMemoryError),
    ],
)
def test_a_complaint_is_typed_and_says_of_what(kind: str, error: type[Exception]) -> None:
    async def main(device: Device, errors: ErrorScopes) -> None:
        device.says = {kind: "no"}
        with pytest.raises(error, match="a buffer: no"):
            async with errors.scope("a buffer"):
                pass

    run(main)


def test_what_is_noted_is_heard_once_and_only_where_it_is_asked_for() -> None:
    async def main(device: Device, errors: ErrorScopes) -> None:
        device.says = {"validation": "no"}
        with errors.noted("buffers"):
            pass
        async with errors.scope("something else"):
            pass
        with pytest.raises(InternalError, match="buffers: no"):
            await errors.raise_noted()
        await errors.raise_noted()

    run(main)


def test_a_body_that_fails_leaves_no_scope_open_and_nothing_for_the_next() -> None:
    async def main(device: Device, errors: ErrorScopes) -> None:
        device.says = {"validation": "because of it"}
        with pytest.raises(ValueError, match="its own"):
            async with errors.scope("a buffer"):
                raise ValueError("its own")
        await errors.raise_noted()
        async with errors.scope("the next"):
            pass

    run(main)
