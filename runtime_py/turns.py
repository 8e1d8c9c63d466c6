"""Whose turn it is: one request at a time may use a model.

Input:  requests that want it. Output: each has it alone; nobody waits for a request that no one
reads any more.
Way of the data: beside `generation`; knows nothing of models.

Requests get their turn in the order in which they ask. A stream that somebody left by `break` but
still holds a reference to cannot give its turn back, so one that has not been read for `GRACE_S`
loses it to the next that waits.

    await turns.take(stream)
    ...
    turns.give_back(stream)
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from typing import Protocol

GRACE_S = 1.0


class Holder(Protocol):
    """A request that may hold the turn."""

    def idle_s(self) -> float:
        """Return for how long nobody has been reading, 0 while it works."""

    def abort(self) -> None:
        """End the request at its next step."""


class Turns:
    """A queue for one model. Holders are remembered weakly: one that is gone holds nothing."""

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._queue = asyncio.Lock()
        self._freed = asyncio.Event()
        self._holder: weakref.ref[Holder] | None = None

    @property
    def holder(self) -> Holder | None:
        """Whoever has the turn."""
        return None if self._holder is None else self._holder()

    async def take(self, request: Holder) -> None:
        """Wait for the turn and take it."""
        async with self._queue:
            while (holder := self.holder) is not None:
                left = self._grace_s - holder.idle_s()
                if left <= 0:
                    holder.abort()
                    break
                del holder  # a waiting request must not keep a dropped one alive
                self._freed.clear()
                await _wait(self._freed, left)
            self._holder = weakref.ref(request, lambda _: self._freed.set())

    def give_back(self, request: Holder) -> None:
        """End the turn of `request`; harmless if it has none."""
        if self.holder is request:
            self._holder = None
            self._freed.set()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for `event`, but not for longer than `seconds`."""
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def clock_s() -> float:
    """Return the time in which `idle_s` counts."""
    return time.monotonic()
