"""Replies whose tokens are chosen on the GPU, against the host's sampler: seeds, penalties, ends."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from exporter.headless import Model, open_model
from runtime_py.sampling import Sampler, SamplingOptions
from tests import real_model
from tests.test_sample_gpu import on_draw
from tests.tolerances import SAMPLED_LOGITS

pytestmark = pytest.mark.gpu
PROMPT = [72, 101, 108, 108, 111]
SAMPLINGS: tuple[dict[str, Any], ...] = (
    {},
    {"repetition_penalty": 1.3},
    {"temperature": 1.0, "seed": 7},
    {"temperature": 0.8, "seed": 8, "top_k": 50, "top_p": 0.9, "min_p": 0.01},
    {"temperature": 1.5, "seed": 9, "repetition_penalty": 1.4},
)


@pytest.fixture(scope="module")
def loop(toys: pathlib.Path) -> Iterator[Model]:
    """The toy that never ends, its tokens chosen on the GPU."""
    with open_model(toys / "third") as model:
        yield model


@pytest.fixture(scope="module")
def on_host(toys: pathlib.Path) -> Iterator[Model]:
    """The same, driven call by call, its tokens chosen on the host."""
    with open_model(toys / "third", options={"replay": "python"}) as model:
        yield model


def say(
    model: Model, prompt: Sequence[int] = PROMPT, tokens: int = 32, **options: Any
) -> dict[str, Any]:
    request = {"prompt": list(prompt), "options": {"max_tokens": tokens, **options}}
    return model.generate(request)


@pytest.mark.parametrize("options", SAMPLINGS, ids=str)
def test_the_gpu_says_what_the_host_says(
    loop: Model, on_host: Model, options: dict[str, Any]
) -> None:
    mine, theirs = say(loop, **options), say(on_host, **options)
    assert mine["ids"] == theirs["ids"]
    assert mine["finish_reason"] == theirs["finish_reason"]


def test_case_34_a_and_b(loop: Model) -> None:
    hot: dict[str, Any] = {"temperature": 3.0, "tokens": 12}
    first = say(loop, seed=7, **hot)["ids"]
    assert say(loop, seed=7, **hot)["ids"] == first != []
    say(loop, [1, 2], seed=3, repetition_penalty=1.9, **hot)
    assert say(loop, seed=7, **hot)["ids"] == first
    assert say(loop, **hot)["ids"] != say(loop, **hot)["ids"], "two requests without a seed"


def test_the_penalty_counts_the_tokens_of_the_prompt(loop: Model) -> None:
    """The toy says "L" for ever; a penalty of 3 takes it below the end token."""
    assert say(loop, PROMPT, 4)["text"] == "LLLL"
    assert say(loop, [*PROMPT, 76], 4, repetition_penalty=3.0)["ids"][0] != 76
    assert say(loop, PROMPT, 4, repetition_penalty=3.0)["ids"][0] == 76


def test_a_stop_string_and_the_end_of_the_context(loop: Model) -> None:
    answer = say(loop, stop=["LLLLLLL"])
    assert (answer["text"], answer["finish_reason"]) == ("", "stop")
    context = loop.info["context"]
    answer = say(loop, [65] * (context - 5), 100)
    assert (answer["text"], answer["finish_reason"]) == ("LLLLL", "length")
    assert say(loop, tokens=3)["text"] == "LLL"


def test_stats_tell_the_hosts_part_of_a_token(loop: Model) -> None:
    timings = say(loop)["timings"]
    assert 0 < timings["host_ms_per_token"] <= timings["decode_ms"] / 31
    assert timings["first_token_ms"] >= timings["prefill_ms"] > 0


@pytest.mark.model
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_smollm2_draws_what_the_host_would(smollm2: Model, seed: int) -> None:
    """Every token of a reply, against the host's draw from the logits of one pass over it."""
    options = SamplingOptions(
        temperature=0.8, top_k=50, top_p=0.95, repetition_penalty=1.1, seed=seed
    )
    prompt = real_model.tokenizer().encode("Once upon a time").ids
    names = ("temperature", "top_k", "top_p", "repetition_penalty", "seed")
    ids = say(smollm2, prompt, 32, **{name: getattr(options, name) for name in names})["ids"]
    whole = [*prompt, *ids]
    params = {"handle": smollm2.info["handle"], "ids": whole}
    logits = smollm2.host.call("logits", params, timeout_s=smollm2.timeout_s)[1]["logits"]
    close = []
    for at in range(len(prompt), len(whole)):
        row, seen = np.asarray(logits[at - 1], np.float32), sorted(set(whole[:at]))
        draw = on_draw(options, row, at, len(row), seen)
        want = Sampler(options, len(row), seed).sample(row, at, seen)
        if draw.gap > SAMPLED_LOGITS:
            assert whole[at] == want, (at, draw.gap)
        else:
            close.append((at, whole[at] == want, draw.gap))
    print(f"seed {seed}: {len(ids)} tokens, {len(close)} within rounding of a boundary: {close}")
    assert len(close) <= 3


@pytest.fixture(scope="module")
def smollm2() -> Iterator[Model]:
    with open_model(real_model.bundle()) as model:
        yield model
