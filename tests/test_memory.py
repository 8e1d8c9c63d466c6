"""Slots: reuse after release, never two live tensors in one slot, sizes within [n/2, n]."""

from __future__ import annotations

import random

from runtime_py.memory import Lifetime, SlotPool


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
