"""Decoding over a loop that brings groups of ids, as one on a GPU does; over a mock model."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from runtime_py import reference, sampling_words
from runtime_py.context import Context
from runtime_py.decoding import LoopDecoder
from runtime_py.engine import Engine
from runtime_py.errors import NonFiniteError
from runtime_py.generation import HostDecoder, Request
from runtime_py.memory import SlotPool
from runtime_py.next_token import CHOICES, DRAWN, LOGITS, NEXT, SEEN, SETTINGS, with_next_token
from runtime_py.ops import registry
from runtime_py.ops.base import Binding, Caps, Dispatch, key
from runtime_py.options import SessionOptions
from runtime_py.plan import Plan, make_plan
from runtime_py.reach import ALWAYS, LAST_OUTPUT, output_bit, reach
from runtime_py.sampling import Sampler, SamplingOptions
from runtime_py.schema import Port
from tests import toy
from tests.mock_engine import EOS, PROMPT, collect, ids_of, run, text_of
from tests.mock_model import MockModel, script
from tests.text_backend import byte_tokenizer


class MockLoop:
    """Runs the mock model in groups of four, each id fed to the step after it."""

    def __init__(self, model: LoopModel) -> None:
        self.model = model
        self.starts: list[tuple[int, int, int, str]] = []

    async def start(self, token: int, input_pos: int, end: int, output: str) -> None:
        self.starts.append((token, input_pos, end, output))
        self.token, self.position, self.end = token, input_pos, end

    async def next(self) -> Sequence[int]:
        ids = []
        for _ in range(min(4, self.end - self.position)):
            self.token = await self.model.choose([self.token], self.position)
            self.position += 1
            ids.append(self.token)
        assert ids, "past the end"
        return ids


class LoopModel(MockModel):
    """Chooses tokens itself, with the host's sampler for a GPU's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.loop = MockLoop(self)
        self.bad_at = -1

    def decoder(self, context: Context, request: Request) -> LoopDecoder:
        self.sampler = Sampler(request.options, request.known_tokens, request.seed)
        self.seen = set(request.prompt_ids)
        output = DRAWN if request.options.temperature else NEXT
        end = min(self.context, len(request.prompt_ids) + request.limit - 1)
        return LoopDecoder(self.loop, self.choose, context, request.prompt_ids, output, end)

    async def choose(self, ids: Sequence[int], input_pos: int) -> int:
        logits = await self.prefill(ids, input_pos)
        position = input_pos + len(ids)
        if position == self.bad_at:
            return -1
        token = self.sampler.sample(logits, position, self.seen)
        self.seen.add(token)
        return token


def make(reply: str = "hello", after: int = EOS, **model: Any) -> Engine:
    mock = LoopModel(script(PROMPT, list(reply.encode()), after), **model)
    return Engine(mock, byte_tokenizer("<eos>"), stop_ids=[EOS])


def model_of(engine: Engine) -> LoopModel:
    assert isinstance(engine.model, LoopModel)
    return engine.model


def on_host(engine: Engine) -> Engine:
    """Return an engine over the same model that samples on the host."""
    model = model_of(engine)
    plain = MockModel(model.next_id, model.vocabulary, model.context, model.max_prefill)
    return Engine(plain, engine.tokenizer, stop_ids=engine.stop_ids)


SAMPLINGS: tuple[dict[str, Any], ...] = (
    {},
    {"repetition_penalty": 1.5},
    {"temperature": 2.0, "seed": 7},
    {"temperature": 2.0, "seed": 8, "top_k": 5, "repetition_penalty": 1.2},
    {"temperature": 5.0, "seed": 9, "top_p": 0.8, "stop": ["l"]},
    {"max_tokens": 1},
    {"max_tokens": 5},
)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_a_loop_says_what_the_host_says(sampling: dict[str, Any]) -> None:
    engine = make("hello there", after=100)
    pieces = run(collect(engine, **sampling))
    assert pieces == [
        dataclasses.replace(piece, stats=mine.stats)
        for piece, mine in zip(run(collect(on_host(engine), **sampling)), pieces, strict=True)
    ]
    output = DRAWN if sampling.get("temperature") else NEXT
    assert {start[3] for start in model_of(engine).loop.starts} <= {output}


def test_ids_of_a_group_past_a_stop_are_dropped_and_the_cache_is_right_afterwards() -> None:
    engine = make()
    assert text_of(run(collect(engine))) == "hello"
    model_of(engine).calls.clear()
    run(collect(engine, [*PROMPT, *b"hello", 9], max_tokens=1))
    assert model_of(engine).calls[0] == (8, 1)
    assert text_of(run(collect(engine))) == "hello"


def test_a_stop_string_may_end_inside_a_group() -> None:
    pieces = run(collect(make("one END two"), stop=["END"]))
    assert (text_of(pieces), pieces[-1].finish_reason) == ("one ", "stop")


