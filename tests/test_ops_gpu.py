"""The operators of the reference's tables on a GPU, each against float64 (caches bit by bit).

Cases of one operator share a graph: a graph loads in about a second, a case runs in milliseconds.
"""

from __future__ import annotations

import functools
import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import exporter
from exporter import QuantEmbedding, QuantLinear, Sym, ops
from exporter.models.llama import LlamaConfig, RopeScaling, inverse_frequencies
from runtime_py.errors import FeatureMissingError, InputError, UserError
from tests import gpu, oracles, tolerances
from tests.cases import (
    BROADCAST_OPS,
    BROADCASTS,
    DYNAMIC_BACK,
    DYNAMIC_DOWN,
    DYNAMIC_LINEAR_F32,
    DYNAMIC_LINEAR_Q4,
    DYNAMIC_SDPA,
    EMBEDDINGS_Q4,
    RMS_NORMS,
    ROPE_REUSE,
    ROPE_SCALED_POSITIONS,
    ROPES,
    UPDATE_REPLAYS,
    UPDATES,
    EmbeddingQ4,
    FloatArray,
    RmsNorm,
    Rope,
    Update,
    ramp,
)
from tests.tolerances import accept, require

pytestmark = pytest.mark.gpu


def tensor(*shape: int, mod: int = 17, off: int = 8, den: float = 16, step: int = 0) -> Tensor:
    return torch.from_numpy(ramp(shape, mod, off, den, step))


# -- update_cache, bit by bit


class Write(nn.Module):
    """Writes a step into a cache inside the graph."""

    cache: Tensor

    def __init__(self, context: int, heads: int, head_dim: int, batch: int = 1) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(batch, context, heads, head_dim))

    def forward(self, value: Tensor, input_pos: int) -> Tensor:
        ops.update_cache(value, self.cache, input_pos)
        return value.sum()


def write_recipe(context: int, heads: int, head_dim: int, tokens: int) -> gpu.Recipe:
    symbols = {
        "S": Sym(1, tokens, at=("value", 1)),
        "input_pos": Sym(0, context - 1, at="input_pos"),
    }
    inputs = {"value": torch.zeros(1, 2, heads, head_dim), "input_pos": 2}
    limits = [(["+", "S", "input_pos"], context)]
    return Write(context, heads, head_dim), inputs, symbols, limits


def write_bundle(context: int, heads: int, head_dim: int, tokens: int) -> pathlib.Path:
    name = f"write-{context}-{heads}-{head_dim}-{tokens}"
    return gpu.bundle(name, lambda: write_recipe(context, heads, head_dim, tokens))


def check_writes(folder: pathlib.Path, cache: FloatArray, steps: list[tuple[int, int]]) -> None:
    """Write `steps` (tokens, position) and compare the whole cache after each."""
    values = [ramp((1, s, *cache.shape[2:]), 13, 6, 16, i) for i, (s, _) in enumerate(steps)]
    runs = [
        gpu.step({"value": value}, state=True, S=s, input_pos=at)
        for value, (s, at) in zip(values, steps, strict=True)
    ]
    answers = exporter.run(folder, runs)
    for value, (s, at), got in zip(values, steps, answers, strict=True):
        cache = np.asarray(oracles.update_cache(value, cache, at), np.float32)
        assert got["state"]["cache"].tobytes() == cache.tobytes(), f"{s} tokens at {at}"


@pytest.mark.parametrize("shape", sorted({(u.s, u.h, u.d, u.c) for u in UPDATES}), ids=str)
def test_update_cache_is_exact(shape: tuple[int, int, int, int]) -> None:
    tokens, heads, head_dim, context = shape
    rows: list[Update] = [u for u in UPDATES if (u.s, u.h, u.d, u.c) == shape]
    empty = np.zeros((1, context, heads, head_dim), np.float32)
    steps = [(u.s, u.pos) for u in rows]
    check_writes(write_bundle(context, heads, head_dim, tokens + 1), empty, steps)


@pytest.mark.parametrize("row", UPDATE_REPLAYS, ids=lambda row: f"H{row[0]}-D{row[1]}")
def test_update_cache_replay_fills_the_cache_exactly(row: tuple[int, int, tuple[int, ...]]) -> None:
    heads, head_dim, counts = row
    context = sum(counts)
    positions = [sum(counts[:i]) for i in range(len(counts))]
    empty = np.zeros((1, context, heads, head_dim), np.float32)
    folder = write_bundle(context, heads, head_dim, max(counts))
    check_writes(folder, empty, list(zip(counts, positions, strict=True)))


