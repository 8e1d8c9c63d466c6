"""Attention past the reference's tables, on a GPU, against float64: the rows of `cases.PAST_ROWS`.

Rows of the same heads, width and rules share ONE graph whose S and input_pos are symbolic. The
caller passes the caches, so a row also says what lies in slots that hold no token: always NaN,
which must not leak. Numbers in names are those of the faults' list.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from exporter import Sym, ops
from tests import gpu, oracles
from tests.cases import PAST_ROWS, WINDOW_OFF_BY_ONE, WINDOW_VISIBLE, Past, ramp
from tests.tolerances import CUTS, EXACT, SDPA_F32, accept, require

pytestmark = pytest.mark.gpu

Inputs = dict[str, Any]
MASKS = {"additive mask": "f32", "bool mask": "bool"}


class Rules(nn.Module):
    """Attention over caches that the caller passes in, with every rule it can have."""

    def __init__(self, **rules: Any) -> None:
        super().__init__()
        self.rules = rules

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        input_pos: int,
        mask: Tensor | None = None,
    ) -> Tensor:
        y: Tensor = ops.sdpa_with_kv_cache(q, k, v, k_cache, v_cache, input_pos, mask, **self.rules)
        return y


def rules(row: Past) -> dict[str, Any]:
    """Return the rules of a row as the operator and the oracle take them."""
    return {
        "scale": row.scale,
        "causal": row.causal,
        "window": row.window,
        "softcap": row.softcap,
    }


def family(row: Past) -> str:
    """Return what rows must share to run on one graph."""
    parts = (row.hq, row.hkv, row.d, row.cmax, row.batch, *rules(row).values(), MASKS.get(row.kind))
    return "-".join(map(str, parts))


FAMILIES: dict[str, list[Past]] = {}
for _row in PAST_ROWS:
    FAMILIES.setdefault(family(_row), []).append(_row)
NAMES = {key: rows[0].name.rsplit("_s", 1)[0] for key, rows in FAMILIES.items()}


def past_bundle(row: Past) -> pathlib.Path:
    """Return the graph of a row's family."""

    def recipe() -> gpu.Recipe:
        example = {n: torch.from_numpy(a) for n, a in past_inputs(row, tokens=2, at=3).items()}
        rows = [("q", 1), ("k", 1), ("v", 1), *([("mask", 0)] if row.kind in MASKS else [])]
        symbols = {
            "S": Sym(1, row.cmax, at=rows),
            "input_pos": Sym(0, row.cmax - 1, at="input_pos"),
        }
        limits = [(["+", "S", "input_pos"], row.cmax)]
        return Rules(**rules(row)), {**example, "input_pos": 3}, symbols, limits

    return gpu.bundle(f"past-{family(row)}", recipe)