def test_prompt_and_reply_fill_the_context_and_no_more() -> None:
    pieces = run(collect(make("x" * 50, context=10)))
    assert (text_of(pieces), pieces[-1].finish_reason) == ("x" * 7, "length")


def test_long_prompts_go_in_chunks_and_only_the_last_chooses() -> None:
    prompt = list(range(1, 20))
    engine = Engine(LoopModel(script(prompt, [5, 6], 7)), byte_tokenizer("<eos>"), stop_ids=[EOS])
    assert ids_of(run(collect(engine, prompt, max_tokens=2))) == [5, 6]
    assert model_of(engine).calls == [(0, 8), (8, 8), (16, 3), (19, 1)]


def test_abort_inside_a_group() -> None:
    async def work() -> None:
        engine = make("hello there")
        stream = engine.generate(PROMPT)
        assert [(await anext(stream)).text for _ in range(3)] == ["h", "e", "l"]
        stream.abort()
        last = await anext(stream)
        assert last.finish_reason == "abort"
        assert text_of(await collect(engine)) == "hello there"

    run(work())


def test_case_34c_break_inside_a_group_frees_the_model() -> None:
    async def work() -> None:
        engine = make("hello there")
        async for _ in engine.generate(PROMPT):
            break
        await asyncio.sleep(0)
        assert text_of(await collect(engine)) == "hello there"

    run(work())


@pytest.mark.parametrize("position", [3, 4, 6])
def test_logits_that_are_not_finite_end_the_request(position: int) -> None:
    engine = make("hello there")
    model_of(engine).bad_at = position
    with pytest.raises(NonFiniteError, match="not finite"):
        run(collect(engine))
    model_of(engine).bad_at = -1
    assert text_of(run(collect(engine))) == "hello there"


def test_case_34_a_and_b_over_a_loop() -> None:
    engine = make("hello there", after=100)

    def say(prompt: Sequence[int] = PROMPT, **sampling: Any) -> list[int]:
        return ids_of(run(collect(engine, prompt, max_tokens=12, temperature=3.0, **sampling)))

    first = say(seed=7)
    assert (
        first
        == say(seed=7)
        == ids_of(run(collect(on_host(engine), max_tokens=12, temperature=3.0, seed=7)))
    )
    say([1, 2])
    assert say(seed=7) == first
    assert say() != say(), "two requests without a seed"


def test_the_decoders_of_host_and_loop_are_of_one_shape() -> None:
    for decoder in (HostDecoder, LoopDecoder):
        assert all(
            asyncio.iscoroutinefunction(getattr(decoder, name)) for name in ("start", "next")
        )


# What the kernels read -----------------------------------------------------------------------------


def test_settings_have_a_flag_for_what_is_asked() -> None:
    def flags(**options: Any) -> int:
        words = sampling_words.settings(SamplingOptions(**options), 100, (5 << 32) | 6)
        assert len(words) == 64
        assert list(memoryview(words).cast("I"))[7:9] == [6, 5]
        return memoryview(words).cast("I")[0]

    assert flags() == 0
    assert flags(repetition_penalty=1.1) == 1
    assert flags(temperature=0.5) == 2
    assert flags(temperature=0.5, top_k=99, top_p=0.5) == 14
    assert flags(temperature=0.5, top_k=100, top_p=1.0) == 2, "top-k of all ids asks for nothing"