def test_update_cache_refuses_a_write_past_the_end() -> None:
    value = np.ones((1, 3, 2, 4), np.float32)
    with gpu.opened(write_bundle(8, 2, 4, 3)) as session:
        with pytest.raises(InputError, match="exceeds 8"):
            session.run({"value": value}, S=3, input_pos=6)
        assert not session.state()["cache"].any()
        session.run({"value": value}, S=3, input_pos=5)
        assert session.state()["cache"][0, 5:].tolist() == value[0].tolist()


@pytest.mark.parametrize(
    ("shape", "what"),
    [
        ((2, 2, 2, 4), "batch"),
        ((1, 2, 3, 4), "heads"),
        ((1, 2, 2, 8), "width"),
        ((1, 9, 2, 4), "S"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_update_cache_refuses_other_shapes_at_export(shape: tuple[int, ...], what: str) -> None:
    inputs = {"value": torch.zeros(shape), "input_pos": 0}
    with pytest.raises(UserError):
        exporter.export(Write(8, 2, 4), inputs, f"/nowhere/{what}", symbols={})


# -- rope


class Turn(nn.Module):
    """Rotary positions of queries and keys."""

    inv_freq: Tensor

    def __init__(self, inv_freq: Tensor, interleaved: bool) -> None:
        super().__init__()
        self.interleaved = interleaved
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, q: Tensor, k: Tensor, input_pos: int) -> tuple[Tensor, Tensor]:
        turned = [ops.rope(x, self.inv_freq, input_pos, self.interleaved) for x in (q, k)]
        return turned[0], turned[1]


def turn_bundle(row: Rope, inv_freq: Tensor, name: str = "plain") -> pathlib.Path:
    q, k = torch.zeros(1, 2, row.hq, row.d), torch.zeros(1, 2, row.hkv, row.d)
    symbols = {
        "S": Sym(1, 16, at=[("q", 1), ("k", 1)]),
        "input_pos": Sym(0, 9000, at="input_pos"),
    }
    inputs = {"q": q, "k": k, "input_pos": 3}
    key = f"rope-{name}-{row.hq}-{row.hkv}-{row.d}-{row.interleaved}"
    return gpu.bundle(key, lambda: (Turn(inv_freq, row.interleaved), inputs, symbols, ()))


def check_turns(
    row: Rope, steps: list[tuple[int, int]], inv_freq: Tensor, exact: Any, name: str = "plain"
) -> None:
    """Run (S, input_pos) of `steps` on one graph; the oracle turns by the frequencies `exact`."""
    inputs = [
        {"q": ramp((1, s, row.hq, row.d), 17, 8, 16), "k": ramp((1, s, row.hkv, row.d), 13, 6, 16)}
        for s, _ in steps
    ]
    runs = [gpu.step(i, S=s, input_pos=at) for i, (s, at) in zip(inputs, steps, strict=True)]
    answers = exporter.run(turn_bundle(row, inv_freq, name), runs)
    for given, (s, at), got in zip(inputs, steps, answers, strict=True):
        for x, y in zip(given.values(), got.values(), strict=True):
            want = oracles.rope(x, exact, at, interleaved=row.interleaved)
            require(y, want, tolerances.ROPE, f"{s} tokens at {at}")
            assert at == 0 or not accept(x, want, *tolerances.ROPE), "the control: unturned passes"


@functools.cache
def plain_frequencies(head_dim: int) -> Tensor:
    return torch.from_numpy(oracles.frequencies(head_dim, 10000.0))


@pytest.mark.parametrize("interleaved", [False, True], ids=["half", "interleaved"])
@pytest.mark.parametrize("heads", sorted({(r.hq, r.hkv, r.d) for r in ROPES}), ids=str)
def test_rope(heads: tuple[int, int, int], interleaved: bool) -> None:
    steps = [(r.s, r.pos) for r in ROPES if (r.hq, r.hkv, r.d) == heads]
    row = Rope(1, *heads, 0, interleaved)
    freq = plain_frequencies(row.d)
    check_turns(row, [*dict.fromkeys(steps), *ROPE_REUSE], freq, freq.double().numpy())


def test_rope_with_llama3_scaling_at_far_positions() -> None:
    """Frequencies of the exporter against the formula in float64, by wavelength."""
    base, factor, low, high, original = 500000.0, 32.0, 1.0, 4.0, 8192
    row = Rope(1, 16, 8, 64, 0, False)
    config = LlamaConfig(
        width=1024, layers=1, heads=16, kv_heads=8, head_dim=64, mlp=64, vocabulary=8,
        max_context=131072, rope_base=base,
        rope_scaling=RopeScaling(factor, low, high, original),
    )  # fmt: skip
    plain = base ** (-np.arange(0, 64, 2, dtype=np.float64) / 64)
    blend = np.clip((original * plain / (2 * math.pi) - low) / (high - low), 0, 1)
    exact = blend * plain + (1 - blend) * plain / factor
    require(inverse_frequencies(config), exact, (0.0, 1e-6), "inverse frequencies")
    steps = [(s, at) for at in ROPE_SCALED_POSITIONS for s in (1, 5)]
    check_turns(row, steps, inverse_frequencies(config), exact, "llama3")


# -- rms_norm

EPS = 1e-6


def norm_inputs(row: RmsNorm) -> tuple[Tensor, Tensor]:
    """Return x and the weight of a row."""
    width = row.shape[-1]
    x, weight = tensor(*row.shape), tensor(width, mod=11, off=-3, den=8)
    if row.values == "mixed signs":
        x = x * torch.tensor([1.0, -3.0])[torch.arange(x.numel()) % 2].reshape(x.shape)
    if row.values == "about 800":
        x = 800 + tensor(*row.shape)
    if row.values == "zero weights":
        weight = weight * (torch.arange(width) % 2)
    if row.values == "negative weights":
        weight = -weight
    return x, weight


class Norms(nn.Module):
    """One norm per input, each with its own weight."""

    def __init__(self, weights: list[Tensor]) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(w, requires_grad=False) for w in weights])

    def __call__(self, *inputs: Tensor) -> Any:
        return tuple(
            nn.functional.rms_norm(x, w.shape, w, EPS)
            for x, w in zip(inputs, self.weights, strict=True)
        )


