"""Where packed weights lie: no code, scale, row, window or shard cuts a word, for any K and group, and kernels read them so.

Input:  random codes and scales of every scheme, of widths that end within a word. Output: words held
against a reading one code at a time; embeddings and products held against the dense weight, whole,
in windows of a small binding, and from shards that end within a row.
Way of the data: `exporter.schemes` -> `exporter.bundle` -> `runtime_py.ops.weights` -> kernels.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from playwright.sync_api import Browser

from exporter import bundle as bundles
from exporter.hosts.server import Server
from exporter.schemes import SCHEMES, effective_group, pack, scheme_of
from runtime_py.ops.base import Caps
from runtime_py.ops.weights import Weight
from runtime_py.plan import Planner
from runtime_py.schema import Constant, Graph, Node, Port, Symbol, Value
from tests import gpu, oracles_linear, tolerances
from tests.dispatches import Runner
from tests.lowering import GPU, SOFTWARE
from tests.tolerances import require

ROWS = 131  # two windows of 64 rows and three rows more
# K and group: one code, K in one group, K that ends within a word, within a group, within 16 bytes.
SHAPES = ((1, 1), (7, 7), (33, 33), (61, 8), (95, 24), (129, 32), (161, 40), (257, 64))
READ = ((1, 1), (61, 8), (95, 24), (161, 40))  # of these the ones that kernels read here
SHARD_BYTES = 4096


@dataclass(frozen=True)
class Packed:
    """A weight as stored, and the codes, scales and minima that it was packed from."""

    weight: Weight
    codes: npt.NDArray[Any]
    factors: npt.NDArray[Any]
    arrays: dict[str, npt.NDArray[Any]]

    def dense(self) -> oracles_linear.Floats:
        """Return the weight [rows, k] in float64."""
        kind, w = scheme_of(self.weight.scheme), self.weight
        which = np.arange(w.k) // effective_group(w.scheme, w.group, w.k)
        numbers = (self.codes.astype(np.float64) - kind.offset) * self.factors[:, which, 0]
        return np.asarray(numbers + self.factors[:, which, 1])


def packed(scheme: str, k: int, group: int, scale_type: str = "f32") -> Packed:
    """Return a random weight of `ROWS` rows; f16 scales are numbers that f16 holds exactly."""
    kind, random = scheme_of(scheme), np.random.default_rng(k * 1000 + group)
    codes = random.integers(kind.least, kind.greatest + 1, (ROWS, k))
    groups = -(-k // effective_group(scheme, group, k))
    factors = random.integers(1, 99, (ROWS, groups, 2)) / (64.0 if scale_type == "f16" else 77.0)
    factors = factors.astype(np.float32).astype(np.float64)
    factors[:, :, 1] *= kind.affine
    scales = torch.from_numpy(factors).float()
    mins = scales[:, :, 1] if kind.affine else None
    words, stored = pack(torch.from_numpy(codes), scales[:, :, 0], mins, scheme, group)
    weight = Weight(scheme, group, k, ROWS, scale_type, ("codes", "scales"))
    assert stored.dtype == (torch.float16 if scale_type == "f16" else torch.float32)
    arrays = {"codes": words.numpy().view(np.uint32), "scales": stored.numpy()}
    return Packed(weight, codes, factors, arrays)


ALL = [
    pytest.param(scheme, k, group, scale_type, id=f"{scheme}-k{k}-gs{group}-{scale_type}")
    for scheme in SCHEMES
    for k, group in SHAPES
    for scale_type in ("f32", "f16")
]


@pytest.mark.parametrize(("scheme", "k", "group", "scale_type"), ALL)
def test_every_code_and_scale_lies_within_a_word_of_its_row(
    scheme: str, k: int, group: int, scale_type: str
) -> None:
    """Read one code at a time, by word and bit, out of the bytes of the whole constant."""
    one = packed(scheme, k, group, scale_type)
    bits, row_bytes = scheme_of(scheme).bits, one.weight.row_bytes
    assert [array.nbytes for array in one.arrays.values()] == [ROWS * size for size in row_bytes]
    assert row_bytes[0] % 16 == row_bytes[1] % 4 == 0
    words = np.frombuffer(one.arrays["codes"].tobytes(), "<u4")
    each = 32 // bits
    at = np.arange(ROWS)[:, None] * (row_bytes[0] // 4) + np.arange(k) // each
    place = np.arange(k) % each
    shift = place * 8 if bits == 8 else place % 4 * 8 + place // 4 * 4
    found = (words[at] >> shift.astype(np.uint32)) & (2**bits - 1)
    assert np.array_equal(found, one.codes & (2**bits - 1))
    numbers = one.arrays["scales"].reshape(ROWS, -1)
    step = 2 if scheme_of(scheme).affine else 1
    for i in range(step):
        assert np.array_equal(numbers[:, i::step][:, : one.factors.shape[1]], one.factors[:, :, i])


@pytest.mark.parametrize(("scheme", "k", "group", "scale_type"), ALL)
def test_windows_begin_at_whole_rows_where_a_binding_may_begin(
    scheme: str, k: int, group: int, scale_type: str
) -> None:
    weight = packed(scheme, k, group, scale_type).weight
    limit = 100 * max(weight.row_bytes)
    windows = weight.windows(limit)
    assert windows == ((0, 64), (64, 64), (128, 3))
    for first, rows in windows:
        for binding, size in zip(weight.bindings(first, rows), weight.row_bytes, strict=True):
            assert binding.offset_bytes == first * size
            assert binding.offset_bytes % 256 == 0
            assert binding.size_bytes == rows * size <= limit


# -- on a device


def graph_of(one: Packed, op: str) -> Graph:
    """Return a graph of one embedding or product over the weight."""
    w = one.weight
    width = {"embedding_q": "width", "linear_q": "in_features"}[op]
    values = {
        "ids": Value("ids", "i32", (1, "S")),
        "x": Value("x", "f32", (1, "S", w.k)),
        "codes": Value("codes", "u32", (w.rows, w.words)),
        "scales": Value("scales", w.scale_type, w.scale_shape),
        "y": Value("y", "f32", (1, "S", w.k if op == "embedding_q" else w.rows)),
    }
    read = "ids" if op == "embedding_q" else "x"
    attrs: dict[str, Any] = {"scheme": w.scheme, "group": w.group, width: w.k}
    node = Node("n", op, (read, "codes", "scales"), ("y",), attrs)
    return Graph((Symbol("S", 1, 64),), (), values, {}, {}, (node,), (), ())


@pytest.fixture(scope="module")
def runner(browser: Browser) -> Iterator[Runner]:
    with Server() as server:
        page = browser.new_page()
        page.goto(server.origin)
        yield Runner(page)
        page.close()


def answers(
    runner: Runner, one: Packed, op: str, given: npt.NDArray[Any], caps: Caps
) -> list[npt.NDArray[Any]]:
    """Return the result of `op` with the weight bound whole, and in windows of a small binding."""
    tokens, counts, results = given.shape[1], [], []
    for limits in ({}, {"maxStorageBufferBindingSize": 100 * max(one.weight.row_bytes)}):
        graph = graph_of(one, op)
        planner = Planner(graph, dataclasses.replace(caps, limits=limits), {}, {"S": (tokens,) * 2})
        dispatches = planner.dispatches()
        counts.append(len(dispatches))
        arrays = {**one.arrays, str(graph.nodes[0].inputs[0]): given}
        shape = (1, tokens, one.weight.k if op == "embedding_q" else ROWS)
        results.append(runner.run(dispatches, arrays, {"S": tokens}, "y", shape))
    assert counts[1] >= 3 * counts[0]
    return results


def require_scaled(got: npt.NDArray[Any], want: npt.NDArray[Any], pair: tolerances.Pair) -> None:
    """Hold `got` against `want` as parts of its greatest: the pairs are for numbers of about 1."""
    greatest = np.abs(want).max()
    require(got / greatest, want / greatest, pair)


FEW = [
    pytest.param(scheme, k, group, ("f32", "f16")[i % 2], id=f"{scheme}-k{k}-gs{group}")
    for scheme in SCHEMES
    for i, (k, group) in enumerate(READ)
]
IDS = np.array(
    [[1, 0, 63, 64, 65, 127, 128, ROWS - 1, 1]], np.int32
)  # both sides of each window's end


@pytest.mark.gpu
@pytest.mark.parametrize(("scheme", "k", "group", "scale_type"), FEW)
def test_a_row_is_gathered_whole_and_from_windows(
    runner: Runner, scheme: str, k: int, group: int, scale_type: str
) -> None:
    one = packed(scheme, k, group, scale_type)
    whole, split = answers(runner, one, "embedding_q", IDS, SOFTWARE)
    require_scaled(whole, one.dense()[IDS], tolerances.EMBEDDING)
    require(split, whole, tolerances.EXACT, "in windows")


@pytest.mark.gpu
@pytest.mark.parametrize("caps", [SOFTWARE, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("tokens", [1, 9, 17])
@pytest.mark.parametrize(("scheme", "k", "group", "scale_type"), FEW)
def test_a_product_is_the_same_whole_and_from_windows(
    runner: Runner, scheme: str, k: int, group: int, scale_type: str, tokens: int, caps: Caps
) -> None:
    one = packed(scheme, k, group, scale_type)
    x = np.random.default_rng(tokens).uniform(-1, 1, (1, tokens, k)).astype(np.float32)
    whole, split = answers(runner, one, "linear_q", x, caps)
    require_scaled(whole, oracles_linear.linear(x, one.dense()), tolerances.LINEAR)
    require(split, whole, tolerances.EXACT, "in windows")


@pytest.mark.gpu
def test_a_row_at_the_wrong_place_is_noticed(runner: Runner) -> None:
    """The control: rows that begin at 18 bytes' distance, as blocks of 16 codes with their scale do."""
    one = packed("q4gsw", 32 - 3, 8)
    spoiled = np.frombuffer(one.arrays["codes"].tobytes() + bytes(2 * ROWS), np.uint8)
    moved = np.concatenate([spoiled[18 * i : 18 * i + 16] for i in range(ROWS)]).view(np.uint32)
    wrong = dataclasses.replace(one, arrays={**one.arrays, "codes": moved.reshape(ROWS, -1)})
    for found in answers(runner, wrong, "embedding_q", IDS[:, :1], SOFTWARE):
        with pytest.raises(AssertionError):
            require_scaled(found, one.dense()[IDS[:, :1]], tolerances.EMBEDDING)


