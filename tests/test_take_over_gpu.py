"""Attention that rotates and fills the caches itself against the two dispatches that it replaces.

Both forms run on the software adapter from the same bytes, kernel by kernel (`Runner`), and what
they leave must be the same bits: the result and both caches, NaN in every slot without a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser
from torch import Tensor, nn

from exporter import Sym, ops
from exporter.hosts.server import Server
from runtime_py.ops import attention_split
from runtime_py.ops.attention_split import DecodeTuning
from tests import gpu, oracles
from tests.cases import YARN, ramp
from tests.dispatches import Runner
from tests.rotary_decode import STORED, Pair, arrays, graph, lower, require_right, scratch

pytestmark = pytest.mark.gpu

CHUNK = 64  # keys of a split
EDGES = (0, 1, CHUNK - 1, CHUNK, CHUNK + 1)
# Few loads in flight compile fast; a split is four tiles, and quads take more than one load.
BRIEF = DecodeTuning(heads=3, chunk=CHUNK, threads=32, tile=16)
ROWS: tuple[tuple[DecodeTuning | None, Pair], ...] = (
    (None, Pair("group3", 9, 3, 64, 131)),
    (None, Pair("group4", 8, 2, 32, 129, interleaved=True)),
    (None, Pair("group1_part", 2, 2, 16, 130, 8)),
    (None, Pair("part_pairs", 6, 2, 40, 130, 16, interleaved=True, magnitude=YARN[1])),
    (None, Pair("rounds", 11, 1, 8, 130)),  # workgroups that share a KV head, and an uneven one
    (None, Pair("one_split", 4, 2, 16, CHUNK)),
    (None, Pair("batch", 14, 2, 8, 130, batch=3)),
    (BRIEF, Pair("tiles", 6, 2, 64, 130, 48)),
    (BRIEF, Pair("quads", 3, 1, 80, 130, 32, magnitude=1.25)),
    (BRIEF, Pair("wide", 3, 1, 128, 130, interleaved=True)),
    (BRIEF, Pair("window", 6, 2, 8, 130, rules={"window": 5})),
    (BRIEF, Pair("window1", 6, 2, 8, 130, rules={"window": 1})),
    (BRIEF, Pair("free_cap", 6, 2, 8, 130, rules={"causal": False, "softcap": 2.0})),
    (BRIEF, Pair("additive", 6, 2, 8, 130, mask="additive", batch=2)),
    (BRIEF, Pair("kept", 6, 2, 8, 130, mask="kept", rules={"scale": 0.3})),
)


@pytest.fixture(scope="module")
def runner(browser: Browser) -> Iterator[Runner]:
    with Server() as server:
        page = browser.new_page()
        page.goto(server.origin)
        yield Runner(page)
        page.close()


def step(
    runner: Runner,
    pair: Pair,
    pos: int,
    *,
    apart: bool,
    change: Callable[[str], str] = lambda text: text,
) -> dict[str, Any]:
    """Return the result and the caches after one token at `pos`, in one dispatch or `apart`."""
    planner, found = lower(graph(pair, apart=apart))
    assert (found[0].key.kernel == "rope_qkv_update") is apart
    given = arrays(pair, pos)
    at, everything = {"S": 1, "pos": pos}, given | scratch(planner, pos)
    return {
        name: runner.run(found, everything, at, name, given[name].shape, change) for name in STORED
    }


def same_bits(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """True if all arrays have the same bytes, NaN included."""
    return all(a[name].tobytes() == b[name].tobytes() for name in a | b)


@pytest.mark.parametrize(("tuning", "pair"), ROWS, ids=[pair.name for _, pair in ROWS])
def test_the_same_bits(
    tuning: DecodeTuning | None, pair: Pair, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tuning:
        monkeypatch.setattr(attention_split, "split_tuning", lambda ctx, a: tuning)
    for pos in sorted({pos for pos in (*EDGES, pair.cmax - 1) if pos < pair.cmax}):
        merged, apart = (step(runner, pair, pos, apart=form) for form in (False, True))
        require_right(pair, pos, arrays(pair, pos), merged["y"])
        for name in STORED:
            where = np.argwhere(merged[name].view(np.uint32) != apart[name].view(np.uint32))
            assert where.size == 0, f"{name} at {pos}: {len(where)} differ, first {where[0]}"


# -- controls: each fault in the merged kernel must be seen

CONTROL = Pair("control", 6, 2, 16, 130, 8)
FAULTS = {
    "K of the token comes out of the cache": ("k0_0 = vec4<f32>(queries[", "// ("),
    "V of the token comes out of the cache": ("v0 = vec4<f32>(own_v);", ""),
    "K is not written": ("k[own + two0.x] = vec4<f32>(turned[0]);", ""),
    "V is not written": ("v[own + column] = vec4<f32>(own_v);", ""),
    "another token's row is written": ("+ params.position *", "+ (params.position + 1u) *"),
    "the whole head turns": ("if (column0 < 1u)", "if (true)"),
    "a position too far": ("turn_four(params.position,", "turn_four(params.position + 1u,"),
    "a pair's sine has the other sign": ("- v.y * angle.x", "+ v.y * angle.x"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_control_a_fault_is_noticed(
    fault: str, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_split, "split_tuning", lambda ctx, a: BRIEF)
    old, new = FAULTS[fault]
    changed = []

    def change(text: str) -> str:
        changed.append(old in text)
        return text.replace(old, new)

    pos = CHUNK + 7
    apart = step(runner, CONTROL, pos, apart=True)
    assert same_bits(step(runner, CONTROL, pos, apart=False), apart)
    assert not same_bits(step(runner, CONTROL, pos, apart=False, change=change), apart)
    assert any(changed)


# -- through the whole engine, token by token, on a host with f16 for f16 caches


class Layer(nn.Module):
    """One token's projections, rotation and attention over 70 slots: what the exporter fuses."""

    inv_freq: Tensor
    k_cache: Tensor
    v_cache: Tensor

    def __init__(self, interleaved: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.interleaved = interleaved
        self.q, self.k, self.v = (nn.Linear(32, h * 16, bias=False) for h in (6, 2, 2))
        inv_freq = torch.from_numpy(oracles.frequencies(8, 10000.0))
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self.register_buffer("k_cache", torch.zeros(1, 70, 2, 16))
        self.register_buffer("v_cache", torch.zeros(1, 70, 2, 16))

    def forward(self, x: Tensor, input_pos: int) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (-1, 16)) for part in (self.q, self.k, self.v))
        q, k = (
            ops.rope(part, self.inv_freq, input_pos, self.interleaved, YARN[1]) for part in (q, k)
        )
        y: Tensor = ops.sdpa_with_kv_cache(q, k, v, self.k_cache, self.v_cache, input_pos)
        return y


