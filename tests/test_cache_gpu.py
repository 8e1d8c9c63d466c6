"""Caches are written bit by bit, and rotary positions turn as float64 says: the reference's tables."""

from __future__ import annotations

import functools
import math
import pathlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import exporter
from exporter import Sym, ops
from exporter.models.llama import LlamaConfig, RopeScaling, inverse_frequencies
from runtime_py.errors import InputError, UserError
from tests import gpu, oracles, tolerances
from tests.cases import (
    ROPE_REUSE,
    ROPE_SCALED_POSITIONS,
    ROPES,
    UPDATE_REPLAYS,
    UPDATES,
    FloatArray,
    Rope,
    Update,
    ramp,
)
from tests.tolerances import accept, require

pytestmark = pytest.mark.gpu


# -- update_cache, bit by bit


class Write(nn.Module):
    """Writes a step into a cache inside the graph."""

    cache: Tensor

    def __init__(self, context: int, heads: int, head_dim: int, batch: int = 1) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(batch, context, heads, head_dim))

    def forward(self, value: Tensor, input_pos: int) -> Tensor:
        ops.update_cache(value, self.cache, input_pos)
        return value.sum()


def write_recipe(context: int, heads: int, head_dim: int, tokens: int) -> gpu.Recipe:
    symbols = {
        "S": Sym(1, tokens, at=("value", 1)),
        "input_pos": Sym(0, context - 1, at="input_pos"),
    }
    inputs = {"value": torch.zeros(1, 2, heads, head_dim), "input_pos": 2}
    limits = [(["+", "S", "input_pos"], context)]
    return Write(context, heads, head_dim), inputs, symbols, limits


def write_bundle(context: int, heads: int, head_dim: int, tokens: int) -> pathlib.Path:
    name = f"write-{context}-{heads}-{head_dim}-{tokens}"
    return gpu.bundle(name, lambda: write_recipe(context, heads, head_dim, tokens))


def check_writes(folder: pathlib.Path, cache: FloatArray, steps: list[tuple[int, int]]) -> None:
    """Write `steps` (tokens, position) and compare the whole cache after each."""
    values = [ramp((1, s, *cache.shape[2:]), 13, 6, 16, i) for i, (s, _) in enumerate(steps)]
    runs = [
        gpu.step({"value": value}, state=True, S=s, input_pos=at)
        for value, (s, at) in zip(values, steps, strict=True)
    ]
    answers = exporter.run(folder, runs)
    for value, (s, at), got in zip(values, steps, answers, strict=True):
        cache = np.asarray(oracles.update_cache(value, cache, at), np.float32)
        assert got["state"]["cache"].tobytes() == cache.tobytes(), f"{s} tokens at {at}"


@pytest.mark.parametrize("shape", sorted({(u.s, u.h, u.d, u.c) for u in UPDATES}), ids=str)
def test_update_cache_is_exact(shape: tuple[int, int, int, int]) -> None:
    tokens, heads, head_dim, context = shape
    rows: list[Update] = [u for u in UPDATES if (u.s, u.h, u.d, u.c) == shape]
    empty = np.zeros((1, context, heads, head_dim), np.float32)
    steps = [(u.s, u.pos) for u in rows]
    check_writes(write_bundle(context, heads, head_dim, tokens + 1), empty, steps)


@pytest.mark.parametrize("row", UPDATE_REPLAYS, ids=lambda row: f"H{row[0]}-D{row[1]}")
def test_update_cache_replay_fills_the_cache_exactly(row: tuple[int, int, tuple[int, ...]]) -> None:
    heads, head_dim, counts = row
    context = sum(counts)
    positions = [sum(counts[:i]) for i in range(len(counts))]
    empty = np.zeros((1, context, heads, head_dim), np.float32)
    folder = write_bundle(context, heads, head_dim, max(counts))
    check_writes(folder, empty, list(zip(counts, positions, strict=True)))


def test_update_cache_refuses_a_write_past_the_end() -> None:
    value = np.ones((1, 3, 2, 4), np.float32)
    with gpu.opened(write_bundle(8, 2, 4, 3)) as session:
        with pytest.raises(InputError, match="exceeds 8"):
            session.run({"value": value}, S=3, input_pos=6)
        assert not session.state()["cache"].any()
        session.run({"value": value}, S=3, input_pos=5)
        assert session.state()["cache"][0, 5:].tolist() == value[0].tolist()