# -- from a bundle's shards


@pytest.mark.gpu
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_row_that_two_shards_share_is_read_whole(
    scheme: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = packed(scheme, 161, 40, "f16")
    monkeypatch.setattr(bundles, "MAX_SHARD_BYTES", SHARD_BYTES)
    graph = graph_of(one, "embedding_q")
    product = graph_of(one, "linear_q")
    values = {**graph.values, "z": dataclasses.replace(product.values["y"], name="z")}
    nodes = (*graph.nodes, dataclasses.replace(product.nodes[0], name="product", outputs=("z",)))
    whole = dataclasses.replace(
        graph,
        values=values,
        nodes=nodes,
        constants={name: Constant(name, ()) for name in one.arrays},
        inputs=(Port("ids", "ids"), Port("x", "x")),
        outputs=(Port("y", "y"), Port("z", "z")),
        specializations=({},),
    )
    tensors = {name: torch.from_numpy(a.view(np.int32) if a.dtype == np.uint32 else a)
               for name, a in one.arrays.items()}  # fmt: skip
    bundles.write_bundle(tmp_path / "m", whole, tensors)
    stored = json.loads((tmp_path / "m" / "graph.json").read_text(encoding="utf-8"))["constants"]
    ends = [part["size_bytes"] for part in stored[0]["parts"][:-1]]
    assert any(sum(ends[: i + 1]) % one.weight.row_bytes[0] for i in range(len(ends)))
    assert all(part["offset_bytes"] % 256 == 0 for each in stored for part in each["parts"])
    x = np.random.default_rng(0).uniform(-1, 1, (1, 9, 161)).astype(np.float32)
    ids = np.arange(ROWS, dtype=np.int32)
    with gpu.opened(tmp_path / "m") as session:
        for first in range(0, ROWS - 9, 9):
            some = ids[None, first : first + 9]
            found = session.run({"ids": some, "x": x}, S=9)
            require_scaled(found["y"], one.dense()[some], tolerances.EMBEDDING)
            require_scaled(found["z"], oracles_linear.linear(x, one.dense()), tolerances.LINEAR)
