"""A language model that answers: text, ids or chat messages in, a stream of text out.

Input:  prompts and sampling options. Output: `Stream`s of `Piece`s, or logits.
Way of the data: page -> **engine** (chat -> tokenizer -> generation -> session) -> page.

Everything that can be wrong with a request is found before any GPU work. Requests take turns in the
order in which they are first read; `break`, `aclose()` and `abort()` leave the engine ready for the
next.

    engine = await Engine.load("/models/smollm2")
    async for piece in engine.generate([{"role": "user", "content": "Hi"}], max_tokens=64):
        print(piece.text, end="")
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from runtime_py import philox
from runtime_py.bundle import Bundle
from runtime_py.bundle_text import BundleText
from runtime_py.chat import ChatTemplate, Message
from runtime_py.context import Context
from runtime_py.debug import COMPARE
from runtime_py.errors import ContextFullError, InputError, OptionError
from runtime_py.generation import Request, Stream
from runtime_py.model import Model, SessionModel
from runtime_py.next_token import NEXT, TOKENS, with_next_token
from runtime_py.options import SessionOptions
from runtime_py.sampling import SamplingOptions
from runtime_py.schema import Manifest
from runtime_py.stops import stop_token_ids
from runtime_py.tensor import Tensor
from runtime_py.tokenizer import Tokenizer
from runtime_py.turns import Turns

if TYPE_CHECKING:
    from runtime_py.profile import DispatchTime

PromptLike: TypeAlias = "str | Sequence[int] | Sequence[Message]"
Progress: TypeAlias = "Callable[[str, int, int], None]"


class Engine:
    """A model with its tokenizer and chat template. Make one with `load`, or around any `Model`."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer | None = None,
        template: ChatTemplate | None = None,
        *,
        stop_ids: Iterable[int] = (),
        defaults: SamplingOptions | None = None,
        session: Any = None,
    ) -> None:
        self.model, self.tokenizer, self.template = model, tokenizer, template
        self.stop_ids = frozenset(stop_ids)
        self.defaults = defaults or SamplingOptions()
        self.session = session
        self._context = Context(model)
        self._turns = Turns()
        self._seed = secrets.randbits(64)
        self._requests = 0

    @staticmethod
    async def load(
        url: str, options: Mapping[str, Any] | None = None, progress: Progress | None = None
    ) -> Engine:
        """Return an engine for the bundle at `url`; raises the typed errors of `Session.load`."""
        from runtime_py.js_tokenizer import JsBackend
        from runtime_py.session import Session

        if SessionOptions.parse(options).debug == COMPARE:
            raise OptionError(
                "debug=5 compares every intermediate with the numpy reference, which an engine "
                "does not have",
                hint="run `TABFIRE_DEBUG=5 python -m exporter verify DIR`, or exporter.run with "
                "the steps in question",
            )

        text, session = BundleText(), None

        async def read_text(bundle: Bundle) -> None:
            nonlocal text
            text = await BundleText.read(
                bundle, lambda path: JsBackend.load(url, bundle.file(path))
            )

        try:
            session = await Session.load(url, options, progress, with_next_token, read_text)
            return await _assemble(session, text)
        except BaseException:
            text.close()
            if session is not None:
                session.close()
            raise

    def generate(
        self,
        prompt: PromptLike,
        options: SamplingOptions | None = None,
        *,
        variables: Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> Stream:
        """Return the stream of a reply to `prompt`: a text to continue, its ids, or chat messages.

        `options` is where `sampling` (max_tokens, temperature, ...) starts from: left out, greedy
        until the end; `engine.defaults` is what the bundle recommends. `variables` go to the chat
        template (tools, ...). A text is framed by BOS as tokenizer.json says, and special tokens in
        it count; in messages they are text.

        Raises `OptionError`, `InputError`, `TemplateError` or `ContextFullError`, before any GPU
        work.
        """
        chosen = (options or SamplingOptions()).updated(sampling)
        ids = self.encode(prompt, variables)
        _check_ids(ids, self.model.vocabulary)
        room = self.model.context - len(ids)
        if room < 1:
            raise ContextFullError(
                f"the prompt has {len(ids)} tokens, the context takes {self.model.context} "
                f"and needs one for the reply",
                hint="shorten the prompt, or export with a larger --max-context",
            )
        self._requests += 1
        request = Request(
            prompt_ids=tuple(ids),
            options=chosen,
            limit=min(room, chosen.max_tokens or room),
            seed=philox.derive(self._seed, self._requests) if chosen.seed is None else chosen.seed,
            known_tokens=min(
                self.model.vocabulary, self.tokenizer.size if self.tokenizer else 2**31
            ),
            stop_ids=self.stop_ids,
        )
        return Stream(request, self._context, self.tokenizer, self._turns)

    def encode(self, prompt: PromptLike, variables: Mapping[str, Any] | None = None) -> list[int]:
        """Return the ids that `generate` gives to the model for `prompt`."""
        if isinstance(prompt, str):
            return self._tokenizer().encode(prompt, frame=True) if prompt else []
        if not isinstance(prompt, Sequence) or isinstance(prompt, (bytes, bytearray)):
            raise InputError(f"a prompt is a text, ids or messages, not {type(prompt).__name__}")
        if prompt and isinstance(prompt[0], Mapping):
            return self._encode_chat(prompt, variables or {})
        return list(prompt)  # type: ignore[arg-type]

    async def logits(self, token_ids: Sequence[int], input_pos: int = 0) -> Tensor:
        """Return the logits after each of `token_ids`, f32 [S, V]; the first token stands at
        `input_pos`.

        The call for checks: it computes every row and writes the KV cache as a prompt would.
        Positions before `input_pos` are those of earlier calls; raises `InputError` where there are
        none.
        """
        _check_ids(token_ids, self.model.vocabulary)
        if isinstance(input_pos, bool) or not isinstance(input_pos, int) or input_pos < 0:
            raise InputError(f"input_pos is {input_pos!r}, expected a position from 0 on")
        if input_pos + len(token_ids) > self.model.context:
            raise ContextFullError(
                f"{len(token_ids)} tokens at {input_pos} pass the context of {self.model.context}",
                hint="export with a larger --max-context",
            )
        turn = _Call()
        await self._turns.take(turn)
        try:
            return await self._context.rows(token_ids, input_pos)
        finally:
            self._turns.give_back(turn)

    async def profile(
        self, token_ids: Sequence[int], input_pos: int | None = None
    ) -> list[DispatchTime]:
        """Return the GPU time of every dispatch of one greedy step over `token_ids`, in order.

        The step stands behind what the cache holds, where the next prompt overwrites it, or at
        `input_pos`: then the cache is forgotten from there on. Raises `FeatureMissingError` without
        timestamps, `InputError` where there is no room.
        """
        _check_ids(token_ids, self.model.vocabulary)
        turn = _Call()
        await self._turns.take(turn)
        try:
            at = len(self._context.ids) if input_pos is None else input_pos
            self._context.truncate(at)
            times: list[DispatchTime] = await self.session.profile(
                {TOKENS: list(token_ids)}, outputs=[NEXT], S=len(token_ids), input_pos=at, L=1
            )
            return times
        finally:
            self._turns.give_back(turn)

    def abort(self) -> None:
        """End the request that has its turn; harmless when none has."""
        holder = self._turns.holder
        if holder is not None:
            holder.abort()

    def forget(self) -> None:
        """Take nothing in the KV cache for known: the next prompt is computed from its start.

        To be called by whoever changes the session's buffers beside the engine.
        """
        self._context.truncate(0)

    async def reset(self) -> None:
        """End what runs, forget every token and put the model's buffers back."""
        self.abort()
        turn = _Call()
        await self._turns.take(turn)
        try:
            self.forget()
            self.model.reset()
        finally:
            self._turns.give_back(turn)

    def close(self) -> None:
        """Abort what runs and free the session and the tokenizer."""
        self.abort()
        BundleText(self.tokenizer).close()
        if self.session is not None:
            self.session.close()

    def _encode_chat(self, messages: Any, variables: Mapping[str, Any]) -> list[int]:
        if self.template is None:
            raise InputError("this bundle has no chat template", hint="pass a text instead")
        prompt = self.template.render(messages, **variables)
        return self._tokenizer().encode(prompt.guarded, guard=prompt.guard)

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError("this bundle has no tokenizer", hint="pass token ids")
        return self.tokenizer


class _Call:
    """A holder of the turn that works until it is done."""

    def idle_s(self) -> float:
        return 0.0

    def abort(self) -> None:
        return


async def _assemble(session: Any, text: BundleText) -> Engine:
    """Return the engine of a loaded session."""
    manifest: Manifest = session.bundle.manifest
    model, tokenizer = SessionModel(session), text.tokenizer
    await model.prepare()
    specials = {name: token.id for name, token in tokenizer.specials.items()} if tokenizer else {}
    return Engine(
        model,
        tokenizer,
        text.template,
        stop_ids=stop_token_ids(manifest.text, manifest.generation, specials),
        defaults=SamplingOptions.from_generation(manifest.generation),
        session=session,
    )


def _check_ids(ids: Sequence[int], vocabulary: int) -> None:
    if not isinstance(ids, Sequence) or not len(ids):
        raise InputError("the prompt is empty", hint="pass at least one token")
    for i, token in enumerate(ids):
        if isinstance(token, bool) or not isinstance(token, int):
            raise InputError(f"token {i} of the prompt is {token!r}, expected an integer")
        if not 0 <= token < vocabulary:
            raise InputError(
                f"token {i} of the prompt is {token}, the vocabulary has 0..{vocabulary - 1}"
            )
