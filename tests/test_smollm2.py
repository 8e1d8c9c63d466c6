"""SmolLM2-135M in a browser against eager PyTorch on the same GGUF file: the whole way of the data.

In the normal run every prompt of tests/prompts.py goes through the GPU together with eager's greedy
continuation, which compares 64 choices and 64 rows of logits in one pass; two prompts are really
generated. `make test-heavy` generates for all of them.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from exporter import cli, ops, perplexity
from exporter.commands import main
from exporter.headless import Model, open_model
from runtime_py.errors import IntegrityError
from tests import damage, real_model
from tests.prompts import LONG_TOKENS, PROMPTS
from tests.real_model import COUNT, Greedy
from tests.tolerances import (
    MARGIN,
    MODEL_CUTS,
    MODEL_LOGITS,
    PERPLEXITY,
    PERPLEXITY_F16_SUMS,
    accept,
    require,
    worst,
)

pytestmark = [pytest.mark.gpu, pytest.mark.model]

Floats = npt.NDArray[np.float32]
GENERATED = ("chat", "python")
LATER = [pytest.param(name, marks=pytest.mark.heavy) for name in PROMPTS if name not in GENERATED]
UNEVEN = (7, 1, 13, 2, 14)


@pytest.fixture(scope="module", autouse=True)
def dense() -> Iterator[None]:
    """Dequantise each weight of the eager model once, not once a prompt."""
    with ops.cached_weights():
        yield


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    """The bundle, loaded once."""
    with open_model(real_model.bundle()) as model:
        yield model


def last_rows(model: Model, ids: list[int], rows: int) -> Floats:
    """Return the last `rows` rows of logits of one step over all of `ids`, from position 0."""
    params = {"symbols": {"S": len(ids), "input_pos": 0, "L": rows}, "outputs": ["logits"]}
    handle = {"handle": model.info["handle"]}
    inputs = {"tokens": np.array([ids], np.int32)}
    _, outputs = model.host.call("run", {**handle, **params}, inputs)
    logits: Floats = outputs["logits"][0]
    return logits


def wrong_choices(logits: npt.ArrayLike, want: Greedy) -> list[int]:
    """Return the positions where another token leads although eager was sure of its own."""
    best = np.asarray(logits).argmax(-1).tolist()
    sure = [i for i, margin in enumerate(want.margins) if margin > MARGIN]
    return [i for i in sure if best[i] != want.ids[i]]


# -- the tokens and logits of a reply


def test_the_prompts_are_what_they_are_for() -> None:
    lengths = {name: len(real_model.encode(prompt)) for name, prompt in PROMPTS.items()}
    assert len(lengths) >= 12
    assert lengths["one-token"] == 1
    assert lengths["long"] == LONG_TOKENS


@pytest.mark.parametrize("name", PROMPTS)
def test_one_pass_over_eagers_reply_gives_eagers_tokens_and_logits(name: str, model: Model) -> None:
    want = real_model.reference(name)
    logits = last_rows(model, want.fed, COUNT)
    sure = sum(margin > MARGIN for margin in want.margins)
    print(f"{name}: {sure} of {COUNT} sure, worst {worst(logits, want.logits):.2g}")
    assert sure >= COUNT - 4, "eager's choices are too close to test anything"
    assert wrong_choices(logits, want) == []
    require(logits, want.logits, MODEL_LOGITS, name)


def test_the_comparison_can_fail(model: Model) -> None:
    """The control: one token of the prompt is another."""
    want = real_model.reference("capital")
    logits = last_rows(model, [want.fed[0] + 1, *want.fed[1:]], COUNT)
    assert wrong_choices(logits, want)
    assert not accept(logits, want.logits, *MODEL_LOGITS)


@pytest.mark.parametrize("name", [*GENERATED, *LATER])
def test_serve_run_generates_eagers_tokens(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    want, prompt = real_model.reference(name), PROMPTS[name]
    words = ["--chat" if prompt.chat else "--prompt", prompt.text]
    if prompt.tokens:
        words = ["--ids", ",".join(map(str, want.prompt_ids))]
    folder = str(real_model.bundle())
    assert main(["run", folder, *words, "--max-tokens", str(COUNT), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["prompt_ids"] == want.prompt_ids
    expected, sure = want.expected(), want.sure_until(MARGIN)
    assert answer["ids"][:sure] == expected[:sure]
    if sure == COUNT:
        assert answer["finish_reason"] == ("length" if len(expected) == COUNT else "stop")
    ended = answer["finish_reason"] == "stop"
    shown = answer["ids"][:-1] if ended else answer["ids"]
    assert answer["text"] == real_model.tokenizer().decode(shown, skip_special_tokens=False)


# -- a prompt in pieces


def pieces(model: Model, ids: list[int], sizes: tuple[int, ...]) -> Floats:
    """Return the logits after every id, which are fed in pieces."""
    rows, at = [], 0
    for size in sizes:
        asked: dict[str, Any] = {"ids": ids[at : at + size], "input_pos": at}
        handle = {"handle": model.info["handle"]}
        rows.append(model.host.call("logits", {**handle, **asked})[1]["logits"])
        at += size
    assert at == len(ids)
    return np.concatenate(rows)


def test_pieces_of_a_prompt_give_the_logits_of_the_whole(model: Model) -> None:
    ids = real_model.encode(PROMPTS["chat"])
    whole = pieces(model, ids, (len(ids),))
    for sizes in (UNEVEN, (1,) * len(ids)):
        parts = pieces(model, ids, sizes)
        print(f"{len(sizes)} pieces: worst {worst(parts, whole):.2g}")
        require(parts, whole, MODEL_CUTS, f"{len(sizes)} pieces")
    want = real_model.eager().logits(ids)
    require(whole, want, MODEL_LOGITS, "eager")


def test_a_piece_at_a_wrong_position_is_seen(model: Model) -> None:
    """The control: the cache must matter, and the position too."""
    ids = real_model.encode(PROMPTS["chat"])
    whole = pieces(model, ids, (len(ids),))
    pieces(model, ids[:-1], (len(ids) - 1,))
    for input_pos in (len(ids) - 2, 0):
        asked = {"handle": model.info["handle"], "ids": ids[-1:], "input_pos": input_pos}
        row = model.host.call("logits", asked)[1]["logits"]
        assert not accept(row, whole[-1:], *MODEL_CUTS)


# -- perplexity and profile

PERPLEXITY_TOKENS = 192


@pytest.fixture(scope="module")
def pieces_of_prose() -> list[list[int]]:
    """The windows of a short run of `python -m exporter perplexity`."""
    text = perplexity.default_text()
    ids, bos = perplexity.text_ids(real_model.bundle(), text, PERPLEXITY_TOKENS)
    return perplexity.windows(ids, bos, perplexity.WIDTH)


@pytest.fixture(scope="module")
def runtime_nats(model: Model, pieces_of_prose: list[list[int]]) -> npt.NDArray[np.float64]:
    """What the browser says about every token."""
    source = functools.partial(perplexity.host_rows, model, step=perplexity.STEP)
    return perplexity.score(source, pieces_of_prose)


def eager_nats(pieces: list[list[int]]) -> npt.NDArray[np.float64]:
    return perplexity.score(lambda ids: [real_model.eager().logits(ids).numpy()], pieces)


def difference(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    return float(abs(np.exp(a.mean()) - np.exp(b.mean())))


def test_perplexity_is_eagers(
    runtime_nats: npt.NDArray[np.float64], pieces_of_prose: list[list[int]]
) -> None:
    wanted = eager_nats(pieces_of_prose)
    print(f"perplexity {np.exp(runtime_nats.mean()):.4f}, eager {np.exp(wanted.mean()):.4f}")
    assert len(runtime_nats) == len(wanted) == PERPLEXITY_TOKENS
    assert difference(runtime_nats, wanted) <= PERPLEXITY


def test_one_weight_moves_perplexity_past_the_bars(
    runtime_nats: npt.NDArray[np.float64], pieces_of_prose: list[list[int]]
) -> None:
    """The control: the last norm's greatest weight is twice what it was."""
    weight = real_model.eager().norm.weight
    at = int(weight.abs().argmax())
    with torch.no_grad():
        weight[at] *= 2
        spoilt = eager_nats(pieces_of_prose)
        weight[at] /= 2
    assert difference(runtime_nats, spoilt) > PERPLEXITY_F16_SUMS


