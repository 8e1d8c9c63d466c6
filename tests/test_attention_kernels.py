"""The attention kernels of a GPU in every size they have, against float64, on the software adapter.

A family is one pipeline of the tiled kernel: a tiling, a head width and a set of rules; tokens,
positions and groups of heads vary within it. Slots that hold no token are NaN in every row
(`past_inputs`), and so is scratch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser

from exporter.hosts.server import Server
from runtime_py.ops import attention_split, attention_tiled
from runtime_py.ops.attention_split import DecodeTuning
from runtime_py.ops.attention_tiled import TILINGS, Tiling
from runtime_py.ops.base import Caps, Dispatch
from runtime_py.schema import SymbolAttr
from runtime_py.symbols import evaluate, product
from tests import gpu, oracles
from tests.cases import SDPA, SDPA_ROWS, Past, Sdpa
from tests.dispatches import Runner
from tests.lowering import single
from tests.test_attention_gpu import MASKS, check, past_inputs, rules
from tests.test_sdpa_gpu import caches_after, golden
from tests.tolerances import SDPA_F16, SDPA_F32, require

pytestmark = pytest.mark.gpu

SOFTWARE_BYTES = 32768  # workgroup memory of SwiftShader
GPU_ROWS = [row for row in SDPA_ROWS if row.d % 4 == 0]


@dataclass(frozen=True)
class Family:
    """Rows that run on one pipeline."""

    tiling: Tiling
    rows: tuple[Past, ...]

    def __str__(self) -> str:
        return self.rows[0].name


def plain(name: str, d: int, *sizes: tuple[int, int, int, int]) -> tuple[Past, ...]:
    """Return rows of (Hq, Hkv, S, input_pos) without rules, a few slots longer than needed."""
    return tuple(
        Past(f"{name}_d{d}_{hq}_{hkv}_s{s}_at{pos}", hq, hkv, d, s, pos + s + 5, pos)
        for hq, hkv, s, pos in sizes
    )


def ruled(name: str, d: int, **rule: Any) -> tuple[Past, ...]:
    """Return rows with a rule: a tile and a bit, from the start and within the context."""
    return tuple(
        Past(f"{name}_s{s}_at{pos}", 6, 2, d, s, pos + s + 5, pos, **rule)
        for s, pos in ((40, 0), (17, 75))
    )


def fewer(name: str, **rule: Any) -> tuple[Past, ...]:
    """Return a row with a rule for a step of few tokens."""
    return (Past(f"{name}_few", 6, 2, 8, 3, 85, 75, **rule),)


WIDE, SQUARE, SMALL, LEAST = TILINGS
EDGES = ((9, 3, 16, 0), (9, 3, 17, 31), (9, 3, 63, 32), (9, 3, 64, 33), (9, 3, 65, 100))
GROUPS = tuple((hkv * group, hkv, 21, 50) for group, hkv in enumerate((2, 1, 2, 1, 1, 1, 2, 1), 1))
FAMILIES = (
    Family(SQUARE, plain("square", 64, *EDGES, *GROUPS)),
    Family(SMALL, plain("small", 40, *EDGES)),
    Family(SMALL, plain("small", 4, *EDGES)),
    Family(LEAST, plain("least", 80, *EDGES[1:4])),
    Family(WIDE, ruled("window5", 8, window=5) + ruled("window33", 8, window=33)
           + ruled("window1", 8, window=1)),
    Family(SMALL, ruled("softcap", 8, softcap=5.0)
           + ruled("softcap_big", 8, softcap=50.0, gain=1000.0)),
    Family(SMALL, ruled("additive_mask", 8, kind="additive mask")),
    Family(SMALL, ruled("bool_mask_free", 8, kind="bool mask", causal=False)),
    Family(SMALL, ruled("mask_window_cap", 8, kind="additive mask", window=20, softcap=5.0)),
    Family(SQUARE, ruled("scale", 8, scale=0.3) + ruled("batch", 8, batch=3)
           + ruled("nan_inside", 8, kind="nan inside")[1:] + ruled("peak1e4", 8, gain=40000.0)
           + ruled("equal1e4", 8, gain=20000.0, kind="equal keys")
           + ruled("last_column", 8, kind="last column")),
    Family(Tiling(32, 16, 64, 16, 2, 2), plain("eight_rows", 8, *EDGES)),
)  # fmt: skip
# Seconds of compiling each, or shares that the routes do not take at present.
HEAVY_FAMILIES = (
    Family(WIDE, plain("wide", 40, *EDGES)),
    Family(SMALL, plain("small", 64, *EDGES)),
    Family(LEAST, plain("least", 96, *EDGES[1:4])),
    Family(WIDE, ruled("wide_mask", 8, kind="additive mask", softcap=5.0)),
    Family(Tiling(64, 32, 128, 16, 2, 2), plain("tall", 8, *EDGES)),
    Family(Tiling(16, 32, 32, 8, 4, 1), plain("narrow_across", 8, *EDGES)),
    Family(Tiling(32, 32, 256, 32, 1, 1), plain("broad_across", 8, *EDGES)),
)


@pytest.fixture(scope="module")
def runner(browser: Browser) -> Iterator[Runner]:
    with Server() as server:
        page = browser.new_page()
        page.goto(server.origin)
        yield Runner(page)
        page.close()


def lowered(row: Past | Sdpa) -> tuple[list[Dispatch], dict[str, Any]]:
    """Return the dispatches of a row on a GPU, and its scratch full of NaN.

    S and pos are symbols, so rows share a pipeline.
    """
    batch, attrs, mask = 1, {}, None
    if isinstance(row, Past):
        batch, attrs, mask = row.batch, rules(row), MASKS.get(row.kind)
    cache = (batch, row.cmax, row.hkv, row.d)
    inputs: dict[str, Any] = {"q": (batch, "S", row.hq, row.d), "k": cache, "v": cache}
    if mask:
        inputs["mask"] = ("f32" if mask == "f32" else "u32", ("S", row.cmax))
    one = single(
        "sdpa_cached",
        inputs,
        inputs["q"],
        {"input_pos": SymbolAttr("pos"), **attrs},
        {"S": (row.s, row.s), "pos": (row.pos, row.pos)},
        caps=Caps(limits={"maxComputeWorkgroupStorageSize": SOFTWARE_BYTES}),
    )
    dispatches = one.dispatches()
    shapes = {name: one.planner.value(name).shape for name in one.planner.scratches}
    sizes = {name: evaluate(product(shape), {}) for name, shape in shapes.items()}
    return dispatches, {name: np.full(size, np.nan, np.float32) for name, size in sizes.items()}


def kernels(row: Past | Sdpa) -> list[str]:
    return [dispatch.key.kernel for dispatch in lowered(row)[0]]


def answer(runner: Runner, row: Past, inputs: Any, change: Any = lambda text: text) -> Any:
    """Return what the kernels make of a row; the caches hold the step's tokens already."""
    arrays = {"q": inputs["q"]}
    for name in ("k", "v"):
        full = oracles.update_cache(inputs[name], inputs[f"{name}_cache"], row.pos)
        arrays[name] = np.ascontiguousarray(full, np.float32)
    if "mask" in inputs:
        hidden = inputs["mask"]
        arrays["mask"] = hidden.astype(np.uint32) if hidden.dtype == bool else hidden
    dispatches, scratch = lowered(row)
    symbols = {"S": row.s, "pos": row.pos}
    return runner.run(dispatches, arrays | scratch, symbols, "y", inputs["q"].shape, change)


