"""From logits to the next token id.

Input:  V logits of the last position, the options of a request, the ids so far.
Output: one token id.
Way of the data: session -> logits -> **sampling** -> token id -> tokenizer.

The filters stand in the order of Hugging Face's `generate`:
    penalty r    x_i := x_i / r if x_i > 0 else x_i * r, for every id of prompt and reply
                 (Keskar et al. 2019, "CTRL", section 4.1, with Hugging Face's rule of signs)
    temperature  w_i := exp((x_i - max x) / T); T = 0 takes the largest logit, of equals the first
    top-k        keep x_i >= the k-th largest; equals of the k-th all stay
    top-p        keep i while the mass ranked above i is < p of the whole
                 (Holtzman et al. 2019, section 3.1)
    min-p        keep w_i >= p * max w (Nguyen et al. 2024, "Turning Up the Heat", section 3)
The draw walks the kept ids upwards until their weight passes u * sum(w). u is
`philox.uniform(seed, position)`, so a reply depends on its seed and its place, never on what was
sampled before it.

    sampler = Sampler(SamplingOptions(temperature=0.7, top_p=0.9), known_tokens=49152, seed=7)
    token = sampler.sample(logits, position=12, seen={3, 17})
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Any, Protocol, TypeAlias

from runtime_py import philox
from runtime_py.errors import InputError, NonFiniteError, OptionError

FIRST_GUESS = 64  # candidates looked at before top-p asks for more; a nucleus is rarely wider
MAX_STOPS = 64


class FloatArray(Protocol):
    """A `memoryview` or `array` of floats, or a numpy array."""

    def tolist(self) -> Sequence[float]:
        """Return the numbers as Python floats."""


Row: TypeAlias = "FloatArray | list[float] | tuple[float, ...]"


@dataclass(frozen=True)
class SamplingOptions:
    """How a reply is drawn and when it ends. The default is greedy, until a stop or the context's
    end.
    """

    max_tokens: int | None = None
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            _check_int("max_tokens", self.max_tokens, 1, 2**31 - 1)
        if self.seed is not None:
            _check_int("seed", self.seed, 0, philox.SEED_LIMIT - 1)
        _check_int("top_k", self.top_k, 0, 2**31 - 1)
        _check_number("temperature", self.temperature, 0.0, 100.0)
        _check_number("top_p", self.top_p, 0.0, 1.0, open_below=True)
        _check_number("min_p", self.min_p, 0.0, 1.0)
        _check_number("repetition_penalty", self.repetition_penalty, 0.0, 100.0, open_below=True)
        object.__setattr__(self, "stop", _stop_strings(self.stop))

    def updated(self, changes: Mapping[str, Any]) -> SamplingOptions:
        """Return these options with `changes`; raises `OptionError` for a name or value not
        taken.
        """
        known = [field.name for field in fields(self)]
        for name in changes:
            if name not in known:
                raise OptionError(
                    f"unknown sampling option {name!r}", hint="known are " + ", ".join(known)
                )
        return replace(self, **changes)

    @staticmethod
    def from_generation(generation: Mapping[str, Any]) -> SamplingOptions:
        """Return what a bundle's generation defaults ask for; `do_sample: false` means greedy."""
        names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
        given = {name: generation[name] for name in names if generation.get(name) is not None}
        if generation.get("do_sample") is False:
            given["temperature"] = 0.0
        return SamplingOptions().updated(given)


