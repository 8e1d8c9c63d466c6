"""A language model that says what it is told, to test an engine without a GPU.

Input:  a script: the ids to say after a prompt, or a function of all ids so far.
Output: logits whose largest entry is the next id; a record of every call.
"""

from __future__ import annotations

import array
import asyncio
from collections.abc import Callable, Sequence

from runtime_py.tensor import Tensor

Next = Callable[[Sequence[int]], int]


class MockModel:
    """Keeps the ids in its cache, and complains where an engine would read rows that nobody
    wrote.
    """

    def __init__(
        self, next_id: Next, vocabulary: int = 300, context: int = 64, max_prefill: int = 8
    ) -> None:
        self.next_id = next_id
        self.vocabulary, self.context = vocabulary, context
        self.max_prefill = self.max_logits = max_prefill
        self.cache: list[int] = []
        self.calls: list[tuple[int, int]] = []  # (input_pos, tokens)
        self.before_step: Callable[[], None] = lambda: None
        self.resets = 0

    async def prefill(self, token_ids: Sequence[int], input_pos: int) -> array.array[float]:
        return (await self._rows(token_ids, input_pos))[-1]

    async def feed(self, token_ids: Sequence[int], input_pos: int) -> None:
        await self._rows(token_ids, input_pos)

    async def logits(self, token_ids: Sequence[int], input_pos: int) -> Tensor:
        rows = await self._rows(token_ids, input_pos)
        data = b"".join(row.tobytes() for row in rows)
        return Tensor("f32", (len(rows), self.vocabulary), memoryview(data))

    def reset(self) -> None:
        self.resets += 1
        self.cache = []

    async def _rows(self, token_ids: Sequence[int], input_pos: int) -> list[array.array[float]]:
        assert 1 <= len(token_ids) <= self.max_prefill
        assert input_pos <= len(self.cache), "a gap in the cache"
        assert input_pos + len(token_ids) <= self.context
        self.before_step()
        await asyncio.sleep(0)
        self.calls.append((input_pos, len(token_ids)))
        rows = []
        for i, token in enumerate(token_ids):
            self.cache[input_pos + i :] = [token]
            rows.append(self._row(self.cache))
        return rows

    def _row(self, ids: Sequence[int]) -> array.array[float]:
        """Return logits that fall off from the next id, so that sampling has something to
        choose.
        """
        best = self.next_id(ids)
        return array.array("f", [-abs(i - best) / 4 for i in range(self.vocabulary)])


def script(prompt: Sequence[int], reply: Sequence[int], after: int = 0) -> Next:
    """Return the function that says `reply` after `prompt`, then `after` for ever."""

    def next_id(ids: Sequence[int]) -> int:
        said = len(ids) - len(prompt)
        return reply[said] if 0 <= said < len(reply) else after

    return next_id