@pytest.mark.parametrize(
    "family",
    [*FAMILIES, *(pytest.param(f, marks=pytest.mark.heavy) for f in HEAVY_FAMILIES)],
    ids=str,
)
def test_every_tiling(family: Family, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_tiled, "TILINGS", (family.tiling,))
    assert len({d.key for row in family.rows for d in lowered(row)[0]}) == 1
    for row in family.rows:
        assert kernels(row) == ["attention_tiled"]
        inputs = past_inputs(row)
        check(row, inputs, answer(runner, row, inputs))


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name, marks=[pytest.mark.heavy] if row.cmax >= 2048 else [])
        for row in GPU_ROWS
    ],
)
def test_the_reference_rows(row: Sdpa, runner: Runner) -> None:
    inputs = row.inputs()
    k, v = caches_after(row, inputs)
    few = {"attention_decode", "attention_combine"}
    assert set(kernels(row)) <= ({"attention_tiled"} if row.s >= 16 else few)
    dispatches, scratch = lowered(row)
    symbols = {"S": row.s, "pos": row.pos}
    arrays = {"q": inputs["q"], "k": k, "v": v, **scratch}
    got = runner.run(dispatches, arrays, symbols, "y", inputs["q"].shape)
    require(got, golden(row, inputs), SDPA_F32, row.name)


