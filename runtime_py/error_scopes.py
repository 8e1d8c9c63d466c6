"""What a GPU device says of things that were made: WebGPU's error scopes as typed errors.

Input:  the handle of a device; duck-typed, so nothing of the browser is imported.
Output: `OutOfMemoryError` or `InternalError`, at once or when it is asked for.
Way of the data: under `device`.

A complaint comes as a promise, and a load that awaited each where it arises would stand still:
`noted` leaves them for `raise_noted`, which comes where nothing else is left to do.

    async with errors.scope("creating a buffer"):
        handle.createBuffer(descriptor)
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from runtime_py.errors import InternalError, OutOfMemoryError

KINDS = {
    "validation": InternalError,
    "out-of-memory": OutOfMemoryError,
    "internal": InternalError,
}


class ErrorScopes:
    """The error scopes of one device, and the complaints that nobody has asked for yet."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._noted: list[tuple[str, dict[str, Any]]] = []

    @contextlib.asynccontextmanager
    async def scope(self, what: str) -> AsyncIterator[None]:
        """Run the body in error scopes; raises a typed error if the device complained about
        `what`."""
        popped: dict[str, Any] = {}
        with self._scopes(popped):
            yield
        await _complain(what, popped)

    @contextlib.contextmanager
    def noted(self, what: str) -> Iterator[None]:
        """Run the body in error scopes; what the device says of `what` is for `raise_noted`."""
        popped: dict[str, Any] = {}
        self._noted.append((what, popped))
        with self._scopes(popped):
            yield

    async def raise_noted(self) -> None:
        """Raise a typed error if the device complained about what was noted so far."""
        noted, self._noted = self._noted, []
        for what, popped in noted:
            await _complain(what, popped)

    @contextlib.contextmanager
    def _scopes(self, popped: dict[str, Any]) -> Iterator[None]:
        """Run the body in error scopes; their promises are in `popped` afterwards, by kind."""
        for kind in KINDS:
            self._handle.pushErrorScope(kind)
        try:
            yield
        finally:
            popped.update({kind: self._handle.popErrorScope() for kind in reversed(KINDS)})


async def _complain(what: str, popped: Mapping[str, Any]) -> None:
    """Raise what the device says of `what`, if it says anything."""
    for kind, promise in popped.items():
        if (error := await promise) is not None:
            raise KINDS[kind](f"{what}: {error.message}")
