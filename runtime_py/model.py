"""What an engine needs of a language model, and how a session serves it.

Input:  token ids and the position of the first. Output: logits.
Way of the data: session -> **model** -> engine. Tests put a mock in the session's place.

    model = SessionModel(session)
    last = await model.prefill([504, 3575], input_pos=0)      # V floats
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from runtime_py import sampling_words
from runtime_py.debug import TIMES
from runtime_py.decoding import Cache, Loop, LoopDecoder
from runtime_py.errors import BadBundleError
from runtime_py.next_token import DRAWN, LOGITS, NEXT, SEEN, SETTINGS, SYMBOLS, TOKENS
from runtime_py.ops.base import Caps
from runtime_py.sampling import Row
from runtime_py.schema import Graph, Value
from runtime_py.tensor import Tensor

SOFTWARE_CHUNK = 128  # tokens a step on a CPU adapter: 512 take seconds, and `abort` must be heard


class Model(Protocol):
    """A causal language model with a KV cache of `context` rows, written by both calls.

    A model that samples on the GPU adds `decoder`, see `generation.Decoder`.
    """

    context: int
    max_prefill: int
    max_logits: int
    vocabulary: int

    async def prefill(self, token_ids: Sequence[int], input_pos: int) -> Row:
        """Return the V logits after the last of at most `max_prefill` tokens, the first at
        `input_pos`.
        """

    async def feed(self, token_ids: Sequence[int], input_pos: int) -> None:
        """Put at most `max_prefill` tokens into the cache: a chunk of a prompt, but the last."""

    async def logits(self, token_ids: Sequence[int], input_pos: int) -> Tensor:
        """Return the logits after each of at most `max_logits` tokens: f32 [S, V]."""

    def reset(self) -> None:
        """Forget every token: the cache gets its initial content back."""


class SessionModel:
    """A session whose graph takes `tokens` [1, S] at `input_pos` and gives `logits` [1, L, V]."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self._loop: Loop | None = None
        graph: Graph = session.graph
        logits = _port(graph, LOGITS)
        _port(graph, TOKENS)
        if not set(graph.ranges) >= SYMBOLS or not isinstance(logits.shape[-1], int):
            raise BadBundleError(
                f"this is no language model: its symbols are {sorted(graph.ranges)}",
                hint="load it with Session.load",
            )
        self.vocabulary = logits.shape[-1]
        most = graph.ranges["S"][1]
        self.max_prefill = min(most, SOFTWARE_CHUNK) if _is_software(session) else most
        self.max_logits = min(self.max_prefill, graph.ranges["L"][1])
        self.context = graph.ranges["input_pos"][1] + 1

    async def prepare(self) -> None:
        """Make the loop that decodes on the GPU, where the session can replay one."""
        named = {port.name for port in self.session.graph.outputs}
        if NEXT not in named:
            return
        if self.session.options.replay == "js" and self.session.options.debug < TIMES:
            from runtime_py.loop import TokenLoop

            self._loop = await TokenLoop.make(self.session)

    @property
    def waited_ms(self) -> float:
        """The time that steps so far spent waiting for the device."""
        return float(self.session.device.waited_ms)

    def decoder(self, cache: Cache, request: Any) -> LoopDecoder | None:
        """Return where the tokens of a request come from; None: sample on the host."""
        if self._loop is None:
            return None
        options, ids = request.options, request.prompt_ids
        output = DRAWN if options.temperature > 0.0 else NEXT

        async def choose(token_ids: Sequence[int], input_pos: int) -> int:
            self._write_settings(request)
            return int((await self._run(token_ids, input_pos, 1, output)).flat()[0])

        end = min(self.context, len(ids) + request.limit - 1)
        return LoopDecoder(self._loop, choose, cache, ids, output, end)

    async def prefill(self, token_ids: Sequence[int], input_pos: int) -> Row:
        """Return the V logits after the last token."""
        row: Row = (await self._run(token_ids, input_pos, 1, LOGITS)).flat()
        return row

    async def feed(self, token_ids: Sequence[int], input_pos: int) -> None:
        """Put tokens into the cache; neither logits nor a token are computed."""
        await self._run(token_ids, input_pos, 1, None)

    async def logits(self, token_ids: Sequence[int], input_pos: int) -> Tensor:
        """Return the logits after each token, [S, V]."""
        rows = await self._run(token_ids, input_pos, len(token_ids), LOGITS)
        return Tensor(rows.dtype, (len(token_ids), self.vocabulary), rows.data)

    def reset(self) -> None:
        """Put the session's mutable buffers back."""
        self.session.reset()

    def _write_settings(self, request: Any) -> None:
        """Tell the sampling kernels what the request asks for, and which ids its prompt holds."""
        device, fixed = self.session.device, self.session.resources.fixed
        options = request.options
        words = sampling_words.settings(options, request.known_tokens, request.seed)
        device.write(fixed[SETTINGS], words)
        if options.repetition_penalty != 1.0:
            bits = sampling_words.seen(request.prompt_ids, self.vocabulary)
            device.write(fixed[SEEN], bits)

    async def _run(
        self, token_ids: Sequence[int], input_pos: int, rows: int, output: str | None
    ) -> Any:
        """Run a step and return its tensor `output`, None where none is asked for."""
        outputs: dict[str, Tensor] = await self.session.run(
            {TOKENS: list(token_ids)},
            outputs=[output] if output else [],
            S=len(token_ids),
            input_pos=input_pos,
            L=rows,
        )
        return outputs[output] if output else None


def _is_software(session: Any) -> bool:
    """True on a CPU adapter, or where the session's option says so."""
    caps: Caps = replace(session.device.caps, tuning=session.options.tuning)
    return caps.is_software


def _port(graph: Graph, name: str) -> Value:
    for port in (*graph.inputs, *graph.outputs):
        if port.name == name:
            return graph.values[port.value]
    raise BadBundleError(
        f"this is no language model: it has no {name!r}", hint="load it with Session.load"
    )
