"""Decoding that stays on the GPU: the token a step chooses is the token that the next step reads.

Input:  a session whose graph was extended by `next_token.with_next_token`.
Output: groups of token ids.
Way of the data: session -> **loop** -> model. One await brings a whole group (web/loop.js).

    loop = await TokenLoop.make(session)
    await loop.start(token=504, input_pos=5, end=2048)
    ids = await loop.next()                           # one to sixteen greedy tokens
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from runtime_py import device as gpu
from runtime_py.device import STORAGE
from runtime_py.errors import InternalError
from runtime_py.next_token import NEXT, TOKENS
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
        self._js_ids = self._js.id_bytes
        self._js_submit, self._js_read = self._js.submit, self._js.read  # bound once, not a step
        self._ids = bytearray(4 * CAPACITY)
        self._words = bytearray(CAPACITY * len(self._program.step_words({})))
        self._pending: list[tuple[int, int]] = []  # (count, slot) of groups under way
        self._input_pos = self._end = 0
        self._slot = 0
        self._size = 1
        self.step_ms = math.inf

    @staticmethod
    async def make(session: Session) -> TokenLoop:
        """Return the loop of a session; its pipelines are compiled by now."""
        ports = {p.name: p.value for p in (*session.graph.inputs, *session.graph.outputs)}
        async with session.device.scope("creating the decode loop"):
            token = session.device.buffer("token", 4, STORAGE)
            chained = {ports[TOKENS]: token, ports[NEXT]: token}
            program = await session.resources.bind({"S": (1, 1), "L": (1, 1)}, chained)
            return TokenLoop(session, program, token)

    async def start(self, token: int, input_pos: int, end: int) -> None:
        """Begin with `token` at `input_pos`; no step goes to position `end` or past it."""
        await self.drain()
        self._input_pos, self._end, self._size = input_pos, end, 1
        self._js.put(token)
        self._session.device.calls += 1

    async def drain(self) -> None:
        """Wait for groups under way and drop their ids."""
        while self._pending:
            await self._read(*self._pending.pop(0))

    async def next(self) -> Sequence[int]:
        """Return the ids of the next group; raises `InternalError` past the end."""
        if not self._pending:
            self._submit()
        if not self._pending:
            raise InternalError("the decode loop is past the end of the context")
        start = gpu.now_ms()
        if self.step_ms < AHEAD_BELOW_MS:
            self._submit()
        count, slot = self._pending.pop(0)
        ids = await self._read(count, slot)
        self._adapt(count, gpu.now_ms() - start)
        return ids

    def _submit(self) -> None:
        room = self._end - self._input_pos
        count = max((size for size in SIZES if size <= min(self._size, room)), default=0)
        if not count:
            return
        size = len(self._words) // CAPACITY
        for i in range(count):
            step = self._program.step_words({"S": 1, "L": 1, "input_pos": self._input_pos + i})
            self._words[i * size : (i + 1) * size] = step
        self._views[count].assign(memoryview(self._words)[: count * size])
        self._js_submit(count, self._slot)
        self._session.device.calls += 2
        self._pending.append((count, self._slot))
        self._input_pos += count
        self._slot = 1 - self._slot

    async def _read(self, count: int, slot: int) -> Sequence[int]:
        device = self._session.device
        await device.guard(self._js_read(count, slot))
        self._js_ids.assign_to(self._ids)
        device.calls += 3
        return memoryview(self._ids).cast("i")[:count].tolist()

    def _adapt(self, count: int, elapsed_ms: float) -> None:
        """Let groups grow to what takes about `GROUP_MS`; the first ones are small, to be early."""
        self.step_ms = min(self.step_ms * 1.2, elapsed_ms / count)
        wanted = min(2 * self._size, max(1, int(GROUP_MS / max(self.step_ms, 0.1))), CAPACITY)
        self._size = max(size for size in SIZES if size <= wanted)