def past_inputs(row: Past, tokens: int | None = None, at: int | None = None) -> Inputs:
    """Return q, k, v, caches and the mask of a row; sixteenths, so that products are exact."""
    s, pos = tokens or row.s, row.pos if at is None else at
    chance = np.random.default_rng(1000 * row.d + 10 * s + row.hq)

    def numbers(*shape: int) -> Any:
        return (chance.integers(-16, 17, shape) / 16).astype(np.float32)

    new, cache = (row.batch, s, row.hkv, row.d), (row.batch, row.cmax, row.hkv, row.d)
    inputs = {
        "q": numbers(row.batch, s, row.hq, row.d) * np.float32(row.gain),
        "k": numbers(*new),
        "v": numbers(*new),
        "k_cache": numbers(*cache),
        "v_cache": numbers(*cache),
    }
    for name in ("k_cache", "v_cache"):
        inputs[name][:, pos:] = np.nan  # no token stands there yet
    if row.kind == "last column":
        inputs["v"][..., :-1] = inputs["v_cache"][:, :pos, :, :-1] = 0
        inputs["v_cache"][:, :pos, :, :-1] = 0
    if row.kind == "equal keys":
        inputs["q"][...], inputs["k"][...] = row.gain, 1
        inputs["k_cache"][:, :pos] = 1
    if row.kind == "nan inside":
        inputs["v_cache"][0, pos // 2, 0, 3] = np.nan
    if row.kind in MASKS:
        inputs["mask"] = mask(row.kind, (s, row.cmax), chance)
    return inputs


def mask(kind: str, shape: tuple[int, int], chance: np.random.Generator) -> Any:
    """Return a mask [S, Cmax] that hides a third of the keys, and all of them from token 1 (24)."""
    seen = chance.random(shape) < 0.67
    seen[:, 0] = True
    seen[1:2] = False
    if kind == "bool mask":
        return seen
    bias = chance.integers(-16, 17, shape) / 16
    return np.where(seen, bias, -np.inf).astype(np.float32)


def want(row: Past, inputs: Inputs) -> Any:
    """Return the float64 result."""
    k, v = (oracles.update_cache(inputs[n], inputs[f"{n}_cache"], row.pos) for n in ("k", "v"))
    hidden = inputs.get("mask")
    if hidden is not None and hidden.dtype == bool:
        hidden = hidden.astype(np.uint32)
    return oracles.sdpa(inputs["q"], k, v, row.pos, mask=hidden, **rules(row))


@pytest.mark.parametrize("key", FAMILIES, ids=NAMES.get)
def test_rows_past_the_reference(key: str) -> None:
    rows = FAMILIES[key]
    with gpu.opened(past_bundle(rows[0])) as session:
        for row in rows:
            inputs = past_inputs(row)
            got = session.run(inputs, S=row.s, input_pos=row.pos)["output"]
            check(row, inputs, got)


def check(row: Past, inputs: Inputs, got: Any) -> None:
    expected = want(row, inputs)
    holes = np.isnan(expected)
    assert holes.any() == (row.kind == "nan inside"), row.name
    assert np.array_equal(np.isnan(got), holes), f"{row.name}: NaN in other places"
    require(np.where(holes, 0, got), np.where(holes, 0, expected), SDPA_F32, row.name)
    if row.gain > 10000:
        logits = np.einsum("bshd,bshd->bsh", inputs["q"][:, :, :: row.hq // row.hkv], inputs["k"])
        assert abs(logits).max() * row.d**-0.5 > 1e4, "the case itself"
    if row.kind == "last column":  # (22)
        assert not got[..., :-1].any(), row.name
        assert got[..., -1].all(), row.name
    if row.kind in MASKS and row.s > 1:  # (24)
        require(
            got[:, 1], np.zeros_like(got[:, 1]), EXACT, f"{row.name}: a token that sees nothing"
        )
        assert got[:, 0].any(), row.name


def test_control_every_rule_is_noticed() -> None:
    """Each rule's rows, held against the oracle without the rule, must fail."""
    plain = {"scale": None, "causal": True, "window": 0, "softcap": 0.0}
    rows = [r for r in PAST_ROWS if r.s == 3 and rules(r) != plain and r.gain == 1 and r.pos == 11]
    assert len(rows) >= 5
    for row in rows:
        inputs = past_inputs(row)
        k, v = (oracles.update_cache(inputs[n], inputs[f"{n}_cache"], row.pos) for n in ("k", "v"))
        assert not accept(oracles.sdpa(inputs["q"], k, v, row.pos), want(row, inputs), *SDPA_F32)


# -- the window, by hand (23)

ROUTES = ("auto", "materialized")


@pytest.mark.parametrize("route", ROUTES)
def test_23_a_window_of_four_is_four_keys_itself_included(route: str) -> None:
    """q = 0 gives equal weights; column 0 of V is the key's number, column 1 + j tells key j."""
    window, position, mean = WINDOW_OFF_BY_ONE
    row = Past("window4", 4, 2, 28, 1, 32, 0, window=window)
    many = 24  # enough for the streaming route
    v = np.zeros((1, many, 2, 28), np.float32)
    v[..., 0] = np.arange(many)[:, None]
    v[0, np.arange(many), :, 1 + np.arange(many)] = 1
    answers = []
    with gpu.opened(past_bundle(row), {"attention": route}) as session:
        for cut in (1, 6, many):
            pieces = []
            caches = {n: np.zeros((1, 32, 2, 28), np.float32) for n in ("k_cache", "v_cache")}
            for at in range(0, many, cut):
                part = {"k": v[:, at : at + cut], "v": v[:, at : at + cut]}
                q = np.zeros((1, cut, 4, 28), np.float32)
                got = session.run({"q": q, **part, **caches}, S=cut, input_pos=at)
                caches = {n: got[n] for n in caches}
                pieces.append(got["output"])
            answers.append(np.concatenate(pieces, axis=1))
    for y in answers:
        assert y[0, position, :, 0] == pytest.approx(mean, abs=1e-6)
        counts = (y[0, :, 0, 1:] > 0).sum(-1)
        assert tuple(counts[: len(WINDOW_VISIBLE)]) == WINDOW_VISIBLE
        assert set(counts[len(WINDOW_VISIBLE) :]) == {window}
        require(y, answers[0], CUTS, "prefill and decode agree")


# -- the choice of route is data

HEADS, KV_HEADS, WIDTH, CONTEXT = 32, 8, 64, 512


def llama() -> pathlib.Path:
    return gpu.cached_bundle(HEADS, KV_HEADS, WIDTH, CONTEXT)


def routes(program: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the attention dispatches of a program by kernel."""
    return {d["kernel"]: d for d in program["dispatches"] if d["kernel"].startswith("attention")}


@pytest.fixture(scope="module")
def report() -> Iterator[dict[str, Any]]:
    with gpu.opened(llama()) as session:
        yield session.report()


def test_the_report_says_which_route_runs_and_why(report: dict[str, Any]) -> None:
    programs = {tuple(p["ranges"]["S"]): routes(p) for p in report["programs"]}
    one, more = programs[1, 1], programs[2, CONTEXT]
    assert list(one) == ["attention_split", "attention_combine"]
    assert one["attention_split"]["reason"].startswith("split: 1 token a step, fewer than 16")
    assert list(more) == ["attention_split", "attention_combine", "attention_stream"]
    assert "fewer than 16 tokens (of 2 to 512)" in more["attention_split"]["reason"]
    assert "at least 16 tokens (of 2 to 512)" in more["attention_stream"]["reason"]


def test_k_and_v_are_read_once_for_the_heads_of_a_group(report: dict[str, Any]) -> None:
    (one,) = (routes(p) for p in report["programs"] if p["ranges"]["S"] == [1, 1])
    split = one["attention_split"]
    assert f"heads={HEADS // KV_HEADS}" in split["key"]
    assert split["grid"][1:] == [str(KV_HEADS), "S"]  # S is 1 in this program
    assert f"{HEADS // KV_HEADS} query heads share a read of K and V" in split["reason"]


def test_prefill_takes_under_an_eighth_of_the_materialized_scratch() -> None:
    example = {
        "q": torch.zeros(1, 512, HEADS, WIDTH),
        **{n: torch.zeros(1, 512, KV_HEADS, WIDTH) for n in ("k", "v", "k_cache", "v_cache")},
    }
    folder = gpu.bundle("prefill-512", lambda: (gpu.AttendAt(0), example, {}, ()))
    ports = 4 * (sum(x.numel() for x in example.values()) + example["q"].numel())
    sizes = {}
    for route in ROUTES:
        with gpu.opened(folder, {"attention": route}) as session:
            sizes[route] = session.report()["memory"]["scratch_bytes"] - ports
    assert sizes["materialized"] >= 4 * HEADS * 512 * 512
    assert 0 <= sizes["auto"] * 8 < sizes["materialized"], sizes


def test_both_sides_of_the_boundary_and_every_cut_agree() -> None:
    """The same 40 tokens in calls of 15 (split), of 16 (stream) and others; and materialised."""
    heads, kv_heads, width, total = 9, 3, 64, 40
    folder = gpu.cached_bundle(heads, kv_heads, width, total)
    shapes = {"q": (heads, 17, 8), "k": (kv_heads, 13, 6), "v": (kv_heads, 11, 5)}
    tokens = {n: ramp((1, total, h, width), m, o, 16) for n, (h, m, o) in shapes.items()}
    expected = oracles.sdpa(tokens["q"], tokens["k"], tokens["v"], 0)
    cuts = ((40,), (15, 15, 10), (16, 16, 8), (17, 23), (14, 1, 16, 9), (1,) * 40)
    for route in ROUTES:
        with gpu.opened(folder, {"attention": route}) as session:
            for cut in cuts:
                session.reset()
                pieces, at = [], 0
                for count in cut:
                    part = {n: x[:, at : at + count] for n, x in tokens.items()}
                    pieces.append(session.run(part, S=count, input_pos=at)["output"])
                    at += count
                require(np.concatenate(pieces, axis=1), expected, CUTS, f"{route} {cut}")
