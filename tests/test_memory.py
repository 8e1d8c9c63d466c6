"""Slots: reuse after release, never two live tensors in one slot, sizes within [n/2, n]; and what
plans of many layers save by them. That outputs are the same bits without slots: test_replay_modes.
"""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import Any

import pytest

from runtime_py.memory import Lifetime, SlotPool
from runtime_py.options import SessionOptions
from runtime_py.plan import Plan, make_plan
from runtime_py.schema import Attr, Constraint, Graph, Node, Port, Symbol, SymbolAttr, Value
from runtime_py.symbols import Interval, Op, bounds
from tests.lowering import DEVICES


def overlapping(tensors: list[Lifetime], places: dict[str, int]) -> list[tuple[str, str]]:
    """Return pairs of tensors that live at once in one slot."""
    return [
        (a.name, b.name)
        for i, a in enumerate(tensors)
        for b in tensors[:i]
        if places[a.name] == places[b.name] and a.first <= b.last and b.first <= a.last
    ]


def test_a_slot_is_reused_after_release() -> None:
    pool = SlotPool()
    places = pool.place([Lifetime("a", 1024, 0, 1), Lifetime("b", 1024, 2, 3)])
    assert places == {"a": 0, "b": 0}
    assert pool.total_bytes == 1024
    assert pool.plain_bytes == 2048


def test_neighbours_in_time_do_not_share() -> None:
    places = SlotPool().place([Lifetime("a", 64, 0, 1), Lifetime("b", 64, 1, 2)])
    assert places["a"] != places["b"]


def test_a_slot_serves_only_half_to_full_size() -> None:
    pool = SlotPool()
    pool.place([Lifetime("big", 1000, 0, 0)])
    assert pool.place([Lifetime("half", 500, 0, 0)])["half"] == 0
    assert pool.place([Lifetime("small", 499, 0, 0)])["small"] == 1
    assert pool.place([Lifetime("larger", 1001, 0, 0)])["larger"] == 2


def test_best_fit_takes_the_smallest_slot() -> None:
    pool = SlotPool()
    pool.place([Lifetime("a", 100, 0, 0), Lifetime("b", 80, 0, 0)])
    assert pool.sizes_bytes[pool.place([Lifetime("c", 70, 0, 0)])["c"]] == 80


def test_programs_of_a_session_share_slots() -> None:
    pool = SlotPool()
    first = pool.place([Lifetime("a", 4096, 0, 9)])
    second = pool.place([Lifetime("other", 4096, 0, 9)])
    assert first["a"] == second["other"]


def test_without_reuse_every_tensor_has_its_own_slot() -> None:
    pool = SlotPool(reuse=False)
    tensors = [Lifetime(str(i), 64, i, i) for i in range(10)]
    assert sorted(pool.place(tensors).values()) == list(range(10))
    assert pool.total_bytes == pool.plain_bytes == 640


def test_random_lifetimes_never_collide() -> None:
    rng = random.Random(7)
    for _ in range(50):
        tensors = []
        for i in range(60):
            first = rng.randrange(100)
            tensors.append(
                Lifetime(str(i), rng.randrange(1, 5000), first, first + rng.randrange(20))
            )
        pool = SlotPool()
        places = pool.place(tensors)
        assert overlapping(tensors, places) == []
        for tensor in tensors:
            size = pool.sizes_bytes[places[tensor.name]]
            assert size // 2 <= tensor.size_bytes <= size
        assert pool.total_bytes < pool.plain_bytes


def test_the_collision_check_can_fail() -> None:
    tensors = [Lifetime("a", 64, 0, 5), Lifetime("b", 64, 3, 8)]
    assert overlapping(tensors, {"a": 0, "b": 0}) == [("b", "a")]


# -- plans of many layers

LAYERS = 16
HQ, HKV, D, CONTEXT, MOST = 32, 8, 64, 512, 128  # Llama-3.2-1B, its prefill of 128 tokens


