"""Attention as dispatches: which route, which key, how many splits, which grid. No browser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from runtime_py.errors import OptionError
from runtime_py.ops import attention_tiled
from runtime_py.ops.attention_tiled import TILINGS, Tiling
from runtime_py.ops.base import Caps, Dispatch
from runtime_py.schema import DTYPE_BYTES, Attr, Constraint, SymbolAttr
from runtime_py.symbols import Op, evaluate, product
from tests.cases import GROUPS, HEAD_DIMS, PAST_ROWS, SDPA, SDPA_ROWS, Past, Sdpa
from tests.lowering import DEVICES, GPU, LIBRARY, SOFTWARE, Single, single, workgroup_bytes

POS = SymbolAttr("pos")


def cached(
    hq: int = 32,
    hkv: int = 8,
    d: int = 64,
    cmax: int = 4096,
    most: int = 512,
    caps: Caps = GPU,
    options: dict[str, object] | None = None,
    **attrs: Attr,
) -> Single:
    """Return `sdpa_cached` with S in 1..most and pos in 0..cmax - 1, S + pos <= cmax."""
    cache = (1, cmax, hkv, d)
    return single(
        "sdpa_cached",
        {"q": (1, "S", hq, d), "k": cache, "v": cache},
        (1, "S", hq, d),
        {"input_pos": POS, "causal": True, **attrs},
        {"S": (1, most), "pos": (0, cmax - 1)},
        constraints=(Constraint(Op("+", "S", "pos"), cmax),),
        caps=caps,
        options=options,
    )


def kernels(dispatches: list[Dispatch]) -> list[str]:
    return [d.key.kernel for d in dispatches]


def grid(dispatch: Dispatch, **values: int) -> tuple[int, ...]:
    return tuple(evaluate(side, values) for side in dispatch.grid)


def param(dispatch: Dispatch, name: str, **values: int) -> int:
    (value,) = (p.value for p in dispatch.params if p.name == name)
    assert not isinstance(value, float)
    return evaluate(value, values)


FEW = {
    "software": ["attention_split", "attention_combine"],
    "gpu": ["attention_decode", "attention_combine"],
}
MANY = {"software": ["attention_stream"], "gpu": ["attention_tiled"]}


@pytest.mark.parametrize(
    ("least", "most", "want"),
    [
        (1, 1, "few"), (2, 2, "few"), (1, 15, "few"), (15, 15, "few"), (16, 16, "many"),
        (16, 512, "many"), (1, 16, "both"), (2, 512, "both"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("device", DEVICES)
def test_the_route_follows_the_tokens(least: int, most: int, want: str, device: str) -> None:
    found = cached(caps=DEVICES[device]).dispatches(S=(least, most))
    routes = {"few": FEW[device], "many": MANY[device], "both": FEW[device] + MANY[device]}
    assert kernels(found) == routes[want]
    assert all(d.reason for d in found)


@pytest.mark.parametrize(
    ("tokens", "few"), [(1, True), (2, True), (15, True), (16, False), (512, False)]
)
@pytest.mark.parametrize("device", DEVICES)
def test_a_step_of_a_mixed_program_takes_one_route(tokens: int, few: bool, device: str) -> None:
    split, combine, many = cached(caps=DEVICES[device]).dispatches(S=(1, 512))
    empty = [0 in grid(d, S=tokens, pos=100) for d in (split, combine, many)]
    assert empty == [not few, not few, few]


# Head width, bytes of workgroup memory, rows and keys of a tile (none: the streaming route).
TILES = (
    (64, 16384, (16, 32)), (64, 32768, (32, 32)), (64, 49152, (32, 64)), (40, 32768, (32, 64)),
    (96, 16384, (16, 16)), (128, 16384, None), (128, 32768, (16, 32)), (128, 49152, (32, 32)),
    (4, 16384, (32, 64)), (6, 49152, None), (320, 16384, None),
)  # fmt: skip


@pytest.mark.parametrize(("d", "limit", "tile"), TILES)
def test_tiles_fit_the_workgroup_memory(d: int, limit: int, tile: tuple[int, int] | None) -> None:
    caps = Caps(limits={"maxComputeWorkgroupStorageSize": limit})
    (only,) = cached(d=d, caps=caps).dispatches(S=(16, 512))
    axes = dict(only.key.axes)
    if tile is None:
        assert only.key.kernel == "attention_stream"
    else:
        assert only.key.kernel == "attention_tiled"
        assert (axes["rows"], axes["keys"]) == tile
        assert grid(only, S=100, pos=7) == (8, -(-100 * 4 // tile[0]), 1)


@pytest.mark.parametrize("tiling", TILINGS, ids=str)
@pytest.mark.parametrize("d", [d for d in HEAD_DIMS if d % 4 == 0])
def test_tiled_bytes_are_those_of_the_text(
    tiling: Tiling, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_tiled, "TILINGS", (tiling,))
    caps = Caps(limits={"maxComputeWorkgroupStorageSize": 1 << 20})
    (only,) = cached(d=d, caps=caps).dispatches(S=(16, 512))
    text = LIBRARY.render(only.key)
    assert workgroup_bytes(text) == tiling.workgroup_bytes(d)
    assert f"@workgroup_size({tiling.threads})" in text


def test_split_reads_a_kv_head_once_for_its_group() -> None:
    split, _ = cached().dispatches(S=(1, 1))
    axes = dict(split.key.axes)
    assert axes["heads"] == 4
    assert grid(split, S=1, pos=4095) == (64, 8, 1)


def test_a_short_context_is_one_split() -> None:
    for caps in (GPU, SOFTWARE):
        split, combine = cached(caps=caps).dispatches(S=(1, 1))
        chunk = param(split, "chunk")
        for context, splits in ((1, 1), (chunk, 1), (chunk + 1, 2), (4096, -(-4096 // chunk))):
            values = {"S": 1, "pos": context - 1}
            assert grid(split, **values)[0] == splits
            assert param(split, "splits", **values) == splits
            assert param(combine, "splits", **values) == splits


def test_a_context_of_one_split_needs_no_combine() -> None:
    (only,) = cached(cmax=64).dispatches(S=(1, 1))
    assert dict(only.key.axes)["partial"] is False


@pytest.mark.parametrize(("hq", "hkv"), [*GROUPS, (32, 1), (24, 2), (9, 1)])
def test_any_group_of_heads(hq: int, hkv: int) -> None:
    for caps in DEVICES.values():
        split = cached(hq, hkv, caps=caps).dispatches(S=(1, 1))[0]
        heads = dict(split.key.axes)["heads"]
        assert isinstance(heads, int)
        assert heads * param(split, "rounds") >= hq // hkv
        assert heads <= 8


@pytest.mark.parametrize("d", [*HEAD_DIMS, 1, 2, 3, 7, 512])
@pytest.mark.parametrize("device", DEVICES)
def test_any_head_width_fits_the_default_limits(d: int, device: str) -> None:
    for hq, hkv in ((8, 1), (4, 4)):
        cached(hq, hkv, d, caps=DEVICES[device]).dispatches(S=(1, 512))


@pytest.mark.parametrize("case", SDPA_ROWS, ids=lambda case: case.name)
@pytest.mark.parametrize("device", DEVICES)
def test_rows_of_the_reference(case: Sdpa, device: str) -> None:
    one = cached(case.hq, case.hkv, case.d, case.cmax, case.cmax, DEVICES[device])
    found = one.dispatches(S=(case.s, case.s), pos=(case.pos, case.pos))
    many = {"attention_stream", "attention_tiled"} & set(kernels(found))
    assert len(many) == (case.s >= 16)


@pytest.mark.parametrize("case", PAST_ROWS, ids=lambda case: case.name)
def test_rows_past_the_reference(case: Past) -> None:
    cache = (case.batch, case.cmax, case.hkv, case.d)
    mask = {"additive mask": "f32", "bool mask": "u32"}.get(case.kind)
    one = single(
        "sdpa_cached",
        {
            "q": (case.batch, case.s, case.hq, case.d), "k": cache, "v": cache,
            **({"mask": (mask, (case.s, case.pos + case.s))} if mask else {}),
        },
        (case.batch, case.s, case.hq, case.d),
        {"input_pos": case.pos, "causal": case.causal, "window": case.window,
         "softcap": case.softcap, "scale": case.scale},
    )  # fmt: skip
    for dispatch in one.dispatches():
        axes = dict(dispatch.key.axes)
        if "causal" in axes:
            assert (axes["causal"], axes["window"]) == (case.causal, case.window > 0)
        if "mask" in axes:
            assert axes["mask"] == (mask or "none")


def test_prefill_takes_little_scratch() -> None:
    case = SDPA["llama1b_prefill_512"]
    sizes = {}
    for choice in ("auto", "materialized"):
        one = cached(case.hq, case.hkv, case.d, 512, 512, options={"attention": choice})
        one.dispatches(S=(512, 512), pos=(0, 0))
        values = [one.planner.value(name) for name in one.planner.scratches]
        shapes = [(product(v.shape), DTYPE_BYTES[v.dtype]) for v in values]
        sizes[choice] = sum(evaluate(n, {"S": 512, "pos": 0}) * size for n, size in shapes)
    assert sizes["auto"] * 8 < sizes["materialized"]


def test_the_scratch_of_the_split_route_does_not_grow_with_prefill() -> None:
    one = cached()
    one.dispatches(S=(1, 512))
    rows = {
        evaluate(product(one.planner.value(name).shape[:1]), {}) for name in one.planner.scratches
    }
    assert rows == {15 * 32}


def test_the_materialized_route_on_request() -> None:
    one = cached(options={"attention": "materialized"}, cmax=512)
    found = one.dispatches(S=(1, 64))
    assert kernels(found) == ["attention_scores", "attention_softmax", "attention_values"]
    assert "option" in found[0].reason


def test_scores_too_large_for_a_binding_are_refused() -> None:
    with pytest.raises(OptionError, match="bytes of scores"):
        cached(options={"attention": "materialized"}).dispatches(S=(1, 512))


def test_grids_of_the_materialized_route_fold() -> None:
    caps = Caps(limits={"maxStorageBufferBindingSize": 2**30})
    one = cached(cmax=2048, most=2048, options={"attention": "materialized"}, caps=caps)
    scores, softmax, values = one.dispatches(S=(2048, 2048), pos=(0, 0))
    count = 32 * 2048 * 2048 // 64
    x, y, _ = grid(scores, S=2048, pos=0)
    assert count <= x * y < count + y
    assert y > 1
    assert grid(softmax, S=2048, pos=0)[1] > 1
    assert grid(values, S=2048, pos=0)[1] > 1


@pytest.mark.parametrize("device", DEVICES)
def test_attention_needs_no_subgroups(device: str) -> None:
    """Right for subgroups of any size, because it does not know them (34 h)."""
    for route in ("auto", "materialized"):
        one = cached(cmax=512, caps=DEVICES[device], options={"attention": route})
        for dispatch in one.dispatches(S=(1, 64)):
            assert "subgroup" not in LIBRARY.render(dispatch.key)


def test_an_unknown_route_is_refused() -> None:
    with pytest.raises(OptionError, match="sideways"):
        cached(options={"attention": "sideways"}).dispatches()


def test_with_caches_the_new_keys_are_written_first() -> None:
    cache, new = (1, 16, 2, 8), (1, "S", 2, 8)
    one = single(
        "sdpa_with_kv_cache",
        {"q": (1, "S", 6, 8), "k": new, "v": new, "k_cache": cache, "v_cache": cache},
        (1, "S", 6, 8),
        {"input_pos": POS},
        {"S": (1, 8), "pos": (0, 15)},
        mutates=("k_cache", "v_cache"),
        constraints=(Constraint(Op("+", "pos", "S"), 16),),
    )
    found = one.dispatches()
    assert kernels(found) == ["update_cache", "update_cache", "attention_decode"]


def test_plain_attention_reads_heads_before_tokens() -> None:
    one = single("sdpa", {"q": (2, 6, "S", 8), "k": (2, 2, 40, 8), "v": (2, 2, 40, 8)}, (2, 6, "S", 8),
                 {}, {"S": (1, 1)})  # fmt: skip
    (split,) = one.dispatches()
    assert dict(split.key.axes)["causal"] is False
    steps = [param(split, name, S=1) for name in ("q_b", "q_s", "q_h", "k_b", "k_c", "k_h")]
    assert steps == [12, 2, 2, 160, 2, 80]  # in vec4


def refused(change: Mapping[str, Any]) -> str:
    """Return the reason for which an altered node is refused."""
    tensors = {"q": (1, 4, 6, 8), "k": (1, 16, 2, 8), "v": (1, 16, 2, 8)}
    tensors |= {name: spec for name, spec in change.items() if name in ("q", "k", "v", "mask")}
    attrs = {"input_pos": 0, **{n: a for n, a in change.items() if n not in tensors}}
    one = single("sdpa_cached", tensors, (1, 4, 6, 8), attrs, {"pos": (0, 15), "neg": (-1, 3)})
    reason = one.check()
    assert reason is not None
    return reason


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"q": (1, 4, 5, 8)}, "no multiple"),
        ({"q": (2, 4, 6, 8)}, "batch"),
        ({"q": (1, 4, 6, 12)}, "head width"),
        ({"q": (4, 6, 8)}, r"expected f32 \[B, S, Hq, D\]"),
        ({"q": ("i32", (1, 4, 6, 8))}, "q is i32"),
        ({"v": (1, 16, 2, 4)}, "differ"),
        ({"k": ("i32", (1, 16, 2, 8))}, "expected f32 or f16"),
        ({"input_pos": POS}, "can pass the 16 slots"),
        ({"input_pos": SymbolAttr("neg")}, "negative"),
        ({"input_pos": 13}, "can pass the 16 slots"),
        ({"window": -1}, "negative"),
        ({"softcap": -1.0}, "negative"),
        ({"window": 3, "causal": False}, "causal"),
        ({"mask": (3, 4)}, "broadcast"),
        ({"mask": (4, 3)}, "shorter"),
        ({"mask": ("i32", (4, 4))}, "mask is i32"),
    ],
)
def test_what_attention_refuses(change: Mapping[str, Any], says: str) -> None:
    assert re.search(says, refused(change)), refused(change)


def update(value: object, cache: object, pos: Attr = 0) -> str | None:
    one = single("update_cache", {"v": value, "c": cache}, None, {"input_pos": pos}, mutates=("c",))  # type: ignore[dict-item]
    return one.check()


def test_what_update_cache_refuses() -> None:
    cache = (1, 8, 2, 4)
    assert update((1, 2, 2, 4), cache, 6) is None
    assert "batch of 2" in str(update((2, 2, 2, 4), cache))
    assert "8 slots" in str(update((1, 2, 2, 4), cache, 7))
    assert "heads" in str(update((1, 2, 3, 4), cache))
    assert "heads" in str(update((1, 2, 2, 8), cache))
