"""Perplexity: its windows and its arithmetic in plain CPython; the real model in real hosts by
`make test-heavy` (a short run is in test_smollm2).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from exporter import cli, perplexity, perplexity_reference
from exporter.perplexity import Rows, score, windows
from runtime_py.errors import InputError, NonFiniteError, OptionError
from tests import real_model
from tests.tolerances import PERPLEXITY, PERPLEXITY_F16, PERPLEXITY_F16_SUMS

HEAVY_TOKENS = 2048
# Options of a session, the host that has what they need, the bar.
OPTIONS: dict[str, tuple[dict[str, Any], str, float]] = {
    "default": ({}, "chromium", PERPLEXITY),
    "f16 cache": ({"kv_dtype": "f16"}, "node", PERPLEXITY),
    "f16 multiply": ({"compute": "f16"}, "node", PERPLEXITY_F16),
    "f16 sums": ({"compute": "f16", "f16_accumulate_gemm": True}, "node", PERPLEXITY_F16_SUMS),
}


# -- windows


@pytest.mark.parametrize("bos", [None, 99])
@pytest.mark.parametrize("width", [2, 3, 7, 50])
@pytest.mark.parametrize("count", [2, 3, 13, 14, 49])
def test_every_token_is_predicted_once(bos: int | None, width: int, count: int) -> None:
    pieces = windows(list(range(count)), bos, width)
    predicted = [i for piece in pieces for i in piece[1:]]
    assert predicted == list(range(0 if bos is not None else 1, count))
    assert all(2 <= len(piece) <= width for piece in pieces)
    if bos is not None:
        assert {piece[0] for piece in pieces} == {bos}


def test_a_window_without_bos_repeats_the_token_before_it() -> None:
    assert windows([10, 11, 12, 13, 14], None, 3) == [[10, 11, 12], [12, 13, 14]]
    assert windows([10, 11, 12], 1, 2) == [[1, 10], [1, 11], [1, 12]]


# -- arithmetic


def rows_of(table: Rows, cut: int) -> Any:
    """Return a model that answers token i with row i of `table`, in blocks of `cut` rows."""

    def rows(ids: Sequence[int]) -> Iterator[Rows]:
        for at in range(0, len(ids), cut):
            yield table[np.asarray(ids[at : at + cut])]

    return rows


def perplexity_of(nats: Any) -> float:
    return math.exp(float(np.mean(nats)))


def test_equal_logits_give_the_vocabulary_whatever_their_size() -> None:
    for level in (0.0, 30000.0):
        table = np.full((7, 7), level, np.float32)
        assert perplexity_of(score(rows_of(table, 3), [[0, 1, 2, 3, 4]])) == pytest.approx(7)


@pytest.mark.parametrize("cut", [1, 2, 64, 200])
def test_probabilities_come_back_whatever_the_blocks(cut: int) -> None:
    rng = np.random.default_rng(3)
    chances = rng.dirichlet(np.ones(11), 11)
    ids = rng.integers(0, 11, 150).tolist()
    found = score(rows_of(np.log(chances).astype(np.float32), cut), windows(ids, None, 140))
    wanted = [-math.log(chances[a][b]) for a, b in itertools.pairwise(ids)]
    assert found == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_an_error(bad: float) -> None:
    table = np.zeros((3, 3), np.float32)
    table[1, 1] = bad
    with pytest.raises(NonFiniteError, match="NaN or infinity"):
        score(rows_of(table, 2), [[0, 1, 2]])


# -- text and reference


def test_the_default_text_is_english_in_a_fixed_order() -> None:
    text = perplexity.default_text()
    assert text.startswith('The "assert" statement\n')
    assert text == perplexity.default_text()
    assert len(text) > 100_000


@pytest.mark.model
def test_a_text_that_is_too_short_is_told() -> None:
    with pytest.raises(InputError, match="the text has 1 tokens, 33 are needed"):
        perplexity.text_ids(real_model.bundle(), "a", 32)


@pytest.mark.heavy
@pytest.mark.model
def test_the_interpreter_of_the_graph_agrees_with_eager() -> None:
    """What judges a bundle whose checkpoint is gone."""
    ids = [504, 3575, 282, 4649, 314]
    name, rows = perplexity_reference.rows_of(real_model.bundle(), "numpy", 512)
    assert name == "numpy float32 on the bundle's graph"
    assert rows is not None
    wanted = score(lambda ids: [real_model.eager().logits(ids).numpy()], [ids])
    assert score(rows, [ids]) == pytest.approx(wanted, abs=1e-3)


@pytest.mark.model
def test_another_model_is_refused_as_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        name = "Other"

        def model_card(self) -> dict[str, Any]:
            return {"name": "Other"}

    monkeypatch.setattr(perplexity_reference, "_load", lambda path, width: Other())
    with pytest.raises(OptionError, match="the bundle holds SmolLM2-135M-Instruct"):
        perplexity_reference.rows_of(real_model.bundle(), "other.gguf", 512)


def test_no_reference_can_be_asked_for() -> None:
    assert perplexity_reference.rows_of(real_model.BUNDLE, "none", 512) == ("none", None)


def test_user_errors_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["perplexity", "/no/such", "--text", "/no/text"]) == 2
    assert "/no/text does not exist" in capsys.readouterr().err
    assert cli.main(["perplexity", "/no/such"]) == 2
    assert "is not a bundle" in capsys.readouterr().err


# -- the real model


@pytest.mark.heavy
@pytest.mark.gpu
@pytest.mark.model
@pytest.mark.parametrize("name", OPTIONS)
def test_the_real_model_is_within_the_bar(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    options, host, bar = OPTIONS[name]
    words = ["--options", json.dumps(options), "--host", host, "--tokens", str(HEAVY_TOKENS)]
    assert cli.main(["perplexity", str(real_model.bundle()), *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    with capsys.disabled():
        print(f"\n{name}: {found['perplexity']:.4f}, eager {found['reference_perplexity']:.4f}")
    assert found["reference"].startswith("eager PyTorch float32")
    assert found["tokens"] == HEAVY_TOKENS
    assert options.items() <= found["options"].items()
    assert abs(found["difference"]) <= bar
