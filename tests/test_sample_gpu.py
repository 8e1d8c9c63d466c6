"""The `sample` kernels against the host's `Sampler`: rows of options, widths and positions.

Both draw by inverse CDF with the same u, so they agree on every row but those where u, or the edge
of a filter, lies within rounding of a boundary (`MARGIN`). Such rows are counted, and must be few.
"""

from __future__ import annotations

import collections
import contextlib
import math
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from exporter.bundle import write_bundle
from runtime_py import philox, sampling_words
from runtime_py.next_token import DRAWN, NEXT, SEEN, SETTINGS
from runtime_py.sampling import Sampler, SamplingOptions
from runtime_py.schema import Attr, Buffer, Graph, Node, Port, Symbol, SymbolAttr, Value
from tests import gpu
from tests.tolerances import SAMPLING_MARGIN

pytestmark = pytest.mark.gpu
FloatArray = npt.NDArray[np.float32]
WIDTHS = (1, 2, 255, 256, 257, 1000, 20011, 49152)  # 20011: three parts on a CPU, the last ragged
NEAR_SHARE = (
    0.2  # of the rows may lie within rounding: flat ones over 49152 ids, whose spans are 1e-5
)
SEEN_IDS = (0, 1, 3, 200, 255, 256, 999, 40000, 49151)


@dataclass(frozen=True)
class Row:
    """Options by name, and whether the ids past half of the row are unknown to the tokenizer."""

    name: str
    options: SamplingOptions
    half: bool = False


def row(name: str, half: bool = False, **options: Any) -> Row:
    return Row(name, SamplingOptions(**options), half)


ROWS = (
    row("greedy"),
    row("greedy-penalty", repetition_penalty=1.7),
    row("greedy-half", half=True),
    row("plain", temperature=1.0),
    row("hot", temperature=3.0),
    row("cold", temperature=1e-9),
    row("half", half=True, temperature=2.0, top_p=0.9),
    row("top-k-1", temperature=1.0, top_k=1),
    row("top-k-2", temperature=1.0, top_k=2),
    row("top-k-40", temperature=1.3, top_k=40),
    row("top-k-777", temperature=2.0, top_k=777),
    row("top-p-0.1", temperature=1.0, top_p=0.1),
    row("top-p-0.95", temperature=1.5, top_p=0.95),
    row("top-p-0.999", temperature=2.5, top_p=0.999),
    row("min-p", temperature=1.5, min_p=0.05),
    row("penalty", temperature=1.0, repetition_penalty=1.4),
    row("reward", temperature=1.0, repetition_penalty=0.6),
    row("all", temperature=1.2, top_k=50, top_p=0.9, min_p=0.02, repetition_penalty=1.1),
    row("all-wide", temperature=4.0, top_k=5000, top_p=0.99, min_p=0.001, repetition_penalty=1.3),
)


def logits_of(kind: str, width: int, seed: int) -> FloatArray:
    """Return a row of logits: `zipf`, about as a model's; `steps`, with many equals; `flat`."""
    rng = np.random.default_rng(seed)
    if kind == "zipf":
        ranks = rng.permutation(width) + 1
        return (15 - 1.5 * np.log(ranks) + rng.normal(0, 0.3, width)).astype(np.float32)
    if kind == "steps":
        return rng.integers(-4, 5, width).astype(np.float32)
    return np.zeros(width, np.float32)


