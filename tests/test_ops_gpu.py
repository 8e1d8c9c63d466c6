"""Norms, embeddings and broadcasting of the reference's tables on a GPU, each against float64.

Cases of one operator share a graph: a graph loads in about a second, a case runs in milliseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import exporter
from exporter import QuantEmbedding, Sym
from runtime_py.errors import InputError
from tests import gpu, oracles, tolerances
from tests.cases import (
    BROADCAST_OPS,
    BROADCASTS,
    EMBEDDINGS_Q4,
    RMS_NORMS,
    EmbeddingQ4,
    RmsNorm,
)
from tests.tolerances import require

pytestmark = pytest.mark.gpu


# -- rms_norm


def norm_inputs(row: RmsNorm) -> tuple[Tensor, Tensor]:
    """Return x and the weight of a row."""
    width = row.shape[-1]
    x, weight = gpu.tensor(*row.shape), gpu.tensor(width, mod=11, off=-3, den=8)
    if row.values == "mixed signs":
        x = x * torch.tensor([1.0, -3.0])[torch.arange(x.numel()) % 2].reshape(x.shape)
    if row.values == "about 800":
        x = 800 + gpu.tensor(*row.shape)
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
            nn.functional.rms_norm(x, w.shape, w, gpu.EPS)
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
    want = oracles.rms_norm(x.numpy(), weight.numpy(), gpu.EPS)
    require(norm_results()[row], want, tolerances.NORM, str(row.shape))


@pytest.mark.parametrize("width", [1, 3, 769, 5120])
def test_rms_norm_rows_are_independent(width: int) -> None:
    """Every row of seven equals the same row computed alone, bit by bit (16)."""
    rows = {"S": Sym(1, 7, at=("x", 1))}
    inputs = {"x": torch.zeros(1, 3, width)}
    folder = gpu.bundle(f"norm-rows-{width}", lambda: (gpu.Norm(width), inputs, rows, ()))
    x = gpu.tensor(1, 7, width).numpy()
    alone = [gpu.step({"x": x[:, i : i + 1]}, S=1) for i in range(7)]
    got = [answer["output"] for answer in exporter.run(folder, [gpu.step({"x": x}, S=7), *alone])]
    assert np.concatenate(got[1:], axis=1).tobytes() == got[0].tobytes()


@pytest.mark.parametrize("shape", [(9, 17, 5), (7, 33, 3)], ids=str)
def test_matmul_rows_are_independent(shape: tuple[int, int, int]) -> None:
    """A tail tile of rows computes what the row computes alone (16)."""
    m, k, n = shape
    weight = gpu.tensor(n, k, mod=13, off=6)

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(weight, requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x, self.weight)

    rows = {"M": Sym(1, 17, at=("x", 0))}
    folder = gpu.bundle(f"rows-{shape}", lambda: (Linear(), {"x": torch.zeros(3, k)}, rows, ()))
    x = gpu.tensor(17, k).numpy()
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
        (gpu.tensor(*a), gpu.tensor(*b, mod=13, off=-1, den=8)) for a, b in BROADCASTS
    ]  # the second never holds 0
    inputs = [x for pair in pairs for x in pair]
    function: Callable[..., Any] = getattr(torch, name)

    def both(*given: Tensor) -> Any:
        return tuple(function(a, b) for a, b in zip(given[::2], given[1::2], strict=True))

    for got, (a, b) in zip(gpu.run_batch(f"broadcast-{name}", both, inputs), pairs, strict=True):
        require(got, function(a.double(), b.double()), tolerances.ELEMENTWISE, str(tuple(b.shape)))
