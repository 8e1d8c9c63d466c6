"""Decoding that stays on the GPU: the token a step chooses is the token that the next step reads.

Input:  a session whose graph was extended by `next_token.with_next_token`.
Output: groups of token ids.
Way of the data: session -> **loop** -> model. One await brings a whole group (web/loop.js).

    loop = await TokenLoop.make(session)
    await loop.start(token=504, input_pos=5, end=2048, output=NEXT)
    ids = await loop.next()                           # one to sixteen tokens
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from runtime_py import device as gpu
from runtime_py.device import STORAGE
from runtime_py.errors import InternalError
from runtime_py.next_token import CHOICES, TOKENS
from runtime_py.program import Program
from runtime_py.session import Session

CAPACITY = 16  # steps a group at most
GROUP_MS = 20.0  # a group should take about this long: it bounds how late a stop is noticed
AHEAD_BELOW_MS = 50.0  # steps slower than this are not submitted ahead: a stop would waste them
SIZES = (1, 2, 4, 8, 16)


class TokenLoop:
    """The decode program of a session, run in groups. One caller at a time; `start` begins anew."""

    def __init__(self, session: Session, program: Program, token: Any) -> None:
        self._session, self._program = session, program
        self._js = session.device.loop(program.js, token, CAPACITY)
        self._views = {size: self._js.view(size) for size in SIZES}
        self._js_submit, self._js_advance = self._js.submit, self._js.advance  # bound once
        self._words = bytearray(CAPACITY * program.word_bytes)
        self._pending: list[int] = []  # sizes of the groups under way
        self._input_pos = self._end = self._wanted = 0
        self._size = 1
        self.step_ms = math.inf

    @staticmethod
    async def make(session: Session) -> TokenLoop:
        """Return the loop of a session; its pipelines are compiled by now."""
        ports = {p.name: p.value for p in (*session.graph.inputs, *session.graph.outputs)}
        async with session.device.errors.scope("creating the decode loop"):
            token = session.device.buffer("token", 4, STORAGE)
            chained = {ports[name]: token for name in (TOKENS, *CHOICES)}
            program = await session.resources.bind({"S": (1, 1), "L": (1, 1)}, chained)
            return TokenLoop(session, program, token)

    async def start(self, token: int, input_pos: int, end: int, output: str) -> None:
        """Begin with `token` at `input_pos`; no step goes to position `end` or past it. `output`
        of the graph is the token after a step.
        """
        await self.drain()
        self._wanted = self._session.wanted([output])
        self._input_pos, self._end, self._size = input_pos, end, 1
        self._js.put(token)
        self._session.device.calls += 1

    async def drain(self) -> None:
        """Wait for groups under way and drop their ids."""
        while self._pending:
            await self._advance(0)

    async def next(self) -> Sequence[int]:
        """Return the ids of the next group; raises `InternalError` past the end."""
        ahead = self.step_ms < AHEAD_BELOW_MS
        if ahead and not self._pending and (count := self._fill()):
            self._js_submit(count)
            self._session.device.calls += 1
        count = self._fill() if ahead or not self._pending else 0
        if not self._pending:
            raise InternalError("the decode loop is past the end of the context")
        start, size = gpu.now_ms(), self._pending[0]
        ids = await self._advance(count)
        self._adapt(size, gpu.now_ms() - start)
        return ids

    def _fill(self) -> int:
        """Return the size of the next group after handing its words to JS, 0 past the end."""
        room = self._end - self._input_pos
        count = max((size for size in SIZES if size <= min(self._size, room)), default=0)
        if not count:
            return 0
        size = self._program.word_bytes
        for i in range(count):
            values = {"S": 1, "L": 1, "input_pos": self._input_pos + i}
            step = self._program.step_words(values, self._wanted)
            self._words[i * size : (i + 1) * size] = step
        self._views[count].assign(memoryview(self._words)[: count * size])
        self._session.device.calls += 1
        self._pending.append(count)
        self._input_pos += count
        return count

    async def _advance(self, count: int) -> Sequence[int]:
        """Submit `count` steps and return the ids of the oldest group under way."""
        device = self._session.device
        self._pending.pop(0)
        ids = await device.ask(self._js_advance, count)
        return [int(token) for token in str(ids).split(",")]

    def _adapt(self, count: int, elapsed_ms: float) -> None:
        """Let groups grow to what takes about `GROUP_MS`; the first ones are small, to be early."""
        self.step_ms = min(self.step_ms * 1.2, elapsed_ms / count)
        wanted = min(2 * self._size, max(1, int(GROUP_MS / max(self.step_ms, 0.1))), CAPACITY)
        self._size = max(size for size in SIZES if size <= wanted)
