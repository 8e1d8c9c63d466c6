"""Answers that are given by a call: what a task sees of them, with a stand-in for JavaScript."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from runtime_py.answers import Answers

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME", default="nobody")


class Asked:
    """Takes tickets as a function of JS would, for the test to answer."""

    def __init__(self) -> None:
        self.answers = Answers()
        self.tickets: list[int] = []
        self.arguments: list[tuple[object, ...]] = []

    def start(self, ticket: int, *arguments: object) -> None:
        self.tickets.append(ticket)
        self.arguments.append(arguments)

    async def ask(self, *arguments: object) -> Any:
        return await self.answers.ask(self.start, *arguments)


def run(main: Callable[[Asked], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main(Asked()))


def test_the_waiting_task_goes_on_within_the_call() -> None:
    async def main(js: Asked) -> None:
        task = asyncio.create_task(js.ask(4, "a"))
        await asyncio.sleep(0)
        assert js.arguments == [(4, "a")]
        done_within: list[bool] = []

        def call() -> None:
            js.answers.settle(js.tickets[0], "ids")
            done_within.append(task.done())

        asyncio.get_running_loop().call_soon(call)
        assert await task == "ids"
        assert done_within == [True], "it waits for a turn of the loop"

    run(main)


def test_answers_come_in_any_order_and_to_who_asked() -> None:
    async def main(js: Asked) -> None:
        tasks = [asyncio.create_task(js.ask(i)) for i in range(3)]
        await asyncio.sleep(0)
        for i in (2, 0, 1):
            js.answers.settle(js.tickets[i], 10 * i)
        assert await asyncio.gather(*tasks) == [0, 10, 20]

    run(main)


def test_an_answer_from_within_a_task_waits_for_its_end() -> None:
    async def main(js: Asked) -> None:
        task = asyncio.create_task(js.ask())
        await asyncio.sleep(0)
        js.answers.settle(js.tickets[0], 1)
        assert not task.done()
        assert await task == 1

    run(main)


def test_an_answer_may_come_before_anyone_waits() -> None:
    async def main(js: Asked) -> None:
        answer = js.answers.ask(js.start)
        js.answers.settle(js.tickets[0], 7)
        assert await answer == 7

    run(main)


def test_a_failure_is_raised_where_it_is_awaited() -> None:
    async def main(js: Asked) -> None:
        task = asyncio.create_task(js.ask())
        await asyncio.sleep(0)
        js.answers.settle(js.tickets[0], None, ValueError("unmapped"))
        with pytest.raises(ValueError, match="unmapped"):
            await task

    run(main)


def test_a_start_that_fails_fails_its_answer_and_leaves_no_ticket() -> None:
    def start(_: int) -> None:
        raise ValueError("no")

    async def main(js: Asked) -> None:
        answer = js.answers.ask(start)  # raised where it is awaited, so that one `try` sees all
        with pytest.raises(ValueError, match="no"):
            await answer
        with pytest.raises(KeyError):
            js.answers.settle(1)

    run(main)


def test_a_cancelled_task_ends_and_the_late_answer_is_dropped() -> None:
    async def main(js: Asked) -> None:
        task = asyncio.create_task(js.ask())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        js.answers.settle(js.tickets[0], "late")
        again = asyncio.create_task(js.ask())
        await asyncio.sleep(0)
        js.answers.settle(js.tickets[1], "new")
        assert await again == "new"

    run(main)


def test_waiting_may_be_bounded() -> None:
    async def main(js: Asked) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(js.ask(), 0.01)

    run(main)


def test_a_task_goes_on_in_its_own_context() -> None:
    async def asks(js: Asked) -> str:
        NAME.set("asker")
        await js.ask()
        return NAME.get()

    async def main(js: Asked) -> None:
        task = asyncio.create_task(asks(js))
        await asyncio.sleep(0)
        js.answers.settle(js.tickets[0])
        assert await task == "asker"
        assert NAME.get() == "nobody"

    run(main)
