"""Sampling: filters against plain formulas in float64, the generator against its published
vectors.
"""

from __future__ import annotations

import array
import math
import random
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from runtime_py import philox
from runtime_py.errors import InputError, NonFiniteError, OptionError
from runtime_py.sampling import Sampler, SamplingOptions

MAX = 0xFFFFFFFF
# Random123 1.14, kat_vectors, philox4x32 with 10 rounds: counter, key, result
PUBLISHED = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((MAX,) * 4, (MAX, MAX), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "result"), PUBLISHED)
def test_philox_equals_the_published_vectors(counter: Any, key: Any, result: Any) -> None:
    assert philox.philox4x32(counter, key) == result


def test_uniform_is_open_exact_in_float32_and_even() -> None:
    numbers = [philox.uniform(7, position) for position in range(20000)]
    assert all(0.0 < u < 1.0 for u in numbers)
    assert all(struct.unpack("f", struct.pack("f", u))[0] == u for u in numbers)
    counts = Counter(int(u * 10) for u in numbers)
    assert all(abs(counts[i] - 2000) < 6 * math.sqrt(1800) for i in range(10))
    assert philox.uniform(7, 12) == 0.3122097849845886  # the example in the module's text


def test_seed_uses_all_64_bits() -> None:
    assert philox.uniform(1, 0) != philox.uniform(1 + (1 << 32), 0)
    assert philox.derive(5, 1) != philox.derive(5, 2)
    assert philox.derive(5, 1) >> 32


def draw(options: SamplingOptions, logits: Any, position: int = 0, seen: Sequence[int] = ()) -> int:
    return Sampler(options, known_tokens=1 << 30, seed=options.seed or 0).sample(
        logits, position, seen
    )


def survivors(logits: Sequence[float], draws: int = 2000, **options: Any) -> set[int]:
    """Return every id that is drawn over many positions."""
    chosen = SamplingOptions(**{"temperature": 1.0, "seed": 3, **options})
    return {draw(chosen, logits, position) for position in range(draws)}


@pytest.mark.parametrize("kind", [list, tuple, lambda x: array.array("f", x)])
def test_greedy_takes_the_first_largest(kind: Any) -> None:
    logits = kind([0.5, 2.0, -1.0, 2.0])
    assert draw(SamplingOptions(), logits) == 1
    assert draw(SamplingOptions(), memoryview(array.array("f", [0.5, 2.0, -1.0, 2.0]))) == 1


def test_case_32_padded_rows_are_never_drawn() -> None:
    logits = [0.0, 1.0, 0.5, 99.0, 99.0]
    for options in (SamplingOptions(), SamplingOptions(temperature=5.0, seed=1)):
        sampler = Sampler(options, known_tokens=3, seed=1)
        assert {sampler.sample(logits, position) for position in range(200)} <= {0, 1, 2}
    assert Sampler(SamplingOptions(), 3, 0).sample(logits, 0) == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_finite_are_refused(bad: float) -> None:
    for options in (SamplingOptions(), SamplingOptions(temperature=1.0)):
        with pytest.raises(NonFiniteError, match="id 2"):
            draw(options, [0.0, 1.0, bad, 0.0])


def test_minus_infinity_forbids_an_id() -> None:
    assert draw(SamplingOptions(), [-math.inf, 1.0]) == 1
    assert survivors([-math.inf, 1.0, 1.0]) == {1, 2}
    with pytest.raises(NonFiniteError, match="all are -infinity"):
        draw(SamplingOptions(), [-math.inf, -math.inf])


def test_no_logits_are_refused() -> None:
    with pytest.raises(InputError):
        draw(SamplingOptions(), [])


def test_temperature_shapes_the_distribution() -> None:
    logits = [0.0, 1.0, 2.0]
    for temperature in (0.5, 1.0, 2.0):
        options = SamplingOptions(temperature=temperature, seed=11)
        counts = Counter(draw(options, logits, position) for position in range(20000))
        weights = [math.exp(x / temperature) for x in logits]
        for i, weight in enumerate(weights):
            expected = weight / sum(weights)
            spread = math.sqrt(expected * (1 - expected) / 20000)
            assert abs(counts[i] / 20000 - expected) < 5 * spread


def test_tiny_temperature_is_greedy() -> None:
    assert survivors([0.0, 1.0, 0.99], temperature=1e-9) == {1}


def test_top_k_keeps_the_k_largest_and_equals_of_the_last() -> None:
    assert survivors([0.0, 3.0, 1.0, 2.0], top_k=1) == {1}
    assert survivors([0.0, 3.0, 1.0, 2.0], top_k=2) == {1, 3}
    assert survivors([1.0, 3.0, 1.0, 0.0], top_k=2) == {0, 1, 2}
    assert survivors([1.0, 1.1], top_k=50) == {0, 1}