def test_every_dispatch_of_a_greedy_step_has_a_time(model: Model) -> None:
    [decode] = [p for p in model.ask("report")["programs"] if p["ranges"]["S"] == [1, 1]]
    planned = [d for d in decode["dispatches"] if d["node"] != "sampling.drawn"]
    found = model.ask("profile", ids=[504], input_pos=5)
    ran = [(d["node"], d["kernel"]) for d in found["dispatches"]]
    assert ran == [(d["node"], d["kernel"]) for d in planned]
    assert min(d["time_ms"] for d in found["dispatches"]) > 0
    assert sum(k["dispatches"] for k in found["kernels"]) == len(ran)
    assert sum(k["share"] for k in found["kernels"]) == pytest.approx(1)


# -- verify


def test_verify_passes_the_bundle(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(real_model.bundle())]) == 0
    told = capsys.readouterr().out
    print(told)
    assert told.count(" ok\n") == 5
    assert told.endswith("all golden steps pass\n")


@pytest.fixture
def perturbed(tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of the bundle in which one of the last norm's weights is half of what it was."""
    folder = damage.copy_bundle(real_model.bundle(), tmp_path / "m")
    path, at = damage.constant_at(folder, "norm.weight")
    data = np.memmap(path, "<f4", "r+", at, (1,))
    data *= 0.5
    data.flush()
    return folder


def test_verify_names_an_altered_shard_and_finds_a_perturbed_weight(
    perturbed: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An altered file is found by its hash; with the hash put right, by the numbers."""
    shard = damage.constant_at(perturbed, "norm.weight")[0].name
    manifest = json.loads((perturbed / "manifest.json").read_text())
    [stated] = [file["sha256"] for file in manifest["files"] if file["path"] == shard]
    assert cli.main(["verify", str(perturbed)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert f"{shard} has sha256 " in told
    assert stated in told
    with pytest.raises(IntegrityError, match=shard), open_model(perturbed):
        pass
    damage.state_hashes(perturbed)
    assert cli.main(["verify", str(perturbed)]) == 1
    assert capsys.readouterr().out.count("MISS") == 5
