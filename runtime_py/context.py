"""What the model's KV cache holds, token by token, and how a prompt gets into it.

Input:  the ids of a whole prompt, or one more id. Output: logits after the last.
Way of the data: engine -> **context** -> model.

Tokens that the cache holds already are not computed again; the last one always is, since its logits
are what is asked for. A cache row is only ever overwritten, so a step that fails leaves the rows
before it as they were.

    context = Context(model)
    logits = await context.evaluate([1, 2, 3, 4])
    logits = await context.evaluate([1, 2, 3, 9])     # computes one token
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runtime_py.errors import InputError
from runtime_py.model import Model
from runtime_py.sampling import Row
from runtime_py.tensor import Tensor


class Context:
    """The tokens in the cache, in `ids`; position i of the cache belongs to `ids[i]`."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.ids: list[int] = []
        self.computed = 0  # tokens that went through the model, for the statistics

    async def evaluate(self, ids: Sequence[int], check: Callable[[], None] = lambda: None) -> Row:
        """Return the logits after the last of `ids`; see `prepare`."""
        return await self.append(await self.prepare(ids, check))

    async def prepare(
        self, ids: Sequence[int], check: Callable[[], None] = lambda: None
    ) -> Sequence[int]:
        """Compute what the cache lacks of `ids` in chunks of `max_prefill`, all but the last chunk;
        return that.

        `check` is called before each chunk and may raise.
        """
        self.truncate(min(_common(self.ids, ids), len(ids) - 1))
        chunk = self.model.max_prefill
        while len(ids) - len(self.ids) > chunk:
            check()
            rest = ids[len(self.ids) : len(self.ids) + chunk]
            await self.model.feed(rest, len(self.ids))
            self.extend(rest)
        check()
        return ids[len(self.ids) :]

    async def append(self, ids: Sequence[int]) -> Row:
        """Return the logits after the last of at most `max_prefill` further ids."""
        logits = await self.model.prefill(ids, len(self.ids))
        self.extend(ids)
        return logits

    async def rows(self, ids: Sequence[int], input_pos: int) -> Tensor:
        """Return the logits after each of `ids`, f32 [S, V], and leave the cache at their end.

        Raises `InputError` if the cache does not reach to `input_pos`.
        """
        if input_pos > len(self.ids):
            raise InputError(
                f"input_pos is {input_pos}, but the cache holds {len(self.ids)} tokens",
                hint="give the tokens before it first",
            )
        self.truncate(input_pos)
        parts = []
        for start in range(0, len(ids), self.model.max_logits):
            chunk = ids[start : start + self.model.max_logits]
            parts.append(await self.model.logits(chunk, len(self.ids)))
            self.extend(chunk)
        data = b"".join(part.data for part in parts)
        return Tensor(parts[0].dtype, (len(ids), parts[0].shape[-1]), memoryview(data))

    def extend(self, ids: Sequence[int]) -> None:
        """Note that the model wrote `ids` behind what the cache held."""
        self.ids.extend(ids)
        self.computed += len(ids)

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` tokens; the rows behind them will be overwritten."""
        del self.ids[length:]


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many ids at the start of `a` and `b` are the same."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