@functools.cache
def norm_results() -> dict[RmsNorm, Any]:
    """Run all rows, eight a graph."""
    results: dict[RmsNorm, Any] = {}
    for at in range(0, len(RMS_NORMS), 10):
        rows = RMS_NORMS[at : at + 10]
        given = [norm_inputs(row) for row in rows]
        function = Norms([weight for _, weight in given])
        got = gpu.run_batch(f"rms-norm-{at}", function, [x for x, _ in given])
        results |= dict(zip(rows, got, strict=True))
    return results


@pytest.mark.parametrize("row", RMS_NORMS, ids=lambda row: f"{row.shape}-{row.values}")
def test_rms_norm(row: RmsNorm) -> None:
    x, weight = norm_inputs(row)
    want = oracles.rms_norm(x.numpy(), weight.numpy(), EPS)
    require(norm_results()[row], want, tolerances.NORM, str(row.shape))


def rows_model(width: int) -> nn.Module:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(tensor(width, mod=11, off=-3, den=8), requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.rms_norm(x, (width,), self.weight, EPS)

    return Norm()


@pytest.mark.parametrize("width", [1, 3, 769, 5120])
def test_rms_norm_rows_are_independent(width: int) -> None:
    """Every row of seven equals the same row computed alone, bit by bit (16)."""
    rows = {"S": Sym(1, 7, at=("x", 1))}
    inputs = {"x": torch.zeros(1, 3, width)}
    folder = gpu.bundle(f"norm-rows-{width}", lambda: (rows_model(width), inputs, rows, ()))
    x = tensor(1, 7, width).numpy()
    alone = [gpu.step({"x": x[:, i : i + 1]}, S=1) for i in range(7)]
    got = [answer["output"] for answer in exporter.run(folder, [gpu.step({"x": x}, S=7), *alone])]
    assert np.concatenate(got[1:], axis=1).tobytes() == got[0].tobytes()


@pytest.mark.parametrize("shape", [(9, 17, 5), (7, 33, 3)], ids=str)
def test_matmul_rows_are_independent(shape: tuple[int, int, int]) -> None:
    """A tail tile of rows computes what the row computes alone (16)."""
    m, k, n = shape
    weight = tensor(n, k, mod=13, off=6)

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(weight, requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x, self.weight)

    rows = {"M": Sym(1, 17, at=("x", 0))}
    folder = gpu.bundle(f"rows-{shape}", lambda: (Linear(), {"x": torch.zeros(3, k)}, rows, ()))
    x = tensor(17, k).numpy()
    counts = (m, 1, 7, 17)
    answers = exporter.run(folder, [gpu.step({"x": x[:c]}, M=c) for c in counts])
    want = x.astype(np.float64) @ weight.double().numpy().T
    for count, got in zip(counts, answers, strict=True):
        require(got["output"], want[:count], tolerances.LINEAR, f"{count} rows")


# -- embedding


@pytest.mark.parametrize("row", EMBEDDINGS_Q4, ids=lambda row: f"V{row.v}-E{row.e}-gs{row.group}")
def test_embedding_q4gsw(row: EmbeddingQ4) -> None:
    torch.manual_seed(0)
    table = QuantEmbedding.from_float(torch.randn(row.v, row.e), "q4gsw", row.group)
    inputs = {"ids": torch.tensor([row.indices])}
    folder = gpu.bundle(f"embedding-{row.v}-{row.e}", lambda: (table, inputs, {}, ()))
    ids = np.array([row.indices], np.int64)
    with gpu.opened(folder) as session:
        got = session.run({"ids": ids})["output"]
        require(got, table.dense().double()[ids].numpy(), tolerances.EMBEDDING)
        for outside in (row.v, -1, 2**31 - 1):
            ids[0, 2] = outside
            with pytest.raises(
                InputError, match=rf"{outside} is outside the vocabulary of {row.v}"
            ):
                session.run({"ids": ids})
        ids[0, 2] = 0
        require(session.run({"ids": ids})["output"][0, 2], table.dense()[0], tolerances.EMBEDDING)


# -- broadcasting


@pytest.mark.parametrize("name", BROADCAST_OPS)
def test_broadcasting(name: str) -> None:
    pairs = [
        (tensor(*a), tensor(*b, mod=13, off=-1, den=8)) for a, b in BROADCASTS
    ]  # the second never holds 0
    inputs = [x for pair in pairs for x in pair]
    function: Callable[..., Any] = getattr(torch, name)

    def both(*given: Tensor) -> Any:
        return tuple(function(a, b) for a, b in zip(given[::2], given[1::2], strict=True))

    for got, (a, b) in zip(gpu.run_batch(f"broadcast-{name}", both, inputs), pairs, strict=True):
        require(got, function(a.double(), b.double()), tolerances.ELEMENTWISE, str(tuple(b.shape)))


# -- one graph, many lengths


def check_lengths(
    name: str,
    module: nn.Module,
    width: int,
    want: Callable[[np.ndarray[Any, Any]], Any],
    pair: tolerances.Pair,
) -> None:
    """Run S = 128, 64, 8, 1 and 128, 1, 64, 8, 128 on one graph of x `[1, S, width]`."""
    rows = {"S": Sym(1, 128, at=("x", 1))}
    folder = gpu.bundle(name, lambda: (module, {"x": torch.zeros(1, 3, width)}, rows, ()))
    lengths = (*DYNAMIC_DOWN, *DYNAMIC_BACK)
    inputs = [ramp((1, s, width), 17, 8, 16, i) for i, s in enumerate(lengths)]
    steps = [gpu.step({"x": x}, S=s) for x, s in zip(inputs, lengths, strict=True)]
    for x, s, got in zip(inputs, lengths, exporter.run(folder, steps), strict=True):
        require(got["output"], want(x), pair, f"S = {s}")


def test_lengths_rms_norm() -> None:
    weight = tensor(64, mod=11, off=-3, den=8).numpy()
    module = rows_model(64)
    check_lengths(
        "lengths-norm", module, 64, lambda x: oracles.rms_norm(x, weight, EPS), tolerances.NORM
    )


@pytest.mark.parametrize(("n", "k"), DYNAMIC_LINEAR_F32)
def test_lengths_linear(n: int, k: int) -> None:
    torch.manual_seed(0)
    module = nn.Linear(k, n).requires_grad_(False)
    weight, bias = module.weight.double().numpy(), module.bias.double().numpy()

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.inner(x)
            return y

    check_lengths(
        f"lengths-linear-{k}", Wrapped(), k, lambda x: x @ weight.T + bias, tolerances.LINEAR
    )


@pytest.mark.parametrize(("k", "n", "group"), DYNAMIC_LINEAR_Q4)
def test_lengths_linear_q4(k: int, n: int, group: int) -> None:
    torch.manual_seed(0)
    plain = nn.Linear(k, n, bias=False)
    module = QuantLinear.from_float(plain.weight.detach(), None, "q4gsw", group)
    dense = module.dense().double().numpy()
    check_lengths(f"lengths-q4-{k}", module, k, lambda x: x @ dense.T, tolerances.LINEAR)


def test_lengths_sdpa() -> None:
    heads, kv_heads, head_dim, context, lengths = DYNAMIC_SDPA
    folder = gpu.cached_bundle(heads, kv_heads, head_dim, context)
    inputs = [
        {
            "q": ramp((1, s, heads, head_dim), 17, 8, 16, i),
            "k": ramp((1, s, kv_heads, head_dim), 13, 6, 16, i),
            "v": ramp((1, s, kv_heads, head_dim), 11, 5, 16, i),
        }
        for i, s in enumerate(lengths)
    ]
    steps = [gpu.step(x, S=s, input_pos=0) for x, s in zip(inputs, lengths, strict=True)]
    for x, s, got in zip(inputs, lengths, exporter.run(folder, steps, reset=True), strict=True):
        require(
            got["output"], oracles.sdpa(x["q"], x["k"], x["v"], 0), tolerances.SDPA_F32, f"S = {s}"
        )


class Chain(nn.Module):
    """linear, add, sdpa: x `[1, S, 32]` becomes q, k and v of 4 and 2 heads of 8."""

    k_cache: Tensor
    v_cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv = nn.Linear(32, 64, bias=False)
        self.shift = nn.Parameter(tensor(64, den=64))
        self.register_buffer("k_cache", torch.zeros(1, 128, 2, 8))
        self.register_buffer("v_cache", torch.zeros(1, 128, 2, 8))

    def forward(self, x: Tensor) -> Tensor:
        mixed = (self.qkv(x) + self.shift).unflatten(-1, (8, 8))
        q, k, v = mixed[:, :, :4], mixed[:, :, 4:6], mixed[:, :, 6:]
        y: Tensor = ops.sdpa_with_kv_cache(q, k, v, self.k_cache, self.v_cache, 0)
        return y


def test_lengths_chain() -> None:
    module = Chain().requires_grad_(False)
    weight, shift = module.qkv.weight.double().numpy(), module.shift.double().numpy()

    def want(x: np.ndarray[Any, Any]) -> Any:
        mixed = (x.astype(np.float64) @ weight.T + shift).reshape(1, -1, 8, 8)
        return oracles.sdpa(mixed[:, :, :4], mixed[:, :, 4:6], mixed[:, :, 6:], 0)

    check_lengths("lengths-chain", module, 32, want, tolerances.SDPA_F32)


# -- sizes that are awkward for WebGPU


def test_odd_counts_of_half_precision() -> None:
    """Buffers and copies are multiples of 4 bytes; 3 elements of 2 bytes are not (34 j)."""
    inputs = [tensor(3).half(), tensor(1).half(), tensor(5, 1).half(), tensor(7).half()]

    def convert(*given: Tensor) -> Any:
        return tuple(x.float() * 2 for x in given)

    if "shader-f16" not in gpu.features():
        with pytest.raises(FeatureMissingError, match="shader-f16"):
            gpu.run_batch("odd-f16", convert, inputs)
        pytest.skip(f"host {gpu.HOST} has no shader-f16: refused, as it must be; values not run")
    got = gpu.run_batch("odd-f16", convert, inputs)
    for x, y in zip(inputs, got, strict=True):
        require(y, x.double() * 2, tolerances.EXACT)


@pytest.mark.parametrize("count", [1, 3, 5, 63, 65])
def test_odd_counts(count: int) -> None:
    x = tensor(count)
    got = gpu.run_batch(f"odd-{count}", lambda x: (x + 1, x.reshape(count, 1) * 2), [x])
    require(got[0], x + 1, tolerances.EXACT)
    require(got[1], x.reshape(count, 1) * 2, tolerances.EXACT)


def test_no_tokens_is_a_typed_error() -> None:
    """A binding of size 0 is invalid in WebGPU; S = 0 never gets that far (34 i)."""
    heads, kv_heads, head_dim, context, _ = DYNAMIC_SDPA
    q, kv = (np.zeros((1, 0, h, head_dim), np.float32) for h in (heads, kv_heads))
    folder = gpu.cached_bundle(heads, kv_heads, head_dim, context)
    with pytest.raises(InputError, match="S = 0 is outside its range"):
        exporter.run(folder, [gpu.step({"q": q, "k": kv, "v": kv}, S=0, input_pos=0)])
    with pytest.raises(UserError, match="empty"):
        exporter.export(rows_model(4), {"x": torch.zeros(1, 0, 4)}, "/nowhere/empty", symbols={})
