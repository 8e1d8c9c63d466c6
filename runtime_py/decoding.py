"""Decoding on the GPU: a `Decoder` whose first token comes from the prompt's last step, and the
others from the token loop.

Input:  the model, what the cache holds, a request. Output: groups of token ids.
Way of the data: model, loop -> **decoding** -> generation.

    decoder = LoopDecoder(loop, choose, context, prompt_ids, DRAWN, end=2048)
    await decoder.start(check)
    ids = await decoder.next()
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from runtime_py.errors import NonFiniteError


class Cache(Protocol):
    """What the model's cache holds: `context.Context`."""

    ids: list[int]

    def extend(self, ids: Sequence[int]) -> None:
        """Note that `ids` were written behind what was there."""

    async def prepare(self, ids: Sequence[int], check: Callable[[], None]) -> Sequence[int]:
        """Compute all but the last chunk of `ids` and return that."""


class Loop(Protocol):
    """Steps that feed one another: `loop.TokenLoop`."""

    async def start(self, token: int, input_pos: int, end: int, output: str) -> None:
        """Begin with `token` at `input_pos`; no step goes to position `end` or past it."""

    async def next(self) -> Sequence[int]:
        """Return the ids of the next group of steps."""


class LoopDecoder:
    """Brings the token of the prompt's last row, then groups from the loop up to position `end`.

    `choose(ids, input_pos)` runs a step over the prompt's last chunk and returns the token that
    `output` of the graph is; the loop's steps give the same output.
    """

    def __init__(
        self,
        loop: Loop,
        choose: Callable[[Sequence[int], int], Awaitable[int]],
        cache: Cache,
        prompt_ids: Sequence[int],
        output: str,
        end: int,
    ) -> None:
        self._loop, self._choose, self._cache = loop, choose, cache
        self._prompt_ids, self._output, self._end = prompt_ids, output, end
        self._waiting = -1  # chosen, but not in the cache yet
        self._given = self._started = False

    async def start(self, check: Callable[[], None]) -> None:
        """Compute the prompt and choose the token after it; `check` may raise between chunks."""
        rest = await self._cache.prepare(self._prompt_ids, check)
        self._waiting = await self._choose(rest, len(self._cache.ids))
        self._cache.extend(rest)

    async def next(self) -> Sequence[int]:
        """Return the next ids; raises `NonFiniteError` where a row of logits cannot be chosen
        from.
        """
        if not self._given:
            self._given = True
            return self._checked([self._waiting])
        if not self._started:
            self._started = True
            at = len(self._cache.ids)
            await self._loop.start(self._waiting, at, self._end, self._output)
        ids = await self._loop.next()
        self._checked(ids)
        self._cache.extend([self._waiting, *ids[:-1]])
        self._waiting = ids[-1]
        return ids

    def _checked(self, ids: Sequence[int]) -> Sequence[int]:
        if min(ids) < 0:
            raise NonFiniteError(
                f"the logits at position {len(self._cache.ids)} are not finite",
                hint="exporter.run with options={'debug': 5} finds the first bad intermediate",
            )
        return ids
