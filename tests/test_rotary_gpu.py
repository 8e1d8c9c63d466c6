"""Rotary positions past the reference: part of a head (25), YaRN's magnitude (26), fused or alone.

Numbers in names are those of the faults' list.
"""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import exporter
from exporter import Sym, ops
from tests import gpu, oracles
from tests.cases import PARTIAL_ROTARY, YARN, ramp
from tests.tolerances import EXACT, FIVE_DECIMALS, ROPE_TIGHT, SDPA_F32, accept, require

pytestmark = pytest.mark.gpu

THETA = 10000.0
BOTH = pytest.mark.parametrize("interleaved", [False, True], ids=["half", "interleaved"])


class Turn(nn.Module):
    """Rotary positions of x."""

    inv_freq: Tensor

    def __init__(self, rotated: int, interleaved: bool, scale: float) -> None:
        super().__init__()
        self.interleaved, self.scale = interleaved, scale
        inv_freq = torch.from_numpy(oracles.frequencies(rotated, THETA))
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, x: Tensor, input_pos: int) -> Tensor:
        y: Tensor = ops.rope(x, self.inv_freq, input_pos, self.interleaved, self.scale)
        return y


def turn(x: Any, pos: int, rotated: int, interleaved: bool, scale: float = 1.0) -> Any:
    """Return x turned by the host."""
    symbols = {"input_pos": Sym(0, 99, at="input_pos")}
    example = {"x": torch.from_numpy(x), "input_pos": 1}
    name = f"turn-{x.shape}-{rotated}-{interleaved}-{scale}"
    folder = gpu.bundle(name, lambda: (Turn(rotated, interleaved, scale), example, symbols, ()))
    return exporter.run(folder, [gpu.step({"x": x}, input_pos=pos)])[0]["output"]


@BOTH
def test_25_part_of_a_head_turns(interleaved: bool) -> None:
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 1, 8)
    got = turn(x, 3, 4, interleaved)
    require(got.reshape(8), PARTIAL_ROTARY[interleaved], FIVE_DECIMALS)
    whole = oracles.rope(x, oracles.frequencies(8, THETA), 3, interleaved=interleaved)
    assert not accept(got, whole, *FIVE_DECIMALS), "the control: a whole rotation passes"


@BOTH
@pytest.mark.parametrize(("width", "rotated"), [(64, 16), (80, 32), (6, 2), (96, 96)])
def test_25_any_part_of_any_width(width: int, rotated: int, interleaved: bool) -> None:
    x = ramp((1, 5, 3, width), 17, 8, 16)
    got = turn(x, 11, rotated, interleaved)
    want = oracles.rope(x, oracles.frequencies(rotated, THETA), 11, interleaved=interleaved)
    require(got, want, ROPE_TIGHT)
    require(got[..., rotated:], x[..., rotated:], EXACT, "columns that do not turn")


@BOTH
def test_26_yarn_scales_cos_and_sin_once_and_turning_columns_only(interleaved: bool) -> None:
    _, magnitude = YARN
    x = np.ones((1, 2, 1, 8), np.float32)
    got = turn(x, 0, 4, interleaved, magnitude)
    require(
        got[0, 0, 0], [magnitude] * 4 + [1] * 4, FIVE_DECIMALS, "position 0: cos is 1, sin is 0"
    )
    freq = oracles.frequencies(4, THETA)
    want = oracles.rope(x, freq, 0, interleaved=interleaved, scale=magnitude)
    require(got, want, ROPE_TIGHT)


class Block(nn.Module):
    """Projections, partial rotation with a magnitude, attention: what the exporter fuses."""

    inv_freq: Tensor
    k_cache: Tensor
    v_cache: Tensor

    def __init__(self, interleaved: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.interleaved = interleaved
        self.q, self.k, self.v = (nn.Linear(32, h * 16, bias=False) for h in (4, 2, 2))
        inv_freq = torch.from_numpy(oracles.frequencies(8, THETA))
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self.register_buffer("k_cache", torch.zeros(1, 32, 2, 16))
        self.register_buffer("v_cache", torch.zeros(1, 32, 2, 16))

    def forward(self, x: Tensor, input_pos: int) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (-1, 16)) for part in (self.q, self.k, self.v))
        q, k = (
            ops.rope(part, self.inv_freq, input_pos, self.interleaved, YARN[1]) for part in (q, k)
        )
        y: Tensor = ops.sdpa_with_kv_cache(q, k, v, self.k_cache, self.v_cache, input_pos)
        return y


def block(interleaved: bool) -> pathlib.Path:
    symbols = {"S": Sym(1, 32, at=("x", 1)), "input_pos": Sym(0, 31, at="input_pos")}
    example = {"x": torch.zeros(1, 3, 32), "input_pos": 2}
    limits = [(["+", "S", "input_pos"], 32)]
    name = f"rotary-block-{interleaved}"
    return gpu.bundle(name, lambda: (Block(interleaved), example, symbols, limits))


@BOTH
def test_25_and_26_fused_with_the_cache_update(interleaved: bool) -> None:
    """The softmax scale stays 1 / sqrt(D); prefill and decode."""
    folder = block(interleaved)
    (fused,) = [n for n in gpu.graph(folder)["nodes"] if n["op"] == "rope_qkv_update"]
    assert fused["attrs"]["scale"] == pytest.approx(YARN[1])
    module, freq = Block(interleaved), oracles.frequencies(8, THETA)
    weight = (
        torch.cat([module.q.weight, module.k.weight, module.v.weight]).detach().double().numpy()
    )
    cuts = (20, 1, 1, 3)
    xs = [ramp((1, s, 32), 17, 8, 16, i) for i, s in enumerate(cuts)]
    at = [sum(cuts[:i]) for i in range(len(cuts))]
    steps = [gpu.step({"x": x}, S=s, input_pos=p) for x, s, p in zip(xs, cuts, at, strict=True)]
    mixed = (np.concatenate(xs, 1).astype(np.float64) @ weight.T).reshape(1, -1, 8, 16)
    q, k = (
        oracles.rope(part, freq, 0, interleaved=interleaved, scale=YARN[1])
        for part in (mixed[:, :, :4], mixed[:, :, 4:6])
    )
    want = oracles.sdpa(q, k, mixed[:, :, 6:], 0, scale=16**-0.5)
    got = np.concatenate([step["output"] for step in exporter.run(folder, steps)], axis=1)
    require(got, want, SDPA_F32)
