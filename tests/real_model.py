"""The real model twice: the exported bundle in models/, and eager PyTorch on the same GGUF file.

Input:  a row of tests/prompts.py. Output: its ids, and what eager PyTorch answers: the greedy
continuation of `COUNT` tokens with the logits that chose them.
Way of the data: prompts -> real_model -> tests/test_smollm2.py, tests/test_step_cost.py.

Greedy decoding is found as a fixed point: one pass over prompt + guess gives the best token at
every position; that is the next guess, until nothing changes. A guess that changes nothing is the
greedy continuation, whatever it started from; tests/data/smollm2_greedy.json holds first guesses
that make one pass enough. After a change of prompts write it anew:

    python -m tests.real_model
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers
import torch

from exporter.models import load_checkpoint
from exporter.models.llama import Llama
from exporter.models.smollm2 import find_gguf
from tests.prompts import PROMPTS, Prompt, chat_text

ROOT = pathlib.Path(__file__).parent.parent
BUNDLE = ROOT / "models" / "smollm2"
GUESSES = pathlib.Path(__file__).parent / "data" / "smollm2_greedy.json"
COUNT = 64
MAX_CONTEXT = 1024
END_ID = 2  # <|im_end|>


@dataclass(frozen=True)
class Greedy:
    """Eager's continuation: `logits` [COUNT, V] chose `ids`, by `margins` over the second best."""

    prompt_ids: list[int]
    ids: list[int]
    logits: torch.Tensor
    margins: list[float]

    @property
    def fed(self) -> list[int]:
        """The tokens of one pass whose last `COUNT` rows of logits are `logits`."""
        return [*self.prompt_ids, *self.ids[:-1]]

    def expected(self, count: int = COUNT) -> list[int]:
        """Return what an engine that stops at the end token generates."""
        ids = self.ids[:count]
        return ids[: ids.index(END_ID) + 1] if END_ID in ids else ids

    def sure_until(self, margin: float) -> int:
        """Return how many first tokens were chosen by more than `margin`."""
        return next((i for i, m in enumerate(self.margins) if m <= margin), COUNT)


def bundle() -> pathlib.Path:
    """Return the exported bundle; fails when it is missing."""
    assert (BUNDLE / "manifest.json").is_file(), f"{BUNDLE} is not exported: run `make model`"
    return BUNDLE


@functools.cache
def tokenizer() -> tokenizers.Tokenizer:
    """Return the bundle's tokenizer as the `tokenizers` package reads it."""
    return tokenizers.Tokenizer.from_file(str(bundle() / "tokenizer.json"))


def encode(prompt: Prompt) -> list[int]:
    """Return the ids of a prompt."""
    text = chat_text(prompt.text) if prompt.chat else prompt.text
    ids: list[int] = tokenizer().encode(text, add_special_tokens=False).ids
    return ids[: prompt.tokens] if prompt.tokens else ids


@functools.cache
def eager() -> Llama:
    """Return the float32 model on the GGUF file's own blocks.

    On one thread: beside a browser that uses every core, threads only wait for each other (a step
    took 1 s of CPU time on two threads of a busy 2-core machine, 0.14 s on one).
    """
    torch.set_num_threads(1)
    return load_checkpoint(find_gguf(), max_context=MAX_CONTEXT).model


def greedy(prompt_ids: Sequence[int], guess: Sequence[int]) -> Greedy:
    """Return eager's greedy continuation of a prompt; `guess` only saves time."""
    best = [*guess[:COUNT], *[END_ID] * (COUNT - len(guess))]
    while True:
        tried = best
        tokens = torch.tensor([[*prompt_ids, *tried[:-1]]])
        with torch.no_grad():
            logits = eager()(tokens, 0, COUNT)[0]
        top = logits.topk(2)
        best = top.indices[:, 0].tolist()
        if best == tried:
            margins = (top.values[:, 0] - top.values[:, 1]).tolist()
            return Greedy(list(prompt_ids), best, logits, margins)


def guesses() -> dict[str, list[int]]:
    """Return the first guesses, by prompt."""
    found: dict[str, list[int]] = json.loads(GUESSES.read_text(encoding="utf-8"))
    return found


@functools.cache
def reference(name: str) -> Greedy:
    """Return eager's greedy continuation of prompt `name`."""
    return greedy(encode(PROMPTS[name]), guesses().get(name, []))


def write_guesses() -> None:
    """Decode every prompt token by token and store the ids."""
    rows = []
    for name, prompt in PROMPTS.items():
        rows.append(f'"{name}": {json.dumps(eager().greedy(encode(prompt), COUNT))}')
        GUESSES.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write_guesses()