def attention_layers() -> Graph:
    """Return a graph in which every layer's attention is the next one's queries."""
    cache = (1, CONTEXT, HKV, D)
    values = {
        "q": Value("q", "f32", (1, "S", HQ, D)),
        **{name: Value(name, "f32", cache) for name in ("k", "v")},
        **{f"y{i}": Value(f"y{i}", "f32", (1, "S", HQ, D)) for i in range(LAYERS)},
    }
    attrs: dict[str, Attr] = {"input_pos": SymbolAttr("pos"), "causal": True}
    nodes = tuple(
        Node(f"layer{i}", "sdpa_cached", (f"y{i - 1}" if i else "q", "k", "v"), (f"y{i}",), attrs)
        for i in range(LAYERS)
    )
    return Graph(
        symbols=(Symbol("S", 1, MOST), Symbol("pos", 0, CONTEXT - 1)),
        constraints=(Constraint(Op("+", "S", "pos"), CONTEXT),),
        values=values,
        constants={},
        buffers={},
        nodes=nodes,
        inputs=tuple(Port(name, name) for name in ("q", "k", "v")),
        outputs=(Port("y", f"y{LAYERS - 1}"),),
    )


def planned(device: str, tokens: Interval, **options: Any) -> tuple[Plan, SlotPool]:
    """Return the plan of all layers and its slots."""
    pool = SlotPool(reuse=options.get("scratch_pool", True))
    given = {**asdict(SessionOptions()), **options}
    return make_plan(attention_layers(), DEVICES[device], given, {"S": tokens}, pool), pool


def spans(plan: Plan) -> list[Lifetime]:
    """Return from which dispatch to which each temporary is read or written, by its bindings."""
    used: dict[str, list[int]] = {}
    for index, dispatch in enumerate(plan.dispatches):
        for binding in dispatch.bindings:
            used.setdefault(plan.root(binding.value), []).append(index)
    return [Lifetime(n, 0, min(at), max(at)) for n, at in used.items() if n in plan.places]


def attention_scratch(plan: Plan) -> dict[str, int]:
    """Return the slot of every tensor that only one attention node sees."""
    return {name: slot for name, slot in plan.places.items() if "/" in name}


def upper_bytes(plan: Plan, name: str) -> int:
    size = 4
    for dim in plan.values[name].shape:
        size *= bounds(dim, plan.ranges)[1]
    return size


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("tokens", "options"),
    [
        ((1, MOST), {"attention": "materialized"}),
        ((MOST, MOST), {"attention": "materialized"}),
        ((1, 1), {}),
    ],
    ids=["scores", "scores-of-128", "partial-sums"],
)
def test_sixteen_layers_share_the_scratch_of_attention(
    device: str, tokens: Interval, options: dict[str, Any]
) -> None:
    plan, pool = planned(device, tokens, **options)
    plain, alone = planned(device, tokens, **options, scratch_pool=False)
    assert overlapping(spans(plan), dict(plan.places)) == []
    slots = attention_scratch(plan)
    assert len(slots) >= 2 * LAYERS
    shared = sum(pool.sizes_bytes[slot] for slot in set(slots.values()))
    apart = sum(alone.sizes_bytes[slot] for slot in attention_scratch(plain).values())
    assert len(set(plain.places.values())) == len(plain.places)
    assert apart == pool.plain_bytes - sum(
        upper_bytes(plan, name) for name in plan.places if name not in slots
    )
    print(f"{device}: {shared} bytes of attention scratch, {apart} without slots")
    assert apart >= 10 * shared


@pytest.mark.parametrize("device", DEVICES)
def test_a_collision_in_a_plan_would_be_seen(device: str) -> None:
    """The control: every temporary in one slot."""
    plan, _ = planned(device, (1, 1))
    assert overlapping(spans(plan), dict.fromkeys(plan.places, 0))