def spoken(interleaved: bool, host: str, **options: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the kernels, and the outputs and caches of a layer that was given 70 tokens."""

    def recipe() -> gpu.Recipe:
        example = {"x": torch.zeros(1, 1, 32), "input_pos": 2}
        return Layer(interleaved), example, {"input_pos": Sym(0, 69, at="input_pos")}, ()

    folder = gpu.bundle(f"layer-{interleaved}", recipe)
    with gpu.opened(folder, {"tuning": "gpu", **options}, host) as session:
        xs = [ramp((1, 1, 32), 17, 8, 16, i) for i in range(70)]
        ys = [session.run({"x": x}, input_pos=i)["output"] for i, x in enumerate(xs)]
        (program,) = session.report()["programs"]
        kernels = [d["kernel"] for d in program["dispatches"]]
        return kernels, {"y": np.concatenate(ys, 1), **session.state()}


@pytest.mark.parametrize(
    ("dtype", "interleaved"),
    [("f32", False), ("f16", False), ("f16", True)],
    ids=["f32-half", "f16-half", "f16-interleaved"],
)
def test_the_same_bits_through_the_engine(dtype: str, interleaved: bool) -> None:
    """`debug` = 5 wants every value, the rotated q among them, so nothing is taken over."""
    host = gpu.f16_host() if dtype == "f16" else gpu.HOST
    kernels, merged = spoken(interleaved, host, kv_dtype=dtype)
    kernels_apart, apart = spoken(interleaved, host, kv_dtype=dtype, debug=5)
    assert "rope_qkv_update" not in kernels
    assert len(kernels) == len(kernels_apart) - 1
    assert "rope_qkv_update" in kernels_apart
    widths = sorted(array.itemsize for array in merged.values())
    assert widths == ([2, 2, 4] if dtype == "f16" else [4, 4, 4])
    assert same_bits(merged, apart)
    assert all(np.isfinite(array).all() and array.any() for array in merged.values())