@dataclass(frozen=True)
class Sample:
    """A session with two `sample` nodes a slot, all over the logits that the caller gives."""

    session: gpu.Opened
    width: int

    def prepare(self, slots: Sequence[tuple[SamplingOptions, int]]) -> None:
        """Write the settings of every slot: options and how many ids are known; `SEEN_IDS` are
        seen.
        """
        seen = sampling_words.seen([i for i in SEEN_IDS if i < self.width], self.width)
        arrays = {}
        for i, (options, known) in enumerate(slots):
            words = sampling_words.settings(options, known, options.seed or 0)
            arrays[f"{SETTINGS}.{i}"] = np.frombuffer(words, "<u4")
            arrays[f"{SEEN}.{i}"] = np.frombuffer(seen, "<u4")
        self.session.host.call("restore", {"handle": self.session.handle}, arrays)

    def step(self, logits: FloatArray, position: int, output: str, slots: int = 1) -> list[int]:
        """Return what one step chooses in the first slots, with the ids that were seen by now."""
        names = [f"{output}.{i}" for i in range(slots)]
        params = {
            "handle": self.session.handle,
            "symbols": {"position": position},
            "outputs": names,
        }
        arrays = {"logits": logits.reshape(1, -1, self.width)}
        got = self.session.host.call("run", params, arrays)[1]
        assert list(got) == names
        return [int(got[name].item()) for name in names]

    def draw(
        self, slots: Sequence[tuple[SamplingOptions, int]], logits: FloatArray, position: int
    ) -> list[int]:
        """Return the id of every slot at `position`; a greedy one is `next`, and `drawn` as
        well.
        """
        self.prepare(slots)
        drawn = self.step(logits, position, DRAWN, len(slots))
        if any(options.temperature == 0.0 for options, _ in slots):
            self.prepare(slots)
            for (options, _), chosen, token in zip(
                slots, self.step(logits, position, NEXT, len(slots)), drawn, strict=True
            ):
                assert options.temperature > 0.0 or chosen == token
        return drawn


@pytest.fixture(scope="module", params=WIDTHS, ids=lambda width: f"V{width}")
def sample(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Sample]:
    """The kernels at one width, as the adapter's own tuning has them."""
    with opened(tmp_path_factory.mktemp("sample"), request.param) as sample:
        yield sample


@pytest.fixture(scope="module", params=[1000, 5000], ids=lambda width: f"V{width}")
def sample_as_gpu(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Sample]:
    """The kernels that a GPU gets: many workgroups of 256 threads."""
    with opened(tmp_path_factory.mktemp("sample"), request.param, {"tuning": "gpu"}) as sample:
        yield sample