def test_top_p_keeps_the_token_that_crosses_the_line() -> None:
    logits = [math.log(p) for p in (0.5, 0.25, 0.15, 0.1)]
    assert survivors(logits, top_p=0.4) == {0}
    assert survivors(logits, top_p=0.6) == {0, 1}
    assert survivors(logits, top_p=0.8) == {0, 1, 2}
    assert survivors(logits, top_p=0.99) == {0, 1, 2, 3}
    assert survivors(logits, top_p=1e-9) == {0}


def test_top_p_among_equals_takes_the_lower_ids() -> None:
    assert survivors([0.0] * 10, top_p=0.35) == {0, 1, 2, 3}
    assert survivors([0.0] * 5000, draws=100, top_p=0.001) == {0, 1, 2, 3, 4}


def test_min_p_is_relative_to_the_best() -> None:
    logits = [math.log(p) for p in (0.5, 0.26, 0.14, 0.1)]
    assert survivors(logits, min_p=0.5) == {0, 1}
    assert survivors(logits, min_p=0.25) == {0, 1, 2}


def test_filters_follow_each_other() -> None:
    logits = [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]
    # top-k leaves 0.4 0.3 0.2; of these top-p 0.7 (0.63 of 0.9) takes two, as mass above rank 2 is
    # 0.777
    assert survivors(logits, top_k=3, top_p=0.7) == {0, 1}
    assert survivors(logits, top_k=3, top_p=0.8, min_p=0.6) == {0, 1}


def test_repetition_penalty_moves_both_signs_down() -> None:
    assert draw(SamplingOptions(repetition_penalty=1.5), [2.0, 1.9, 0.0], seen=[0]) == 1
    assert draw(SamplingOptions(repetition_penalty=1.5), [-1.0, -1.2, -9.0], seen=[0, 0]) == 1
    assert draw(SamplingOptions(repetition_penalty=1.5), [2.0, 1.9], seen=[0, 1, 77]) == 0


@pytest.mark.parametrize("seed", range(5))
def test_candidates_equal_a_full_sort(seed: int) -> None:
    rng = random.Random(seed)
    logits = [rng.gauss(0, 2) for _ in range(997)]
    top_k, top_p, temperature = rng.choice([0, 5, 300]), rng.choice([0.3, 0.9, 0.999]), 1.7
    options = SamplingOptions(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    ids, weights = Sampler(options, 997, seed)._candidates(list(logits), max(logits))
    ranked = sorted(range(997), key=lambda i: -logits[i])[: top_k or None]
    shares = [math.exp(logits[i] / temperature) for i in ranked]
    total, mass, kept = sum(shares), 0.0, []
    for i, share in zip(ranked, shares, strict=True):
        if mass >= top_p * total:
            break
        kept.append(i)
        mass += share
    assert list(ids) == sorted(kept)
    assert len(weights) == len(kept)


def test_case_34b_a_seed_fixes_the_draw_whatever_came_between() -> None:
    logits = [0.1 * i for i in range(50)]
    options = SamplingOptions(temperature=1.0, seed=7)
    first = [draw(options, logits, position) for position in range(40)]
    draw(SamplingOptions(temperature=1.0, seed=99), logits, 3)
    assert [draw(options, logits, position) for position in range(40)] == first
    assert len(set(first)) > 5
    other = SamplingOptions(temperature=1.0, seed=8)
    assert [draw(other, logits, position) for position in range(40)] != first


BAD_OPTIONS = [
    ({"temperature": -1}, "temperature"),
    ({"temperature": math.nan}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_k": -1}, "top_k"),
    ({"top_k": 2.5}, "top_k"),
    ({"top_p": 0.0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"min_p": -0.1}, "min_p"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"seed": -1}, "seed"),
    ({"seed": 1 << 64}, "seed"),
    ({"stop": [""]}, "stop"),
    ({"stop": [3]}, "stop"),
    ({"stop": ["x"] * 65}, "stop"),
    ({"temprature": 1}, "temprature"),
]


@pytest.mark.parametrize(("changes", "name"), BAD_OPTIONS)
def test_bad_options_are_named(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(OptionError, match=name):
        SamplingOptions().updated(changes)


def test_options_take_one_stop_string_or_many() -> None:
    assert SamplingOptions(stop="END").stop == ("END",)  # type: ignore[arg-type]
    assert SamplingOptions().updated({"stop": ["a", "b"]}).stop == ("a", "b")


def test_generation_defaults_are_read() -> None:
    generation = {"temperature": 0.6, "top_p": 0.9, "eos_token_id": [1], "top_k": None}
    assert SamplingOptions.from_generation(generation) == SamplingOptions(
        temperature=0.6, top_p=0.9
    )
    assert SamplingOptions.from_generation({**generation, "do_sample": False}).temperature == 0.0
