"""What an engine needs of a language model, and how a session serves it.

Input:  token ids and the position of the first. Output: logits.
Way of the data: session -> **model** -> engine. Tests put a mock in the session's place.

    model = SessionModel(session)
    last = await model.prefill([504, 3575], input_pos=0)      # V floats
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from runtime_py.debug import TIMES
from runtime_py.errors import BadBundleError
from runtime_py.greedy import CacheNotes, GreedyDecoder, Loop
from runtime_py.next_token import LOGITS, NEXT, TOKENS
from runtime_py.sampling import Row
from runtime_py.schema import Graph, Value
from runtime_py.tensor import Tensor


class Model(Protocol):
    """A causal language model with a KV cache of `context` rows, written by both calls.

    A model that samples on the GPU adds `decoder`, see `generation.Decoder`.
    """

    context: int
    max_prefill: int
    vocabulary: int

    async def prefill(self, token_ids: Sequence[int], input_pos: int) -> Row:
        """Return the V logits after the last of at most `max_prefill` tokens, the first at
        `input_pos`.
        """

    async def logits(self, token_ids: Sequence[int], input_pos: int) -> Tensor:
        """Return the logits after each of at most `max_prefill` tokens: f32 [S, V]."""

    def reset(self) -> None:
        """Forget every token: the cache gets its initial content back."""


class LastRow:
    """The logits of one position, with the greatest already found: `best` is its id."""

    def __init__(self, logits: Tensor, best: int) -> None:
        self._logits, self.best = logits, best

    def tolist(self) -> list[float]:
        """Return the V logits as Python floats."""
        numbers: list[float] = self._logits.flat().tolist()
        return numbers


class SessionModel:
    """A session whose graph takes `tokens` [1, S] at `input_pos` and gives `logits` [1, L, V]."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self._loop: Loop | None = None
        graph: Graph = session.graph
        logits = _port(graph, LOGITS)
        _port(graph, TOKENS)
        if not {"S", "L", "input_pos"} <= set(graph.ranges) or not isinstance(
            logits.shape[-1], int
        ):
            raise BadBundleError(
                f"this is no language model: its symbols are {sorted(graph.ranges)}",
                hint="load it with Session.load",
            )
        self.vocabulary = logits.shape[-1]
        self.max_prefill = graph.ranges["S"][1]
        self.context = graph.ranges["input_pos"][1] + 1

    async def prepare(self) -> None:
        """Make the loop that decodes on the GPU, where the session can replay one."""
        named = {port.name for port in self.session.graph.outputs}
        if NEXT not in named:
            return
        if self.session.options.replay == "js" and self.session.options.debug < TIMES:
            from runtime_py.loop import TokenLoop

            self._loop = await TokenLoop.make(self.session)

    def decoder(self, context: CacheNotes, request: Any, logits: Row) -> GreedyDecoder | None:
        """Return where the tokens of a greedy request come from; None: sample on the host."""
        options = request.options
        plain = options.temperature == 0.0 and options.repetition_penalty == 1.0
        if self._loop is None or not plain or request.known_tokens < self.vocabulary:
            return None
        if not isinstance(logits, LastRow):
            return None
        end = min(self.context, len(request.prompt_ids) + request.limit - 1)
        return GreedyDecoder(self._loop, context, logits.best, end)

    async def prefill(self, token_ids: Sequence[int], input_pos: int) -> Row:
        """Return the V logits after the last token."""
        outputs = await self._run(token_ids, input_pos, 1)
        if NEXT not in outputs:
            row: Row = outputs[LOGITS].flat()
            return row
        return LastRow(outputs[LOGITS], int(outputs[NEXT].flat()[0]))

    async def logits(self, token_ids: Sequence[int], input_pos: int) -> Tensor:
        """Return the logits after each token, [S, V]."""
        rows = (await self._run(token_ids, input_pos, len(token_ids)))[LOGITS]
        return Tensor(rows.dtype, (len(token_ids), self.vocabulary), rows.data)

    def reset(self) -> None:
        """Put the session's mutable buffers back."""
        self.session.reset()

    async def _run(self, token_ids: Sequence[int], input_pos: int, rows: int) -> dict[str, Tensor]:
        inputs = {TOKENS: list(token_ids)}
        result: dict[str, Tensor] = await self.session.run(
            inputs, S=len(token_ids), input_pos=input_pos, L=rows
        )
        return result


def _port(graph: Graph, name: str) -> Value:
    for port in (*graph.inputs, *graph.outputs):
        if port.name == name:
            return graph.values[port.value]
    raise BadBundleError(
        f"this is no language model: it has no {name!r}", hint="load it with Session.load"
    )