@pytest.mark.parametrize(
    "name", ["llama1b_prefill", pytest.param("qwen3_odd_boundary", marks=pytest.mark.heavy)]
)
def test_f16_caches(name: str) -> None:
    """Through the whole engine, on a host that has shader-f16; D = 128 compiles for a minute."""
    host, row = gpu.f16_host(), SDPA[name]
    inputs = row.inputs()
    example = {name: torch.from_numpy(array) for name, array in inputs.items()}
    folder = gpu.bundle(f"{name}-{row.pos}", lambda: (gpu.AttendAt(row.pos), example, {}, ()))
    with gpu.opened(folder, {"kv_dtype": "f16", "tuning": "gpu"}, host) as session:
        (program,) = session.report()["programs"]
        keys = [d["key"] for d in program["dispatches"] if d["kernel"] == "attention_tiled"]
        got = session.run(inputs)["output"]
    assert len(keys) == 1
    assert "cache=f16" in keys[0]
    require(got, golden(row, inputs, f16=True), SDPA_F16, row.name)


# -- steps of few tokens

# Few loads in flight compile fast, and a split of 64 keys is four tiles.
BRIEF = DecodeTuning(heads=3, chunk=64, threads=32, tile=16)
FEW_ROWS: tuple[tuple[DecodeTuning | None, tuple[Past, ...]], ...] = (
    (None, plain("few", 64, (9, 3, 1, 0), (9, 3, 1, 63), (9, 3, 1, 64), (9, 3, 15, 120))),
    (None, plain("few", 40, (6, 2, 3, 70))),
    (None, plain("few", 4, (11, 1, 2, 70))),  # twice 6 heads, one of them twice
    (replace(BRIEF, threads=64), plain("few", 80, (6, 2, 3, 70))),
    (replace(BRIEF, threads=64), plain("few", 128, (6, 2, 3, 70))),
    (BRIEF, fewer("window", window=5) + fewer("window", window=70)),
    (BRIEF, fewer("softcap", softcap=5.0) + fewer("softcap", softcap=50.0, gain=1000.0)),
    (BRIEF, fewer("additive_mask", kind="additive mask")),
    (BRIEF, fewer("bool_mask_free", kind="bool mask", causal=False)),
    (BRIEF, fewer("all", kind="additive mask", window=20, softcap=5.0)),
    (BRIEF, fewer("scale", scale=0.3) + fewer("batch", batch=3)
     + fewer("nan_inside", kind="nan inside") + fewer("peak1e4", gain=40000.0)
     + fewer("equal1e4", gain=20000.0, kind="equal keys")
     + fewer("last_column", kind="last column")),
    (DecodeTuning(3, 256, 256, 64), plain("many_threads", 8, (6, 2, 2, 300))),
)  # fmt: skip


@pytest.mark.parametrize(("tuning", "rows"), FEW_ROWS, ids=[r[0].name for _, r in FEW_ROWS])
def test_few_tokens(
    tuning: DecodeTuning | None, rows: tuple[Past, ...], runner: Runner, monkeypatch: Any
) -> None:
    if tuning:
        monkeypatch.setattr(attention_split, "split_tuning", lambda ctx, a: tuning)
    for row in rows:
        assert kernels(row)[0] == "attention_decode"
        inputs = past_inputs(row)
        check(row, inputs, answer(runner, row, inputs))


# -- controls: each fault in a kernel must be seen by a row like those above

FAULTS = {
    "an unseen key is multiplied": (40, "if (!(w0[1] == -1.0)) {", "if (true) {"),
    "the old sums do not shrink": (40, "o1_0 *= shrink0[1];", ""),
    "every second tile is left out": (40, "start += 32u", "start += 64u"),
    "a slice keeps its own maximum": (3, "shrink = exp(peaks[", "shrink = exp(0.0 * peaks["),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_control_a_fault_is_noticed(
    fault: str, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_tiled, "TILINGS", (SQUARE,))
    monkeypatch.setattr(attention_split, "split_tuning", lambda ctx, a: BRIEF)
    tokens, old, new = FAULTS[fault]
    row = Past("control", 6, 2, 8, tokens, 120, 75, kind="nan inside", gain=30.0)
    inputs = past_inputs(row)
    inputs["v"][0, tokens - 2, 0, 2] = np.nan  # a token's own: unseen by the tokens before it
    changed = []

    def change(text: str) -> str:
        changed.append(old in text)
        return text.replace(old, new)

    check(row, inputs, answer(runner, row, inputs))
    got = answer(runner, row, inputs, change)
    assert any(changed)
    with pytest.raises(AssertionError):
        check(row, inputs, got)
