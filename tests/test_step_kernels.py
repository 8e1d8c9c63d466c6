"""The kernels of SmolLM2's steps, by name and in order: of a decode step, a short turn, a prompt.

Input:  the exported graph, planned in CPython for a software adapter and for a GPU. A kernel that
comes, goes or moves is a change of these rows; test_smollm2 holds a GPU's own profile to its plan.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

import pytest

from runtime_py.memory import SlotPool
from runtime_py.next_token import with_next_token
from runtime_py.options import SessionOptions
from runtime_py.plan import make_plan
from runtime_py.schema import Graph
from runtime_py.symbols import Interval
from tests import real_model
from tests.lowering import DEVICES

pytestmark = pytest.mark.model

LAYERS = 30
STEPS: Mapping[str, Mapping[str, Interval]] = {
    "decode": {"S": (1, 1), "L": (1, 1)},
    "turn": {"S": (2, 16), "L": (1, 1)},
    "prompt": {"S": (17, 1024), "L": (1, 1)},
}
# The route that cuts the context into pieces which run side by side.
SPLIT = {
    "gpu": ("attention_decode", "attention_combine"),
    "software": ("attention_split", "attention_combine"),
}
# A layer's kernels in order. For one token, norm and product are one kernel: qkv, attention, output,
# gate and up, down; on a GPU attention also rotates and fills the caches. A short turn has both
# routes of attention, and a grid of 0 for the one that its number of tokens does not take.
LAYER: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("gpu", "decode"): (
        *("linear_gemv", *SPLIT["gpu"], "linear_gemv", "linear_gemv", "linear_gemv"),
    ),
    ("gpu", "turn"): (
        *("linear_gemv", "rope_qkv_update", *SPLIT["gpu"], "attention_tiled"),
        *("linear_gemv", "linear_gemv", "linear_gemv"),
    ),
    ("gpu", "prompt"): (
        *("rms_norm", "linear_gemm", "rope_qkv_update", "attention_tiled"),
        *("linear_gemm", "rms_norm", "linear_gemm", "linear_gemm"),
    ),
    ("software", "decode"): (
        *("linear_quad_gemv", "rope_qkv_update", *SPLIT["software"]),
        *("linear_quad_gemv", "linear_quad_gemv", "linear_quad_gemv"),
    ),
    ("software", "turn"): (
        *(
            "rms_norm",
            "linear_quad_gemm",
            "rope_qkv_update",
            *SPLIT["software"],
            "attention_stream",
        ),
        *("linear_quad_gemm", "rms_norm", "linear_quad_gemm", "linear_quad_gemm"),
    ),
    ("software", "prompt"): (
        *("rms_norm", "linear_quad_gemm", "rope_qkv_update", "attention_stream"),
        *("linear_quad_gemm", "rms_norm", "linear_quad_gemm", "linear_quad_gemm"),
    ),
}
# Before the layers, and behind them: the last token's row, its norm and the head in one.
EMBED = ("embedding",)
HEAD = {
    "gpu": ("copy_strided", "linear_gemv"),
    "software": ("copy_strided", "linear_quad_gemv"),
}
# How the kernels that choose the next token are called.
CHOOSERS = ("sample_",)


@functools.cache
def graph() -> Graph:
    text = (real_model.bundle() / "graph.json").read_text(encoding="utf-8")
    return Graph.from_json(json.loads(text))


def kernels(device: str, step: str, *, choosing: bool = False) -> list[str]:
    """Return the kernels of one step in order; `choosing` adds those that pick the next token."""
    options = asdict(SessionOptions())
    given = with_next_token(graph()) if choosing else graph()
    plan = make_plan(given, DEVICES[device], options, STEPS[step], SlotPool())
    return [dispatch.key.kernel for dispatch in plan.dispatches]


def expected(device: str, step: str) -> list[str]:
    """Return the rows above as one list."""
    return [*EMBED, *LAYER[device, step] * LAYERS, *HEAD[device]]


@pytest.mark.parametrize(("device", "step"), LAYER)
def test_the_kernels_of_a_step(device: str, step: str) -> None:
    assert kernels(device, step) == expected(device, step)


@pytest.mark.parametrize(("device", "step"), LAYER)
def test_only_choosing_the_next_token_comes_behind(device: str, step: str) -> None:
    found, plain = kernels(device, step, choosing=True), expected(device, step)
    assert found[: len(plain)] == plain
    assert len(found) > len(plain)
    assert [name for name in found[len(plain) :] if not name.startswith(CHOOSERS)] == []


@pytest.mark.parametrize("device", DEVICES)
def test_one_token_takes_the_split_context_route_and_a_prompt_does_not(device: str) -> None:
    assert set(SPLIT[device]) <= set(kernels(device, "decode"))
    assert not set(SPLIT[device]) & set(kernels(device, "prompt"))


@pytest.mark.parametrize(
    ("device", "rotation", "total"),
    [("gpu", (), 6 * LAYERS + 3), ("software", ("rope_qkv_update",), 7 * LAYERS + 3)],
)
def test_counts_of_a_decode_step(device: str, rotation: tuple[str, ...], total: int) -> None:
    """Six dispatches a layer on a GPU, seven elsewhere, without the choice of the token."""
    counts = Counter(kernels(device, "decode"))
    assert counts.total() == total
    assert counts == {
        HEAD[device][1]: 4 * LAYERS + 1,
        **dict.fromkeys((*rotation, *SPLIT[device]), LAYERS),
        **dict.fromkeys(("embedding", "copy_strided"), 1),
    }