@pytest.mark.parametrize(
    ("shape", "what"),
    [
        ((2, 2, 2, 4), "batch"),
        ((1, 2, 3, 4), "heads"),
        ((1, 2, 2, 8), "width"),
        ((1, 9, 2, 4), "S"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_update_cache_refuses_other_shapes_at_export(shape: tuple[int, ...], what: str) -> None:
    inputs = {"value": torch.zeros(shape), "input_pos": 0}
    with pytest.raises(UserError):
        exporter.export(Write(8, 2, 4), inputs, f"/nowhere/{what}", symbols={})


# -- rope


class Turn(nn.Module):
    """Rotary positions of queries and keys."""

    inv_freq: Tensor

    def __init__(self, inv_freq: Tensor, interleaved: bool) -> None:
        super().__init__()
        self.interleaved = interleaved
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, q: Tensor, k: Tensor, input_pos: int) -> tuple[Tensor, Tensor]:
        turned = [ops.rope(x, self.inv_freq, input_pos, self.interleaved) for x in (q, k)]
        return turned[0], turned[1]


def turn_bundle(row: Rope, inv_freq: Tensor, name: str = "plain") -> pathlib.Path:
    q, k = torch.zeros(1, 2, row.hq, row.d), torch.zeros(1, 2, row.hkv, row.d)
    symbols = {
        "S": Sym(1, 16, at=[("q", 1), ("k", 1)]),
        "input_pos": Sym(0, 9000, at="input_pos"),
    }
    inputs = {"q": q, "k": k, "input_pos": 3}
    key = f"rope-{name}-{row.hq}-{row.hkv}-{row.d}-{row.interleaved}"
    return gpu.bundle(key, lambda: (Turn(inv_freq, row.interleaved), inputs, symbols, ()))


def check_turns(
    row: Rope, steps: list[tuple[int, int]], inv_freq: Tensor, exact: Any, name: str = "plain"
) -> None:
    """Run (S, input_pos) of `steps` on one graph; the oracle turns by the frequencies `exact`."""
    inputs = [
        {"q": ramp((1, s, row.hq, row.d), 17, 8, 16), "k": ramp((1, s, row.hkv, row.d), 13, 6, 16)}
        for s, _ in steps
    ]
    runs = [gpu.step(i, S=s, input_pos=at) for i, (s, at) in zip(inputs, steps, strict=True)]
    answers = exporter.run(turn_bundle(row, inv_freq, name), runs)
    for given, (s, at), got in zip(inputs, steps, answers, strict=True):
        for x, y in zip(given.values(), got.values(), strict=True):
            want = oracles.rope(x, exact, at, interleaved=row.interleaved)
            require(y, want, tolerances.ROPE, f"{s} tokens at {at}")
            assert at == 0 or not accept(x, want, *tolerances.ROPE), "the control: unturned passes"


@functools.cache
def plain_frequencies(head_dim: int) -> Tensor:
    return torch.from_numpy(oracles.frequencies(head_dim, 10000.0))


@pytest.mark.parametrize("interleaved", [False, True], ids=["half", "interleaved"])
@pytest.mark.parametrize("heads", sorted({(r.hq, r.hkv, r.d) for r in ROPES}), ids=str)
def test_rope(heads: tuple[int, int, int], interleaved: bool) -> None:
    steps = [(r.s, r.pos) for r in ROPES if (r.hq, r.hkv, r.d) == heads]
    row = Rope(1, *heads, 0, interleaved)
    freq = plain_frequencies(row.d)
    check_turns(row, [*dict.fromkeys(steps), *ROPE_REUSE], freq, freq.double().numpy())


def test_rope_with_llama3_scaling_at_far_positions() -> None:
    """Frequencies of the exporter against the formula in float64, by wavelength."""
    base, factor, low, high, original = 500000.0, 32.0, 1.0, 4.0, 8192
    row = Rope(1, 16, 8, 64, 0, False)
    config = LlamaConfig(
        width=1024, layers=1, heads=16, kv_heads=8, head_dim=64, mlp=64, vocabulary=8,
        max_context=131072, rope_base=base,
        rope_scaling=RopeScaling(factor, low, high, original),
    )  # fmt: skip
    plain = base ** (-np.arange(0, 64, 2, dtype=np.float64) / 64)
    blend = np.clip((original * plain / (2 * math.pi) - low) / (high - low), 0, 1)
    exact = blend * plain + (1 - blend) * plain / factor
    require(inverse_frequencies(config), exact, (0.0, 1e-6), "inverse frequencies")
    steps = [(s, at) for at in ROPE_SCALED_POSITIONS for s in (1, 5)]
    check_turns(row, steps, inverse_frequencies(config), exact, "llama3")
