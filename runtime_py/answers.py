"""Answers that JavaScript gives by a call, for Python to await.

Input:  a function of JS that takes a ticket first and calls `Answers.settle` with it once.
Output: what it called with; a failure is raised.
Way of the data: under `device`; web/replay.js and web/loop.js answer.

Awaiting a promise costs two callables made for it, and its result waits for a turn of the event
loop, behind whatever the browser does in between. An `Answer` goes on where JS calls: 0.2 ms after
the result is mapped instead of 0.5 (a worker of Chromium). It is a future as a `Task` sees one.

    answers = Answers()
    answer = answers.ask(loop.advance, 4)           # JS: advance(ticket, 4)
    ids = await answer
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from collections.abc import Callable, Generator
from typing import Any

Waker = Callable[[Any], object]


class Answers:
    """Hands out tickets; whoever is asked gives the answer of a ticket once, with `settle`."""

    def __init__(self) -> None:
        self._tickets = itertools.count(1)
        self._open: dict[int, Answer] = {}

    def ask(self, start: Callable[..., object], *arguments: object) -> Answer:
        """Call `start(ticket, *arguments)` and return its answer to come, which is awaited once;
        what `start` raises is raised there.
        """
        ticket, answer = next(self._tickets), Answer()
        self._open[ticket] = answer
        try:
            start(ticket, *arguments)
        except Exception as error:
            self.settle(ticket, None, error)
        return answer

    def settle(self, ticket: int, value: Any = None, error: BaseException | None = None) -> None:
        """Give the answer of a ticket."""
        self._open.pop(ticket).settle(value, error)


class Answer:
    """A future whose waiting task goes on within `settle`, not in a turn of the loop after it."""

    _asyncio_future_blocking = False  # what tells a Task that this is a future

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done = self._cancelled = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._wakers: list[tuple[Waker, contextvars.Context | None]] = []

    def __await__(self) -> Generator[Any, None, Any]:
        if not self._done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the task that asked."""
        return self._loop

    def result(self) -> Any:
        """Return the answer, or raise what it failed with."""
        if self._cancelled:
            raise asyncio.CancelledError
        if self._error is not None:
            raise self._error
        return self._value

    def add_done_callback(
        self, waker: Waker, *, context: contextvars.Context | None = None
    ) -> None:
        """Call `waker(self)` once there is an answer."""
        self._wakers.append((waker, context))

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Take the answer, and let who waits go on at once; a cancelled task does not any more."""
        if self._done:
            return
        self._done, self._value, self._error = True, value, error
        inside = asyncio.current_task(self._loop) is not None  # one task cannot run in another
        for waker, context in self._wakers:
            if inside:
                self._loop.call_soon(waker, self, context=context)
            elif context is None:
                waker(self)
            else:
                context.run(waker, self)

    def cancel(self, msg: object = None) -> bool:
        """Give up waiting; the task hears of it in the loop's next turn, as with any future."""
        if self._done:
            return False
        self._done = self._cancelled = True
        for waker, context in self._wakers:
            self._loop.call_soon(waker, self, context=context)
        return True
