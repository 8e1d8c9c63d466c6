"""What a decode step costs on the host: calls from Python into JS, dispatches, and things created.

The numbers come from web/host/counting.js: every import through which Pyodide's wasm reaches JS,
every `create...` of a GPU device, every Python object that JS was given. A figure per token is the
difference between two generations of different length, so that what a request costs once drops out.
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from exporter.headless import Model, open_model
from tests import real_model

MAX_CALLS = 2  # of ours a token, at one token a group; more tokens share a group's
MAX_OTHERS = 4  # the event loop's timers, and the piece that whoever asked is told
MAX_DISPATCHES_PER_LAYER = 14
FEW, MANY = 4, 52
ENCODER = "createCommandEncoder"  # a group records one: WebGPU has no way to use it again
STEP_CALLS = {"assign", "assign_to", "put", "submit", "advance", "run", "read", "output"}
SAMPLED = {"temperature": 0.7, "top_k": 1, "top_p": 0.9, "seed": 3}  # draws, always the greatest


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("toy", marks=pytest.mark.gpu),
        pytest.param("smollm2", marks=[pytest.mark.gpu, pytest.mark.model]),
    ],
)
def model(request: pytest.FixtureRequest, toys: pathlib.Path) -> Iterator[Model]:
    """A loaded engine whose reply to `tokens` does not end within `MANY` tokens."""
    folder = toys / "third" if request.param == "toy" else real_model.bundle()
    with open_model(folder) as model:
        yield model


def generate(model: Model, prompt: list[int], tokens: int, **sampling: Any) -> dict[str, Any]:
    """Generate and return the counts so far."""
    answer = model.generate({"prompt": prompt, "options": {"max_tokens": tokens, **sampling}})
    assert len(answer["ids"]) == tokens, answer["text"]
    counts: dict[str, Any] = model.ask("stats")["counts"]
    return counts


def more(kind: str, before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    """Return by how much each count of a kind grew, leaving out those that did not."""
    grown = {name: n - before[kind].get(name, 0) for name, n in after[kind].items()}
    return {name: n for name, n in grown.items() if n}


def per_token(kind: str, counts: list[dict[str, Any]]) -> dict[str, float]:
    """Return a kind's counts per token from three generations of FEW, FEW and MANY tokens."""
    few, many = more(kind, *counts[:2]), more(kind, *counts[1:])
    tokens = MANY - FEW
    slopes = {name: (many.get(name, 0) - few.get(name, 0)) / tokens for name in {*few, *many}}
    return {name: slope for name, slope in sorted(slopes.items()) if slope}


def own(calls: Mapping[str, float]) -> float:
    """Return how many of the calls a step makes, beside the event loop and who listens."""
    return sum(n for name, n in calls.items() if name in STEP_CALLS)


@pytest.fixture(scope="module")
def counts(model: Model) -> list[dict[str, Any]]:
    """The counts after FEW, FEW and MANY greedy tokens, in an engine that has warmed up."""
    return [generate(model, [76], tokens) for tokens in (FEW, FEW, MANY)]


def test_a_token_takes_two_calls_at_most(counts: list[dict[str, Any]]) -> None:
    calls, reads = per_token("calls", counts), per_token("reads", counts)
    print(f"calls a token: {calls}, attributes read: {reads}")
    assert own(calls) <= MAX_CALLS
    assert sum(calls.values()) + sum(reads.values()) - own(calls) <= MAX_OTHERS
    assert calls["emit"] == 1, "a token is not told as it comes"


def test_the_runtime_counts_its_own_calls_right(model: Model, counts: list[dict[str, Any]]) -> None:
    """`js_calls` of the report: what steps call, without the event loop and who listens."""
    before = model.ask("stats")
    answer = model.generate({"prompt": [76], "options": {"max_tokens": MANY}})
    after = model.ask("stats")
    counted = more("calls", before["counts"], after["counts"])
    print(f"calls of {len(answer['ids'])} tokens: {counted}")
    assert after["js_calls"] - before["js_calls"] == pytest.approx(own(counted), abs=3)


def test_a_sampled_token_costs_what_a_greedy_one_does(
    model: Model, counts: list[dict[str, Any]]
) -> None:
    runs = [generate(model, [76], tokens, **SAMPLED) for tokens in (FEW, FEW, MANY)]
    greedy, sampled = (own(per_token("calls", every)) for every in (counts, runs))
    assert sampled == pytest.approx(greedy, abs=0.5)
    many, after = runs[1:]
    assert after["live"] == many["live"]
    assert set(more("created", many, after)) == {ENCODER}


def test_a_layer_is_at_most_fourteen_dispatches(model: Model) -> None:
    report = model.ask("report")
    [decode] = [p for p in report["programs"] if p["ranges"]["S"] == p["ranges"]["L"] == [1, 1]]
    layers = report["model"].get("layers", 1)
    dispatches = len(decode["dispatches"])
    print(f"{dispatches} dispatches a token, {layers} layers")
    assert dispatches <= MAX_DISPATCHES_PER_LAYER * layers


def test_decoding_creates_nothing(counts: list[dict[str, Any]]) -> None:
    created = more("created", *counts[1:])
    assert set(created) == {ENCODER}
    assert created[ENCODER] <= MANY + 1


def test_decoding_leaves_no_proxy_behind(counts: list[dict[str, Any]]) -> None:
    assert counts[2]["live"] == counts[1]["live"]
    made = [after["proxies"] - before["proxies"] for before, after in itertools.pairwise(counts)]
    assert made[0] == made[1], "proxies are made per token, not per request"


def test_a_prompt_creates_nothing(model: Model) -> None:
    before = generate(model, [65, 66, 67], 1)
    after = generate(model, [68, 69, 70], 1)
    assert set(more("created", before, after)) == {ENCODER}
    assert after["live"] == before["live"]


@pytest.mark.gpu
def test_the_counters_see_what_is_made(toys: pathlib.Path) -> None:
    """The control: loading creates all kinds of things; Python driving a pass calls JS often."""
    with open_model(toys / "third", options={"replay": "python"}) as model:
        first = model.ask("stats")["counts"]
        kinds = ("createBuffer", "createBindGroup", "createShaderModule")
        assert all(first["created"][kind] > 0 for kind in (*kinds, "createComputePipelineAsync"))
        assert first["proxies"] > 0
        counts = [generate(model, [76], tokens) for tokens in (FEW, FEW, MANY)]
        calls = per_token("calls", counts)
        model.ask("logits", ids=[1, 2, 3])
        grown = more("created", counts[-1], model.ask("stats")["counts"])
    assert calls["dispatchWorkgroups"] >= 3
    assert sum(calls.values()) > MAX_CALLS + MAX_OTHERS
    assert grown["createBindGroup"] >= 3
