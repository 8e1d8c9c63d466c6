"""One request: from the ids of a prompt to a stream of text.

Input:  a model's context, prompt ids, sampling options. Output: `Piece`s, the last with a reason
and statistics.
Way of the data: engine -> **generation** (context -> sampling -> detokenizer -> stops) -> the page.

A request goes through `prompt -> token -> token ... -> end`. Every token is a piece, also while its
text is held back (half a character, or what may be a stop string), and the last token's piece
carries the end:
    stop     a stop token or a stop string came; neither is shown, but the ids include the token
    length   max_tokens, or prompt and reply fill the context
    abort    abort() was called, or the stream was left unread while another request waited

    async for piece in stream:
        print(piece.text, end="")
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from runtime_py.context import Context
from runtime_py.detokenizer import Detokenizer
from runtime_py.errors import AbortedError, InputError
from runtime_py.sampling import Row, Sampler, SamplingOptions
from runtime_py.stops import StopStrings
from runtime_py.tokenizer import Tokenizer
from runtime_py.turns import Turns, clock_s


@dataclass(frozen=True)
class Stats:
    """How a request went. `reused_tokens` of the prompt were in the cache already.

    `host_ms_per_token` is the time of a decoded token in Python and JS, also that of whoever reads
    the stream, without the time spent waiting for the device.
    """

    prompt_tokens: int
    reused_tokens: int
    generated_tokens: int
    prefill_ms: float
    decode_ms: float
    first_token_ms: float
    decode_tok_s: float
    prefill_tok_s: float
    host_ms_per_token: float


@dataclass(frozen=True)
class Piece:
    """What one token adds. `text` may be empty; the last piece has a `finish_reason` and
    `stats`.
    """

    text: str
    ids: tuple[int, ...] = ()
    finish_reason: str | None = None
    stats: Stats | None = None


@dataclass(frozen=True)
class Request:
    """What is asked for. `limit` is the most tokens to generate; `seed` is fixed by now."""

    prompt_ids: tuple[int, ...]
    options: SamplingOptions
    limit: int
    seed: int
    known_tokens: int
    stop_ids: Collection[int]


class Decoder(Protocol):
    """Where tokens come from: the host samples one a step, a GPU may bring several.

    A model that brings its own has a method `decoder(context, request)`, which may return None to
    leave a request to the host. Whatever a decoder puts into the cache it notes with
    `context.extend`, also ids that nobody will read.
    """

    async def start(self, check: Callable[[], None]) -> None:
        """Compute the prompt; `check` is called between its chunks and may raise."""

    async def next(self) -> Sequence[int]:
        """Return at least one further id; the caller drops those past the end of the reply."""


class HostDecoder:
    """Brings the logits of every step to the host and samples there."""

    def __init__(self, context: Context, request: Request) -> None:
        self._context, self._prompt_ids = context, request.prompt_ids
        self._logits: Row = ()
        self._sampler = Sampler(request.options, request.known_tokens, request.seed)
        self._seen = set(request.prompt_ids)
        self._waiting: tuple[int, ...] = ()

    async def start(self, check: Callable[[], None]) -> None:
        """Compute the prompt."""
        self._logits = await self._context.evaluate(self._prompt_ids, check)

    async def next(self) -> Sequence[int]:
        """Return the next id, after putting the one before it into the cache."""
        if self._waiting:
            self._logits = await self._context.append(self._waiting)
        token = self._sampler.sample(self._logits, len(self._context.ids), self._seen)
        self._seen.add(token)
        self._waiting = (token,)
        return self._waiting


class Stream:
    """The pieces of one reply, to be read once with `async for`.

    Reading may stop at any time: leaving the loop, `aclose()`, dropping the stream and `abort()`
    all free the model.
    """

    def __init__(
        self, request: Request, context: Context, tokenizer: Tokenizer | None, turns: Turns
    ) -> None:
        self.request = request
        self.stats: Stats | None = None
        self._context, self._turns = context, turns
        self._reply = _Reply(request, tokenizer)
        self._clock = _Clock(len(request.prompt_ids), context.model)
        self._decoder: Decoder | None = None
        self._ahead: list[int] = []
        self._aborted = self._reading = False
        self._last_read_s = clock_s()

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """The ids that the model is given."""
        return self.request.prompt_ids

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the reply so far."""
        return tuple(self._reply.ids)

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self

    async def __anext__(self) -> Piece:
        if self._reading:
            raise InputError("this stream is being read already", hint="read it from one place")
        if self.stats is not None:
            raise StopAsyncIteration
        self._reading = True
        try:
            return await self._next_piece()
        except BaseException:
            self._end()
            raise
        finally:
            self._reading = False
            self._last_read_s = clock_s()

    async def aclose(self) -> None:
        """End the reply and free the model; harmless when it is over."""
        self.abort()

    def abort(self) -> None:
        """End the reply at its next step, with finish_reason "abort".

        A stream that nobody is reading frees the model at once.
        """
        self._aborted = True
        if not self._reading:
            self._turns.give_back(self)

    def idle_s(self) -> float:
        """Return for how long nobody has been reading."""
        return 0.0 if self._reading else clock_s() - self._last_read_s

    async def text(self) -> str:
        """Read on to the end and return the text."""
        return "".join([piece.text async for piece in self])

    async def _next_piece(self) -> Piece:
        try:
            piece = self._reply.add(await self._next_id())
        except AbortedError:
            return self._finished(Piece(self._reply.flush(), (), "abort"))
        return piece if piece.finish_reason is None else self._finished(piece)

    async def _next_id(self) -> int:
        """Return the next id; raises `AbortedError` where the request is to end."""
        self._check_aborted()
        if self._decoder is None:
            await self._turns.take(self)
            self._decoder = await self._prefill()
        if not self._ahead:
            self._ahead = list(await self._decoder.next())
        self._clock.count_token()
        return self._ahead.pop(0)

    async def _prefill(self) -> Decoder:
        model = self._context.model
        self._clock.start(self._context.computed)
        make_decoder = getattr(model, "decoder", None)
        decoder: Decoder | None = None
        if make_decoder is not None:
            decoder = make_decoder(self._context, self.request)
        decoder = decoder or HostDecoder(self._context, self.request)
        await decoder.start(self._check_aborted)
        self._clock.end_prefill(self._context.computed)
        return decoder

    def _check_aborted(self) -> None:
        if self._aborted:
            raise AbortedError("the request was aborted")

    def _finished(self, piece: Piece) -> Piece:
        return replace(piece, stats=self._end())

    def _end(self) -> Stats:
        self._turns.give_back(self)
        self.stats = self._clock.stats()
        return self.stats


