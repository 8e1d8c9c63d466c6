"""An engine's logits, and how one is put together from a bundle."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from runtime_py import engine as engine_module
from runtime_py.bundle_text import BundleText
from runtime_py.engine import Engine
from runtime_py.errors import (
    BadBundleError,
    ContextFullError,
    InputError,
)
from runtime_py.model import SessionModel
from runtime_py.ops.base import Caps
from runtime_py.options import SessionOptions
from runtime_py.schema import Graph, Manifest, Port, Symbol, Value
from runtime_py.tensor import Tensor
from tests.mock_engine import CHATML, PROMPT, collect, ids_of, make, mock, run, text_of
from tests.mock_model import MockModel, script
from tests.text_backend import PackageBackend, bpe_data


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


@dataclass
class FakeDevice:
    caps: Caps = field(default_factory=Caps)
    waited_ms: float = 0.0


class FakeSession:
    """What `_assemble` and `SessionModel` ask of a session, with a mock model inside."""

    def __init__(self, text: dict[str, Any], files: dict[str, str], **graph: Any) -> None:
        self.model = MockModel(script(PROMPT, [104, 105], 258))
        self.graph = language_graph(**graph)
        self.bundle = self
        self.manifest = Manifest({}, {}, text, {"eos_token_id": [256], "temperature": 0.5})
        self.files = files
        self.closed = 0
        self.options = SessionOptions()
        self.device = FakeDevice()

    async def read_text(self, path: str) -> str:
        return self.files[path]

    async def run(
        self, inputs: dict[str, Any], outputs: list[str], **symbols: int
    ) -> dict[str, Tensor]:
        assert set(outputs) <= {"logits"}
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

    async def backend_of(path: str) -> PackageBackend:
        return PackageBackend(json.loads(await session.read_text(path)))

    read = run(BundleText.read(session, backend_of))
    return run(engine_module._assemble(session, read)), session


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


@pytest.mark.parametrize(
    ("description", "tuning", "chunk"),
    [("SwiftShader", "auto", 128), ("a GPU", "auto", 512), ("SwiftShader", "gpu", 512)],
)
def test_a_cpu_adapter_takes_prompts_in_short_chunks(
    description: str, tuning: str, chunk: int
) -> None:
    """A step there takes seconds, and `abort` is heard between steps."""
    session = FakeSession({}, {})
    session.device = FakeDevice(Caps(description=description))
    session.options = SessionOptions(tuning=tuning)
    others = [symbol for symbol in session.graph.symbols if symbol.name != "S"]
    session.graph = replace(session.graph, symbols=(Symbol("S", 1, 512), *others))
    assert SessionModel(session).max_prefill == chunk
