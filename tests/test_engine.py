"""The engine over a mock model: prompts, ends, stops, turns, the cache, bad input."""

from __future__ import annotations

import array
import asyncio
import json
import math
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from runtime_py import engine as engine_module
from runtime_py import turns
from runtime_py.chat import ChatTemplate
from runtime_py.context import Context
from runtime_py.engine import Engine
from runtime_py.errors import (
    BadBundleError,
    ContextFullError,
    InputError,
    NonFiniteError,
    OptionError,
    TemplateError,
)
from runtime_py.generation import Decoder, HostDecoder, Piece, Request
from runtime_py.sampling import Row, SamplingOptions
from runtime_py.schema import Graph, Manifest, Port, Symbol, Value
from runtime_py.tensor import Tensor
from tests.mock_model import MockModel, script
from tests.text_backend import PackageBackend, bos_template, bpe_data, byte_tokenizer

T = TypeVar("T")
PROMPT = [10, 11, 12]
EOS = 256
CHATML = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}{% endfor %}"


def run(work: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        return await asyncio.wait_for(work, 5)

    return asyncio.run(limited())


def make(
    reply: Sequence[int] | str = "hello",
    prompt: Sequence[int] = PROMPT,
    stop_ids: Sequence[int] = (EOS,),
    after: int = EOS,
    **model: Any,
) -> Engine:
    """Return an engine whose model says `reply` (text as bytes) after `prompt`, then `after` for
    ever.
    """
    ids = list(reply.encode()) if isinstance(reply, str) else list(reply)
    tokenizer = byte_tokenizer("<eos>", "<|im_start|>", "<|im_end|>")
    return Engine(MockModel(script(prompt, ids, after), **model), tokenizer, stop_ids=stop_ids)


def mock(engine: Engine) -> MockModel:
    assert isinstance(engine.model, MockModel)
    return engine.model


async def collect(engine: Engine, prompt: Any = PROMPT, **sampling: Any) -> list[Piece]:
    return [piece async for piece in engine.generate(prompt, **sampling)]


def text_of(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def ids_of(pieces: Sequence[Piece]) -> list[int]:
    return [token for piece in pieces for token in piece.ids]


# Ends ---------------------------------------------------------------------------------------------


def test_a_reply_streams_to_its_stop_token() -> None:
    pieces = run(collect(make()))
    assert [piece.text for piece in pieces] == ["h", "e", "l", "l", "o", ""]
    assert ids_of(pieces) == [*b"hello", EOS]
    assert [piece.finish_reason for piece in pieces[:-1]] == [None] * 5
    assert pieces[-1].finish_reason == "stop"
    stats = pieces[-1].stats
    assert stats is not None
    assert (stats.prompt_tokens, stats.generated_tokens, stats.reused_tokens) == (3, 6, 0)
    assert 0 <= stats.prefill_ms <= stats.first_token_ms
    assert stats.decode_tok_s > 0


def test_case_34d_one_token_ends_with_length() -> None:
    pieces = run(collect(make(), max_tokens=1))
    assert [(piece.text, piece.ids, piece.finish_reason) for piece in pieces] == [
        ("h", (104,), "length")
    ]


def test_a_stop_token_wins_over_length() -> None:
    assert run(collect(make("hi"), max_tokens=3))[-1].finish_reason == "stop"
    assert run(collect(make("hi"), max_tokens=2))[-1].finish_reason == "length"


def test_prompt_and_reply_fill_the_context_and_no_more() -> None:
    engine = make("x" * 50, context=8)
    pieces = run(collect(engine))
    assert (text_of(pieces), pieces[-1].finish_reason) == ("xxxxx", "length")
    assert len(run(collect(make("x" * 50, prompt=[1] * 7, context=8), prompt=[1] * 7))) == 1


def test_case_34d_a_prompt_past_the_context_is_refused_before_any_step() -> None:
    engine = make(context=8)
    with pytest.raises(ContextFullError, match=r"8 tokens.* 8 ") as caught:
        engine.generate([1] * 8)
    assert caught.value.code == "context_full"
    assert mock(engine).calls == []


@pytest.mark.parametrize("stop_token", [256, 257, 258])
def test_case_33_every_end_token_stops_and_is_not_shown(stop_token: int) -> None:
    engine = make([104, 105, stop_token], stop_ids=(256, 257, 258))
    pieces = run(collect(engine, max_tokens=9))
    assert (text_of(pieces), pieces[-1].finish_reason) == ("hi", "stop")
    assert ids_of(pieces)[-1] == stop_token


def test_stop_strings_split_over_tokens() -> None:
    pieces = run(collect(make("one END two"), stop=["END"]))
    assert (text_of(pieces), pieces[-1].finish_reason) == ("one ", "stop")
    assert [piece.text for piece in pieces][-3:] == ["", "", ""]


def test_what_looked_like_a_stop_string_is_shown_at_the_end() -> None:
    pieces = run(collect(make("one EN"), stop=["END"]))
    assert (text_of(pieces), pieces[-1].finish_reason) == ("one EN", "stop")
    pieces = run(collect(make("one EN"), stop="END", max_tokens=6))
    assert (text_of(pieces), pieces[-1].finish_reason) == ("one EN", "length")


def test_case_30_max_tokens_inside_an_emoji() -> None:
    pieces = run(collect(make("a😊"), max_tokens=3))
    assert (text_of(pieces), pieces[-1].finish_reason) == ("a\ufffd", "length")
    assert text_of(run(collect(make("a😊"), max_tokens=5))) == "a😊"


def test_special_tokens_that_do_not_stop_are_not_shown() -> None:
    assert text_of(run(collect(make([104, 257, 105])))) == "hi"


def test_case_32_ids_that_the_tokenizer_does_not_know_are_never_drawn() -> None:
    engine = make([299, 104])
    assert engine.tokenizer is not None
    pieces = run(collect(engine, max_tokens=2))
    assert all(token < engine.tokenizer.size for token in ids_of(pieces))


# Prompts ------------------------------------------------------------------------------------------


def test_text_and_messages_become_ids() -> None:
    engine = make()
    engine.template = ChatTemplate(CHATML, {}, ["<|im_start|>", "<|im_end|>"])
    assert engine.encode("hi<eos>") == [*b"hi", EOS]
    messages = [{"role": "user", "content": "<|im_end|>"}]
    assert engine.encode(messages) == [257, *b"user\n<|im_end|>", 258]
    stream = engine.generate(messages, max_tokens=1)
    assert stream.prompt_ids == (257, *b"user\n<|im_end|>", 258)


def test_case_34e_a_text_prompt_has_one_bos() -> None:
    tokenizer = byte_tokenizer("<bos>", post_processor=bos_template("<bos>", 256))
    engine = Engine(MockModel(lambda ids: 1), tokenizer)
    assert engine.encode("hi") == engine.encode("<bos>hi") == [256, *b"hi"]


def test_case_34w_a_template_that_refuses_generates_nothing() -> None:
    engine = make()
    engine.template = ChatTemplate("{{ raise_exception('no') }}")
    with pytest.raises(TemplateError, match="no"):
        engine.generate([{"role": "user", "content": "x"}])
    assert mock(engine).calls == []


BAD_PROMPTS: list[Any] = ["", [], [300], [-1], [True], [1.5], ["a"], 7, None, [[1]], b"hi"]


@pytest.mark.parametrize("prompt", BAD_PROMPTS)
def test_bad_prompts_are_refused_before_any_step(prompt: Any) -> None:
    engine = make()
    with pytest.raises(InputError):
        engine.generate(prompt)
    assert mock(engine).calls == []


def test_an_id_outside_the_vocabulary_is_named() -> None:
    with pytest.raises(InputError, match=r"token 1 .* 300.*0\.\.299"):
        make().generate([5, 300])


def test_unknown_options_are_refused() -> None:
    with pytest.raises(OptionError, match="max_token'"):
        make().generate(PROMPT, max_token=3)


def test_a_bundle_without_tokenizer_or_template() -> None:
    engine = Engine(MockModel(script(PROMPT, [5, 6])), stop_ids=[0])
    assert ids_of(run(collect(engine))) == [5, 6, 0]
    with pytest.raises(InputError, match="no tokenizer"):
        engine.generate("hi")
    with pytest.raises(InputError, match="no chat template"):
        engine.generate([{"role": "user", "content": "x"}])


def test_defaults_are_taken_only_on_request() -> None:
    engine = make()
    engine.defaults = SamplingOptions(temperature=0.5, top_p=0.9)
    assert engine.generate(PROMPT).request.options.temperature == 0.0
    chosen = engine.generate(PROMPT, engine.defaults, top_p=0.5).request.options
    assert (chosen.temperature, chosen.top_p) == (0.5, 0.5)


# The cache ----------------------------------------------------------------------------------------


def test_long_prompts_go_in_chunks() -> None:
    prompt = list(range(1, 20))
    engine = make("ok", prompt=prompt)
    run(collect(engine, prompt))
    assert mock(engine).calls[:4] == [(0, 8), (8, 8), (16, 3), (19, 1)]


def test_a_common_beginning_is_not_computed_again() -> None:
    engine = make(prompt=[1, 2, 3, 4])
    run(collect(engine, [1, 2, 3, 4], max_tokens=1))
    mock(engine).calls.clear()
    pieces = run(collect(engine, [1, 2, 9, 9], max_tokens=1))
    assert mock(engine).calls == [(2, 2)]
    assert pieces[-1].stats is not None
    assert pieces[-1].stats.reused_tokens == 2


def test_a_conversation_goes_on_from_its_reply() -> None:
    engine = make("hello")
    reply = ids_of(run(collect(engine)))
    mock(engine).calls.clear()
    run(collect(engine, [*PROMPT, *reply, 7], max_tokens=1))
    assert mock(engine).calls == [(8, 2)]  # the stop token was drawn but never computed


@pytest.mark.parametrize("sampling", [{}, {"temperature": 2.0, "seed": 7}])
def test_case_34a_the_same_prompt_again_gives_the_same(sampling: dict[str, Any]) -> None:
    engine = make(after=100)
    first = run(collect(engine, max_tokens=6, **sampling))
    mock(engine).calls.clear()
    second = run(collect(engine, max_tokens=6, **sampling))
    assert text_of(second) == text_of(first) != ""
    assert mock(engine).calls[0] == (2, 1), "the last token of the prompt is always computed"


def test_case_34b_seeds() -> None:
    def say(engine: Engine, **sampling: Any) -> list[int]:
        return ids_of(run(collect(engine, max_tokens=12, temperature=3.0, **sampling)))

    seeded = make(after=100)
    first = say(seeded, seed=7)
    say(seeded)
    assert say(seeded, seed=7) == first == say(make(after=100), seed=7)
    assert say(make(after=100)) != say(make(after=100)), "two loads without a seed"
    assert say(seeded) != say(seeded), "two requests without a seed"


def test_a_step_that_fails_leaves_the_engine_usable() -> None:
    engine = make("hello")
    steps = iter([None, None, ValueError("lost")])

    def fail() -> None:
        error = next(steps, None)
        if error is not None:
            raise error

    mock(engine).before_step = fail
    with pytest.raises(ValueError, match="lost"):
        run(collect(engine))
    assert text_of(run(collect(engine))) == "hello"


def test_logits_that_are_not_finite_end_the_request() -> None:
    class Bad(MockModel):
        def _row(self, ids: Sequence[int]) -> array.array[float]:
            return array.array("f", [math.nan] * self.vocabulary)

    with pytest.raises(NonFiniteError):
        run(collect(Engine(Bad(lambda ids: 1)), PROMPT))


def test_reset_forgets() -> None:
    engine = make()
    run(collect(engine))
    run(engine.reset())
    mock(engine).calls.clear()
    run(collect(engine, max_tokens=1))
    assert mock(engine).calls == [(0, 3)]
    assert mock(engine).resets == 1


def test_reset_waits_for_the_step_that_runs() -> None:
    async def work() -> str:
        engine = make("x" * 50)
        running = asyncio.ensure_future(collect(engine))
        await asyncio.sleep(0.001)
        await engine.reset()
        assert mock(engine).cache == engine._context.ids == []
        assert (await running)[-1].finish_reason == "abort"
        return text_of(await collect(engine, max_tokens=2))

    assert run(work()) == "xx"


class GroupModel(MockModel):
    """Brings four ids at a time, as a model would that samples on the GPU."""

    def decoder(self, context: Context, request: Request, logits: Row) -> Decoder:
        return GroupDecoder(HostDecoder(context, request, logits))


class GroupDecoder:
    def __init__(self, inner: HostDecoder) -> None:
        self._inner = inner

    async def next(self) -> list[int]:
        return [token for _ in range(4) for token in await self._inner.next()]


def test_ids_past_the_end_of_a_reply_are_dropped_and_the_position_goes_back() -> None:
    model = GroupModel(script(PROMPT, [*b"hello", EOS, 1, 2, 3, 4, 5]))
    engine = Engine(model, byte_tokenizer("<eos>"), stop_ids=[EOS])
    pieces = run(collect(engine))
    assert ids_of(pieces) == [*b"hello", EOS]
    assert pieces[-1].stats is not None
    assert pieces[-1].stats.generated_tokens == 6
    model.calls.clear()
    run(collect(engine, [*PROMPT, *b"hello", 9], max_tokens=1))
    assert model.calls[0] == (8, 1), "what was computed past the stop is overwritten"
    assert len(run(collect(engine, max_tokens=3))) == 3


# Leaving early ------------------------------------------------------------------------------------


async def leave_after_one(engine: Engine) -> Any:
    stream = engine.generate(PROMPT)
    async for _ in stream:
        break
    return stream


def test_case_34c_break_frees_the_engine_at_once() -> None:
    async def work() -> str:
        engine = make()
        async for _ in engine.generate(PROMPT):
            break
        return text_of(await asyncio.wait_for(collect(engine), turns.GRACE_S / 2))

    assert run(work()) == "hello"


def test_case_34c_a_stream_left_but_still_held_loses_its_turn() -> None:
    async def work() -> tuple[str, list[Piece]]:
        engine = make()
        left = await leave_after_one(engine)
        engine._turns._grace_s = 0.05
        text = text_of(await collect(engine))
        return text, [piece async for piece in left]

    text, rest = run(work())
    assert text == "hello"
    assert [(piece.text, piece.finish_reason) for piece in rest] == [("", "abort")]


def test_case_34c_abort_when_idle_is_harmless() -> None:
    async def work() -> str:
        engine = make()
        engine.abort()
        left = await leave_after_one(engine)
        engine.abort()
        await left.aclose()
        return text_of(await collect(engine))

    assert run(work()) == "hello"


def test_abort_ends_a_running_request() -> None:
    async def work() -> list[Piece]:
        engine, pieces = make("x" * 40), []
        async for piece in engine.generate(PROMPT):
            pieces.append(piece)
            if len(pieces) == 3:
                engine.abort()
        assert text_of(await collect(engine, max_tokens=2)) == "xx"
        return pieces

    pieces = run(work())
    assert [piece.finish_reason for piece in pieces] == [None, None, None, "abort"]
    assert pieces[-1].stats is not None
    assert pieces[-1].stats.generated_tokens == 3


def test_abort_ends_a_long_prompt_between_two_chunks() -> None:
    async def work() -> tuple[list[Piece], list[tuple[int, int]]]:
        engine = make(prompt=[1] * 40)
        mock(engine).before_step = engine.abort
        pieces = await collect(engine, [1] * 40)
        mock(engine).before_step = lambda: None
        assert text_of(await collect(engine, [1] * 40)) == "hello"
        return pieces, mock(engine).calls

    pieces, calls = run(work())
    assert [piece.finish_reason for piece in pieces] == ["abort"]
    assert calls[:2] == [(0, 8), (8, 8)], "what was computed is kept"


def test_a_cancelled_task_frees_the_engine() -> None:
    async def work() -> str:
        engine = make("x" * 50)
        task = asyncio.ensure_future(collect(engine))
        await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return text_of(await collect(engine, max_tokens=2))

    assert run(work()) == "xx"


def test_requests_take_turns() -> None:
    async def work() -> list[str]:
        engine = make("hello")
        many = await asyncio.gather(*[collect(engine) for _ in range(4)])
        return [text_of(pieces) for pieces in many]

    assert run(work()) == ["hello"] * 4


def test_one_stream_is_read_from_one_place() -> None:
    async def work() -> None:
        stream = make().generate(PROMPT)
        with pytest.raises(InputError, match="already"):
            await asyncio.gather(anext(stream), anext(stream))

    run(work())


def test_a_stream_that_ended_stays_ended() -> None:
    async def work() -> None:
        stream = make().generate(PROMPT, max_tokens=1)
        assert await stream.text() == "h"
        assert [piece async for piece in stream] == []

    run(work())


# Logits -------------------------------------------------------------------------------------------


def test_logits_of_every_position_in_one_piece_and_in_several() -> None:
    async def work() -> None:
        engine = make()
        ids = list(range(1, 21))
        whole = await engine.logits(ids, 0)
        assert whole.shape == (20, 300)
        await engine.logits(ids[:5], 0)
        parts = [await engine.logits(ids[i : i + 1], i) for i in range(5, 20)]
        assert b"".join(part.data for part in parts) == bytes(whole.data)[5 * 1200 :]

    run(work())


@pytest.mark.parametrize(
    ("ids", "input_pos", "error"),
    [
        ([], 0, InputError),
        ([300], 0, InputError),
        ([1], -1, InputError),
        ([1], 1, InputError),
        ([1], True, InputError),
        ([1] * 65, 0, ContextFullError),
    ],
)
def test_bad_calls_for_logits(ids: list[int], input_pos: Any, error: type[Exception]) -> None:
    engine = make()
    with pytest.raises(error):
        run(engine.logits(ids, input_pos))
    assert mock(engine).calls == []


def test_logits_and_generation_share_the_cache() -> None:
    async def work() -> None:
        engine = make()
        await engine.logits(PROMPT, 0)
        mock(engine).calls.clear()
        assert text_of(await collect(engine)) == "hello"
        assert mock(engine).calls[0] == (2, 1)

    run(work())


# Over a session -----------------------------------------------------------------------------------


class FakeSession:
    """What `_assemble` and `SessionModel` ask of a session, with a mock model inside."""

    def __init__(self, text: dict[str, Any], files: dict[str, str], **graph: Any) -> None:
        self.model = MockModel(script(PROMPT, [104, 105], 258))
        self.graph = language_graph(**graph)
        self.bundle = self
        self.manifest = Manifest({}, {}, text, {"eos_token_id": [256], "temperature": 0.5})
        self.files = files
        self.closed = 0

    async def read_text(self, path: str) -> str:
        return self.files[path]

    async def run(self, inputs: dict[str, Any], **symbols: int) -> dict[str, Tensor]:
        ids = inputs["tokens"]
        assert symbols["S"] == len(ids)
        rows = await self.model.logits(ids, symbols["input_pos"])
        wanted = rows.data[(len(ids) - symbols["L"]) * 1200 :]
        return {"logits": Tensor("f32", (1, symbols["L"], 300), wanted)}

    def reset(self) -> None:
        self.model.reset()

    def close(self) -> None:
        self.closed += 1


def language_graph(tokens: str = "tokens") -> Graph:
    names = [Symbol("S", 1, 8), Symbol("L", 1, 8), Symbol("input_pos", 0, 63)]
    ids, logits = Value("i", "i32", (1, "S")), Value("o", "f32", (1, "L", 300))
    ports = ((Port(tokens, "i"),), (Port("logits", "o"),))
    return Graph(tuple(names), (), {"i": ids, "o": logits}, {}, {}, (), *ports)


TEXT = {
    "tokenizer": "tokenizer.json",
    "chat_template": "chat_template.jinja",
    "special_tokens": {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"},
    "add_bos": True,
}
FILES = {
    "tokenizer.json": json.dumps(bpe_data(specials=["<eos>", "<|im_start|>", "<|im_end|>"])),
    "chat_template.jinja": CHATML,
}


def assemble(text: dict[str, Any], **graph: Any) -> tuple[Engine, FakeSession]:
    session = FakeSession(text, FILES, **graph)
    engine = run(engine_module._assemble(session, lambda text: PackageBackend(json.loads(text))))
    return engine, session


def test_an_engine_is_put_together_from_a_bundle() -> None:
    engine, session = assemble(TEXT)
    assert engine.stop_ids == {256, 258}
    assert engine.defaults.temperature == 0.5
    assert (engine.model.context, engine.model.max_prefill, engine.model.vocabulary) == (64, 8, 300)
    assert engine.encode("hi") == [257, *b"hi"]
    assert engine.encode([{"role": "user", "content": "x"}]) == [257, *b"user\nx", 258]
    assert text_of(run(collect(engine))) == "hi"
    assert run(engine.logits([1, 2, 3], 0)).shape == (3, 300)
    engine.close()
    assert session.closed == 1


def test_a_bundle_may_have_no_text() -> None:
    engine, _ = assemble({})
    assert engine.tokenizer is None
    assert engine.template is None
    assert ids_of(run(collect(engine, max_tokens=2))) == [104, 105]


def test_a_bundle_that_is_no_language_model_is_refused() -> None:
    with pytest.raises(BadBundleError, match="no 'tokens'"):
        assemble(TEXT, tokens="x")
