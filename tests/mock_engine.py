"""An engine over a mock model that says what a test wants, and what tests do with one.

Input:  a reply, a prompt. Output: an `Engine`; the pieces of its stream.
Way of the data: read by the tests of the engine; no browser, no weights.

    pieces = run(collect(make("hello"), max_tokens=3))
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from runtime_py.engine import Engine
from runtime_py.generation import Piece
from tests.mock_model import MockModel, script
from tests.text_backend import byte_tokenizer

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