@contextlib.contextmanager
def opened(
    folder: pathlib.Path, width: int, options: dict[str, Any] | None = None, rows: int = 1
) -> Iterator[Sample]:
    """Load a bundle whose steps choose from the logits that they are given, in `len(ROWS)`
    slots.
    """
    values, buffers, ports = [Value("logits", "f32", (1, rows, width))], [], []
    nodes: list[Node] = []
    for i in range(len(ROWS)):
        settings, seen = f"{SETTINGS}.{i}", f"{SEEN}.{i}"
        values += [Value(settings, "u32", (16,)), Value(seen, "u32", (-(-width // 32),))]
        buffers += [settings, seen]
        for kind in (NEXT, DRAWN):
            name = f"{kind}.{i}"
            values.append(Value(name, "i32", (1, 1)))
            ports.append(Port(name, name))
            attrs: dict[str, Attr] = {"draws": kind == DRAWN, "position": SymbolAttr("position")}
            nodes.append(Node(name, "sample", ("logits", settings, seen), (name,), attrs, (seen,)))
    graph = Graph(
        symbols=(Symbol("position", 0, 2**31 - 1),),
        constraints=(),
        values={value.name: value for value in values},
        constants={},
        buffers={name: Buffer(name, None) for name in buffers},
        nodes=tuple(nodes),
        inputs=(Port("logits", "logits"),),
        outputs=tuple(sorted(ports, key=lambda port: port.name.startswith(NEXT))),
        specializations=({},),
    )
    write_bundle(folder / "sample", graph, {})
    with gpu.opened(folder / "sample", options) as session:
        yield Sample(session, width)


@dataclass(frozen=True)
class Draw:
    """What the host draws in float64: its id, the mass below and up to every id, and how far the
    nearest edge of a filter is from taking or leaving an id of some mass.
    """

    token: int
    u: float
    sums: npt.NDArray[np.float64]
    edge_gap: float

    @property
    def gap(self) -> float:
        """How far u, or the edge of a filter, is from a boundary, as a part of the whole mass."""
        inner = np.abs(self.sums[:-1] - self.u)
        return min(self.edge_gap, float(inner.min()) if len(inner) else 1.0)

    def distance(self, token: int) -> float:
        """Return how far u lies outside the span of `token`."""
        low = self.sums[token - 1] if token else 0.0
        return max(0.0, float(low - self.u), float(self.u - self.sums[token]))


def on_host(options: SamplingOptions, logits: FloatArray, position: int, known: int) -> Draw:
    """Return what the host draws where `SEEN_IDS` were seen."""
    return on_draw(options, logits, position, known, [i for i in SEEN_IDS if i < known])


def on_draw(
    options: SamplingOptions, logits: FloatArray, position: int, known: int, seen: list[int]
) -> Draw:
    """Return what the host draws; the filters once more, in numpy."""
    seed = options.seed or 0
    token = Sampler(options, known, seed).sample(logits, position, seen)
    x, gaps = logits[:known].astype(np.float64), [1.0]
    if (r := options.repetition_penalty) != 1.0:
        x[seen] = np.where(x[seen] > 0, x[seen] / r, x[seen] * r)
        cut = options.top_k if 0 < options.top_k < known else 1
        others = np.abs(x - np.sort(x)[-cut])
        gaps.append(float(others[others > 0].min(initial=1.0)))
    if options.temperature == 0.0:
        return Draw(token, 0.5, (np.arange(known) >= token).astype(np.float64), min(gaps))
    w = np.exp((x - x.max()) / max(options.temperature, 1e-6))
    if 0 < options.top_k < known:
        w[x < np.sort(x)[-options.top_k]] = 0.0
    if options.top_p < 1.0:
        order = np.lexsort((np.arange(known), -w))
        sums = np.cumsum(w[order]) / w.sum()
        last = int(np.searchsorted(sums, options.top_p))
        if w[order[last]] / w.sum() > SAMPLING_MARGIN / 2:
            gaps.append(float(np.abs(sums - options.top_p).min()))
        w[order[last + 1 :]] = 0.0
    if options.min_p > 0.0:
        gaps.append(float(np.abs(w - options.min_p).min()))
        w[w < options.min_p] = 0.0
    return Draw(token, philox.uniform(seed, position), np.cumsum(w) / w.sum(), min(gaps))


def slots_of(width: int, rows: Sequence[Row], seed: int) -> list[tuple[SamplingOptions, int]]:
    return [
        (replace(row.options, seed=seed), max(1, width // 2) if row.half else width) for row in rows
    ]


def compare(sample: Sample, kind: str, positions: Sequence[int]) -> list[str]:
    """Draw all rows at every position and hold them against the host; return those that were not
    far from any boundary.
    """
    near = []
    for position in positions:
        slots = slots_of(sample.width, ROWS, philox.derive(5, position))
        logits = logits_of(kind, sample.width, position)
        got = sample.draw(slots, logits, position)
        for row, (options, known), token in zip(ROWS, slots, got, strict=True):
            want = on_host(options, logits, position, known)
            label = f"{row.name} {kind} V={sample.width} position={position}"
            assert 0 <= token < known, label
            if want.gap > SAMPLING_MARGIN:
                assert token == want.token, label
                continue
            near.append(label)
            if want.edge_gap > SAMPLING_MARGIN:
                assert want.distance(token) < SAMPLING_MARGIN, label
    return near


def test_the_id_is_the_hosts(sample: Sample) -> None:
    near = compare(sample, "zipf", range(1, 4))
    print(f"within rounding of a boundary: {near}")
    assert len(near) <= NEAR_SHARE * 3 * len(ROWS), "the comparison is of few rows"


@pytest.mark.parametrize("kind", ["steps", "flat"])
def test_equal_logits_are_taken_in_order(sample: Sample, kind: str) -> None:
    compare(sample, kind, [1])


def test_the_kernels_of_a_gpu_give_the_same(sample_as_gpu: Sample) -> None:
    near = compare(sample_as_gpu, "zipf", range(1, 3))
    assert len(near) <= NEAR_SHARE * 2 * len(ROWS)
    compare(sample_as_gpu, "steps", [1])


@pytest.mark.parametrize("tuning", ["cpu", "gpu"])
@pytest.mark.parametrize("width", [257, 8195])
def test_the_last_of_several_rows_counts(tmp_path: pathlib.Path, width: int, tuning: str) -> None:
    logits = np.stack([logits_of("zipf", width, seed) for seed in (1, 2, 3)])
    with opened(tmp_path, width, {"tuning": tuning}, rows=3) as sample:
        near = 0
        slots = slots_of(width, ROWS, 11)
        for row, (options, known), token in zip(
            ROWS, slots, sample.draw(slots, logits, 4), strict=True
        ):
            want = on_host(options, logits[2], 4, known)
            near += want.gap <= SAMPLING_MARGIN
            assert token == want.token or want.gap <= SAMPLING_MARGIN, row.name
    assert near <= NEAR_SHARE * len(ROWS)


DRAWING = SamplingOptions(temperature=1.0, top_k=3, top_p=0.9, repetition_penalty=1.2)
KINDS = (SamplingOptions(), SamplingOptions(temperature=2.0), DRAWING)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("place", ["first", "last"])
def test_logits_that_are_not_finite_give_a_negative_id(
    sample: Sample, bad: float, place: str
) -> None:
    logits = logits_of("zipf", sample.width, 1)
    logits[0 if place == "first" else -1] = bad
    assert max(sample.draw([(options, sample.width) for options in KINDS], logits, 1)) < 0
    if sample.width > 1 and place == "last":
        slots = [(options, sample.width - 1) for options in KINDS]
        assert min(sample.draw(slots, logits, 1)) >= 0


def test_minus_infinity_forbids_an_id(sample: Sample) -> None:
    logits = np.full(sample.width, -math.inf, np.float32)
    slots = [(options, sample.width) for options in KINDS]
    assert max(sample.draw(slots, logits, 1)) < 0, "all are forbidden"
    logits[sample.width // 2] = -3.0
    assert set(sample.draw(slots, logits, 1)) == {sample.width // 2}


def test_a_chosen_id_is_marked_as_seen(sample: Sample) -> None:
    """Steps without a word from the host: each knows what those before it chose."""
    options = SamplingOptions(repetition_penalty=3.0)
    sampler = Sampler(options, sample.width, 0)
    sample.prepare([(options, sample.width)])
    seen = {i for i in SEEN_IDS if i < sample.width}
    logits = np.abs(logits_of("zipf", sample.width, 7))
    for step in range(5):
        token = sampler.sample(logits, step, seen)
        assert sample.step(logits, step, NEXT if step % 2 else DRAWN) == [token], step
        seen.add(token)


def test_draws_follow_the_distribution(tmp_path: pathlib.Path) -> None:
    """A chi-squared test: 19 seeds at 40 positions over one row of 5 ids."""
    logits = np.array([0.0, 1.0, 2.0, -1.0, 1.5], np.float32)
    weights = np.exp(logits.astype(np.float64) / 1.3)
    slots = [(SamplingOptions(temperature=1.3, seed=11 + i), 5) for i in range(len(ROWS))]
    with opened(tmp_path, 5) as sample:
        sample.prepare(slots)
        draws = [sample.step(logits, at, DRAWN, len(slots)) for at in range(40)]
    counts = collections.Counter(token for tokens in draws for token in tokens)
    wanted = counts.total() * weights / weights.sum()
    distance = sum((counts[i] - wanted[i]) ** 2 / wanted[i] for i in range(5))
    assert distance < 23.5, counts  # 4 degrees of freedom: one in 10000 by chance


def test_the_comparison_can_fail(sample_as_gpu: Sample) -> None:
    """The control: another seed, and another temperature, are noticed."""
    options = SamplingOptions(temperature=1.0, seed=7)
    slots = [(options, sample_as_gpu.width)]
    rows = {at: logits_of("zipf", sample_as_gpu.width, at) for at in range(1, 9)}
    drawn = [sample_as_gpu.draw(slots, logits, at)[0] for at, logits in rows.items()]
    for changes in ({}, {"seed": 8}, {"temperature": 2.0}):
        other = replace(options, **changes)
        want = [on_host(other, logits, at, len(logits)).token for at, logits in rows.items()]
        assert (drawn == want) == (not changes)
