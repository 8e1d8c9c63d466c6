"""The engine over a mock model: prompts, ends, stops, the cache, bad input."""

from __future__ import annotations

import array
import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest

from runtime_py.chat import ChatTemplate
from runtime_py.context import Context
from runtime_py.engine import Engine
from runtime_py.errors import (
    ContextFullError,
    InputError,
    NonFiniteError,
    OptionError,
    TemplateError,
)
from runtime_py.generation import Decoder, HostDecoder, Request
from runtime_py.sampling import SamplingOptions
from tests.mock_engine import CHATML, EOS, PROMPT, collect, ids_of, make, mock, run, text_of
from tests.mock_model import MockModel, script
from tests.text_backend import bos_template, byte_tokenizer

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

    def decoder(self, context: Context, request: Request) -> Decoder:
        return GroupDecoder(HostDecoder(context, request))


class GroupDecoder:
    def __init__(self, inner: HostDecoder) -> None:
        self._inner = inner
        self.start = inner.start

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
