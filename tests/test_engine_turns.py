"""Requests to one engine take turns, and leaving one early frees it for the next."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runtime_py import turns
from runtime_py.engine import Engine
from runtime_py.errors import (
    InputError,
)
from runtime_py.generation import Piece
from tests.mock_engine import PROMPT, collect, make, mock, run, text_of


async def leave_after_one(engine: Engine) -> Any:
    stream = engine.generate(PROMPT)
    async for _ in stream:
        break
    return stream


def test_case_34c_break_frees_the_engine_at_once() -> None:
    async def work() -> str:
        engine = make()
        async for _ in engine.generate(PROMPT):
            break
        return text_of(await asyncio.wait_for(collect(engine), turns.GRACE_S / 2))

    assert run(work()) == "hello"


def test_case_34c_a_stream_left_but_still_held_loses_its_turn() -> None:
    async def work() -> tuple[str, list[Piece]]:
        engine = make()
        left = await leave_after_one(engine)
        engine._turns._grace_s = 0.05
        text = text_of(await collect(engine))
        return text, [piece async for piece in left]

    text, rest = run(work())
    assert text == "hello"
    assert [(piece.text, piece.finish_reason) for piece in rest] == [("", "abort")]


def test_case_34c_abort_when_idle_is_harmless() -> None:
    async def work() -> str:
        engine = make()
        engine.abort()
        left = await leave_after_one(engine)
        engine.abort()
        await left.aclose()
        return text_of(await collect(engine))

    assert run(work()) == "hello"


def test_abort_ends_a_running_request() -> None:
    async def work() -> list[Piece]:
        engine, pieces = make("x" * 40), []
        async for piece in engine.generate(PROMPT):
            pieces.append(piece)
            if len(pieces) == 3:
                engine.abort()
        assert text_of(await collect(engine, max_tokens=2)) == "xx"
        return pieces

    pieces = run(work())
    assert [piece.finish_reason for piece in pieces] == [None, None, None, "abort"]
    assert pieces[-1].stats is not None
    assert pieces[-1].stats.generated_tokens == 3


def test_abort_ends_a_long_prompt_between_two_chunks() -> None:
    async def work() -> tuple[list[Piece], list[tuple[int, int]]]:
        engine = make(prompt=[1] * 40)
        mock(engine).before_step = engine.abort
        pieces = await collect(engine, [1] * 40)
        mock(engine).before_step = lambda: None
        assert text_of(await collect(engine, [1] * 40)) == "hello"
        return pieces, mock(engine).calls

    pieces, calls = run(work())
    assert [piece.finish_reason for piece in pieces] == ["abort"]
    assert calls[:2] == [(0, 8), (8, 8)], "what was computed is kept"


def test_a_cancelled_task_frees_the_engine() -> None:
    async def work() -> str:
        engine = make("x" * 50)
        task = asyncio.ensure_future(collect(engine))
        await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return text_of(await collect(engine, max_tokens=2))

    assert run(work()) == "xx"


def test_requests_take_turns() -> None:
    async def work() -> list[str]:
        engine = make("hello")
        many = await asyncio.gather(*[collect(engine) for _ in range(4)])
        return [text_of(pieces) for pieces in many]

    assert run(work()) == ["hello"] * 4


def test_one_stream_is_read_from_one_place() -> None:
    async def work() -> None:
        stream = make().generate(PROMPT)
        with pytest.raises(InputError, match="already"):
            await asyncio.gather(anext(stream), anext(stream))

    run(work())


def test_a_stream_that_ended_stays_ended() -> None:
    async def work() -> None:
        stream = make().generate(PROMPT, max_tokens=1)
        assert await stream.text() == "h"
        assert [piece async for piece in stream] == []

    run(work())
