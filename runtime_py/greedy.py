"""Greedy decoding on the GPU: a `Decoder` over the token loop.

Input:  the loop, what the cache holds, the first token. Output: groups of token ids.
Way of the data: loop -> **greedy** -> generation.

    decoder = GreedyDecoder(loop, context, first=504, end=2048)
    ids = await decoder.next()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from runtime_py.errors import NonFiniteError


class CacheNotes(Protocol):
    """What the cache holds: `context.Context`."""

    ids: list[int]

    def extend(self, ids: Sequence[int]) -> None:
        """Note that `ids` were written behind what was there."""


class Loop(Protocol):
    """Steps that feed one another: `loop.TokenLoop`."""

    async def start(self, token: int, input_pos: int, end: int) -> None:
        """Begin with `token` at `input_pos`; no step goes to position `end` or past it."""

    async def next(self) -> Sequence[int]:
        """Return the ids of the next group of steps."""


class GreedyDecoder:
    """Brings the token of the prompt's last row, then groups from the loop up to position `end`."""

    def __init__(self, loop: Loop, context: CacheNotes, first: int, end: int) -> None:
        self._loop, self._context, self._end = loop, context, end
        self._waiting = first  # chosen, but not in the cache yet
        self._given = self._started = False

    async def next(self) -> Sequence[int]:
        """Return the next ids; raises `NonFiniteError` where a row of logits held NaN."""
        if not self._given:
            self._given = True
            return self._checked([self._waiting])
        if not self._started:
            self._started = True
            await self._loop.start(self._waiting, len(self._context.ids), self._end)
        ids = await self._loop.next()
        self._checked(ids)
        self._context.extend([self._waiting, *ids[:-1]])
        self._waiting = ids[-1]
        return ids

    def _checked(self, ids: Sequence[int]) -> Sequence[int]:
        if min(ids) < 0:
            raise NonFiniteError(
                f"the logits at position {len(self._context.ids)} hold NaN",
                hint="exporter.run with options={'debug': 5} finds the first bad intermediate",
            )
        return ids