class _Reply:
    """The tokens so far, their text, and why they end."""

    def __init__(self, request: Request, tokenizer: Tokenizer | None) -> None:
        self._request = request
        self._detokenizer = None if tokenizer is None else Detokenizer(tokenizer)
        self._stops = StopStrings(request.options.stop)
        self.ids: list[int] = []
        self.reason: str | None = None

    def add(self, token: int) -> Piece:
        """Return the piece that `token` makes; sets `reason` if it is the last."""
        self.ids.append(token)
        text, stopped = "", token in self._request.stop_ids
        if not stopped and self._detokenizer is not None:
            text, stopped = self._stops.push(self._detokenizer.push(token))
            if stopped:
                self._detokenizer = None
        if stopped:
            self.reason = "stop"
        elif len(self.ids) >= self._request.limit:
            self.reason = "length"
        return Piece(text + self.flush() if self.reason else text, (token,), self.reason)

    def flush(self) -> str:
        """Return the text that was held back; a stop string may still end it."""
        if self._detokenizer is None:
            return ""
        text, stopped = self._stops.push(self._detokenizer.finish())
        return text if stopped else text + self._stops.finish()


class _Clock:
    """Times the stages of a request."""

    def __init__(self, prompt_tokens: int, model: object) -> None:
        self._prompt_tokens, self._model = prompt_tokens, model
        self._computed = self._new_tokens = self._tokens = 0
        self._start = self._prefilled = self._first = self._last = 0.0
        self._waited_ms = self._first_waited_ms = 0.0

    def start(self, computed: int) -> None:
        self._computed = computed
        self._start = self._prefilled = self._first = self._last = time.perf_counter()

    def end_prefill(self, computed: int) -> None:
        self._new_tokens = computed - self._computed
        self._prefilled = self._first = self._last = time.perf_counter()

    def count_token(self) -> None:
        self._last = time.perf_counter()
        self._waited_ms = float(getattr(self._model, "waited_ms", 0.0))
        if not self._tokens:
            self._first, self._first_waited_ms = self._last, self._waited_ms
        self._tokens += 1

    def stats(self) -> Stats:
        prefill_s, decode_s = self._prefilled - self._start, self._last - self._first
        host_ms = 1000 * decode_s - (self._waited_ms - self._first_waited_ms)
        return Stats(
            prompt_tokens=self._prompt_tokens,
            reused_tokens=self._prompt_tokens - self._new_tokens,
            generated_tokens=self._tokens,
            prefill_ms=1000 * prefill_s,
            decode_ms=1000 * decode_s,
            first_token_ms=1000 * (self._first - self._start),
            decode_tok_s=(self._tokens - 1) / decode_s if decode_s > 0 else 0.0,
            prefill_tok_s=self._new_tokens / prefill_s if prefill_s > 0 else 0.0,
            host_ms_per_token=max(0.0, host_ms) / (self._tokens - 1) if self._tokens > 1 else 0.0,
        )