class Sampler:
    """Draws the ids of one request. `known_tokens` is the tokenizer's size: rows past it are never
    drawn.
    """

    def __init__(self, options: SamplingOptions, known_tokens: int, seed: int) -> None:
        self.options = options
        self.known_tokens = known_tokens
        self.seed = seed

    def sample(self, logits: Row, position: int, seen: Collection[int] = ()) -> int:
        """Return the id for `position` of the context; `seen` are the ids of prompt and reply so
        far.

        Raises `NonFiniteError` if a logit is NaN or +infinity (-infinity is a model's way to forbid
        an id).
        """
        scores = self._scores(logits)
        if self.options.repetition_penalty != 1.0:
            _penalise(scores, seen, self.options.repetition_penalty)
        best = max(scores)
        if self.options.temperature == 0.0:
            return scores.index(best)
        ids, weights = self._candidates(scores, best)
        sums = list(accumulate(weights))
        return ids[bisect_right(sums, philox.uniform(self.seed, position) * sums[-1])]

    def _scores(self, logits: Row) -> list[float]:
        scores = list(logits if isinstance(logits, (list, tuple)) else logits.tolist())
        del scores[self.known_tokens :]
        if not scores:
            raise InputError("there are no logits to sample from")
        if not math.isfinite(sum(scores)):
            _refuse_non_finite(scores)
        return scores

    def _candidates(self, scores: list[float], best: float) -> tuple[Sequence[int], list[float]]:
        """Return the ids that pass the filters, upwards, and their weights relative to the best
        one.
        """
        options = self.options
        ids: Sequence[int] = range(len(scores))
        if 0 < options.top_k < len(scores):
            least = heapq.nlargest(options.top_k, scores)[-1]
            ids = [i for i, score in enumerate(scores) if score >= least]
        inverse, exp = 1.0 / max(options.temperature, 1e-6), math.exp
        weights = [exp((scores[i] - best) * inverse) for i in ids]
        if options.top_p < 1.0:
            ids, weights = _nucleus(ids, weights, options.top_p)
        if options.min_p > 0.0:
            kept = [i for i, weight in enumerate(weights) if weight >= options.min_p]
            ids, weights = [ids[i] for i in kept], [weights[i] for i in kept]
        return ids, weights


def _nucleus(
    ids: Sequence[int], weights: list[float], top_p: float
) -> tuple[list[int], list[float]]:
    """Return the fewest candidates that hold `top_p` of the weight, in the order given."""
    least, spare = _nucleus_edge(weights, top_p * sum(weights))
    kept = []
    for i, weight in enumerate(weights):
        if weight > least:
            kept.append(i)
        elif weight == least and spare > 0:
            kept.append(i)
            spare -= 1
    return [ids[i] for i in kept], [weights[i] for i in kept]


def _nucleus_edge(weights: list[float], wanted: float) -> tuple[float, int]:
    """Return the least weight of the nucleus, and how many of the candidates of just that weight
    belong to it.
    """
    count = FIRST_GUESS
    while True:
        ranked = heapq.nlargest(count, weights) if count < len(weights) else sorted(weights)[::-1]
        mass, rank = 0.0, 0
        while rank < len(ranked) and mass < wanted:
            mass += ranked[rank]
            rank += 1
        if mass >= wanted or len(ranked) == len(weights):
            least = ranked[max(rank, 1) - 1]
            return least, sum(1 for weight in ranked[: max(rank, 1)] if weight == least)
        count *= 16


def _penalise(scores: list[float], seen: Iterable[int], penalty: float) -> None:
    for i in set(seen):
        if i < len(scores):
            scores[i] = scores[i] / penalty if scores[i] > 0.0 else scores[i] * penalty


def _refuse_non_finite(scores: list[float]) -> None:
    """Raise unless the only numbers that are not finite are -infinity, and not all are."""
    bad = [i for i, score in enumerate(scores) if score != score or score == math.inf]
    if bad or max(scores) == -math.inf:
        where = f"first at id {bad[0]}" if bad else "all are -infinity"
        raise NonFiniteError(
            f"{len(bad) or len(scores)} of {len(scores)} logits are not finite ({where})",
            hint="exporter.run with options={'debug': 5} finds the first bad intermediate",
        )


def _stop_strings(value: object) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(s, str) and s for s in items):
        raise OptionError(f"stop must be non-empty strings, got {value!r}")
    if len(items) > MAX_STOPS:
        raise OptionError(f"stop must be at most {MAX_STOPS} strings, got {len(items)}")
    return tuple(items)


def _check_int(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise OptionError(f"{name} must be an integer in {least}..{most}, got {value!r}")


def _check_number(
    name: str, value: object, least: float, most: float, open_below: bool = False
) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    inside = number and least <= float(value) <= most  # type: ignore[arg-type]
    if not inside or (open_below and value == least):
        sign = ">" if open_below else ">="
        raise OptionError(
            f"{name} must be a number {sign} {least:g} and <= {most:g}, got {value!r}"
        )