def test_seen_has_a_bit_an_id() -> None:
    bits = sampling_words.seen([0, 33, 33, 70], 71)
    assert [i for i in range(96) if bits[i // 8] >> (i % 8) & 1] == [0, 33, 70]
    assert len(bits) == 12


def test_the_reference_chooses_as_the_host_does_and_notes_it() -> None:
    options = SamplingOptions(temperature=1.5, top_k=40, top_p=0.95, repetition_penalty=1.3, seed=5)
    graph = with_next_token(toy._table_graph(300))
    graph = dataclasses.replace(graph, nodes=graph.nodes[-1:], outputs=graph.outputs[-1:])
    graph = dataclasses.replace(graph, inputs=(Port(LOGITS, LOGITS),), constants={})
    row = np.random.default_rng(1).normal(0, 2, 300).astype(np.float32)
    buffers = {
        SETTINGS: np.frombuffer(sampling_words.settings(options, 290, 5), np.uint32),
        SEEN: np.frombuffer(sampling_words.seen([1, 2, 3], 300), np.uint32).copy(),
    }
    symbols = {"S": 1, "L": 1, "input_pos": 6}
    out = reference.run(graph, {}, buffers, {LOGITS: row.reshape(1, 1, 300)}, symbols)
    [[token]] = out[DRAWN].tolist()
    assert token == Sampler(options, 290, 5).sample(row, 7, [1, 2, 3])
    assert buffers[SEEN].tobytes() == sampling_words.seen([1, 2, 3, token], 300)
    row[:] = np.nan
    out = reference.run(graph, {}, buffers, {LOGITS: row.reshape(1, 1, 300)}, symbols)
    assert out[DRAWN].tolist() == [[-1]]


# What a step computes ------------------------------------------------------------------------------


def plan_of_a_model(caps: Caps | None = None) -> tuple[Plan, list[str]]:
    graph = with_next_token(toy._table_graph(300))
    options = dataclasses.asdict(SessionOptions())
    plan = make_plan(graph, caps or Caps(), options, {"S": (1, 1), "L": (1, 1)}, SlotPool())
    return plan, [port.name for port in graph.outputs]


def served(plan: Plan, wanted: int) -> list[str]:
    return [
        d.key.kernel
        for d, bits in zip(plan.dispatches, plan.serves, strict=True)
        if bits & (wanted | ALWAYS)
    ]


def test_a_step_computes_what_its_outputs_need() -> None:
    plan, names = plan_of_a_model()
    assert names == [LOGITS, *CHOICES]
    by_name = {name: served(plan, output_bit(i)) for i, name in enumerate(names)}
    assert served(plan, 0) == [], "this model keeps nothing between steps"
    assert [k for k in by_name[LOGITS] if k.startswith("sample")] == []
    assert by_name[NEXT] == [*by_name[LOGITS], "sample_scan", "sample_draw"]
    assert by_name[DRAWN][len(by_name[LOGITS]) :] == [
        "sample_scan", *["sample_bins"] * 6, "sample_sums", "sample_draw",
    ]  # fmt: skip
    assert served(plan, (1 << 31) - 1) == [d.key.kernel for d in plan.dispatches]


def dispatch(node: str, reads: str, writes: str) -> Dispatch:
    bindings = (*map(Binding, reads.split()), Binding(writes, "read_write"))
    return Dispatch(key("k"), bindings, (1, 1, 1), node=node)


def test_what_keeps_its_content_is_always_written() -> None:
    steps = [
        dispatch("embed", "ids", "x"),
        dispatch("keep", "x", "cache"),
        dispatch("attend", "x cache", "y"),
        dispatch("head", "view", "logits"),
        dispatch("pick", "logits", "next"),
        dispatch("note", "next", "seen"),
        dispatch("dead", "x", "unused"),
    ]
    bits = reach(steps, {"view": "y"}, ["logits", "next"], {"cache", "seen"}, {"note"})
    both = output_bit(0) | output_bit(1)
    assert bits == (both | ALWAYS, ALWAYS, both, both, output_bit(1), 0, 0)
    late = reach(steps, {"view": "y"}, ["logits", "next"], {"cache", "seen"})
    assert late[5] == ALWAYS, "the control: without `private` the note is always made"
    assert late[0] == late[3] == both | ALWAYS
    assert late[4] == output_bit(1) | ALWAYS


def test_outputs_past_the_last_bit_share_it() -> None:
    assert output_bit(LAST_OUTPUT) == output_bit(400) < ALWAYS < 2**31


def test_the_graph_that_chooses_is_a_legal_one() -> None:
    graph = with_next_token(toy._table_graph(300))
    for node in graph.nodes[-2:]:
        assert registry[node.op].check(graph, node) is None
        assert registry[node.op].shape(graph, node) == ((1, 1),)
        assert node.mutates == (SEEN,)
    assert with_next_token(graph) is graph
    bad = dataclasses.replace(graph.values[LOGITS], dtype="f16")
    broken = dataclasses.replace(graph, values={**graph.values, LOGITS: bad})
    assert "expected f32" in str(registry["sample"].check(broken, graph.nodes[-1]))


@pytest.mark.parametrize("description", ["SwiftShader", "a GPU"])
@pytest.mark.parametrize("width", [1, 2, 1025, 49152, 151936, 300000])
def test_a_row_has_no_more_parts_than_the_draw_has_threads(width: int, description: str) -> None:
    graph = with_next_token(toy._table_graph(width))
    graph = dataclasses.replace(graph, nodes=graph.nodes[-2:])
    options = dataclasses.asdict(SessionOptions())
    caps = Caps(description=description)
    plan = make_plan(graph, caps, options, {"S": (1, 1), "L": (1, 1)}, SlotPool())
    for one in plan.dispatches:
        params, axes = {p.name: p.value for p in one.params}, dict(one.key.axes)
        span, threads = params["span"], int(axes["threads"])
        assert isinstance(span, int)
        if "parts" in params:
            assert isinstance(params["parts"], int)
            assert params["parts"] >= 1
            assert params["parts"] * span >= width > (params["parts"] - 1) * span
            if one.key.kernel == "sample_draw":
                assert params["parts"] <= threads
        if axes["few"] and one.key.kernel != "sample_draw":
            assert span % (4 * threads) == 0, "a turn would pass the end of its part"
