"""Faults that others have reported about quantised products and norms, ruled out on a GPU.

Numbers in names are those of the faults' list: K that is not a multiple of the group (10), large groups (11),
an odd number of groups (12), rows that leak into one another (16). Every number here is exact.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import exporter
from exporter import QuantLinear
from tests import gpu
from tests.tolerances import EXACT, require

pytestmark = pytest.mark.gpu

ROUTES = ("cpu", "gpu")
TOKENS = (1, 9, 17)  # routes of one row, of a few, of many


def known(k: int, n: int, group: int) -> tuple[Tensor, Tensor]:
    """Return codes `[n, k]` of small numbers that differ everywhere, and scales that are powers of two."""
    codes = (torch.arange(n * k).view(n, k) * 7 % 15 + 1).to(torch.uint8)
    groups = -(-k // group)
    return codes, 2.0 ** (torch.arange(n * groups).view(n, groups) % 5 - 2)


def weight_of(codes: Tensor, scales: Tensor, group: int) -> Tensor:
    """Return the weight that symmetric codes and scales stand for."""
    return (codes.double() - 8) * scales.double().repeat_interleave(group, 1)[:, : codes.shape[1]]


@functools.cache
def products(name: str, tuning: str) -> list[gpu.Array]:
    """Return ones @ w.T of every layer of `LAYERS[name]`, for each of `TOKENS`."""
    layers = [make() for make in LAYERS[name]]
    modules = nn.ModuleList(
        QuantLinear.from_blocks(codes, scales, None, "q4gsw", group)
        for codes, scales, group in layers
    )
    inputs = [torch.ones(1, m, layers[0][0].shape[1]) for m in TOKENS]

    class Products(gpu.Batch):
        """All layers, so that their constants are the module's own."""

        def __init__(self) -> None:
            super().__init__(lambda *xs: tuple(layer(x) for layer in self.parts for x in xs))
            self.parts = modules

    named = {f"x{i}": x for i, x in enumerate(inputs)}
    folder = gpu.bundle(f"bank-{name}", lambda: (Products(), named, {}, ()))
    outputs = exporter.run(folder, [gpu.step(named)], options={"tuning": tuning})[0]
    return list(outputs.values())


Make = Callable[[], tuple[Tensor, Tensor, int]]


def uneven(k: int, n: int) -> Make:
    return lambda: (*known(k, n, 32), 32)


def halves(group: int) -> Make:
    """Every weight is -0.5."""
    return lambda: (torch.full((3, 2048), 7, dtype=torch.uint8), torch.full((3, 2048 // group), 0.5), group)  # fmt: skip


def one_scale() -> tuple[Tensor, Tensor, int]:
    """Five rows of three groups; only the last scale of the last row is not zero."""
    scales = torch.zeros(5, 3)
    scales[4, 2] = 2.0
    return torch.full((5, 96), 9, dtype=torch.uint8), scales, 32


LAYERS: dict[str, Sequence[Make]] = {
    "k80": [uneven(80, n) for n in (3, 1, 7)],
    "k33": [uneven(33, n) for n in (3, 1, 7)],
    "halves": [halves(group) for group in (16, 32, 64, 128, 256, 512, 2048)],
    "odd": [one_scale],
}


@pytest.mark.parametrize("tuning", ROUTES)
@pytest.mark.parametrize("name", ["k80", "k33"])
def test_10_columns_past_the_last_whole_group(name: str, tuning: str) -> None:
    got = iter(products(name, tuning))
    for make in LAYERS[name]:
        want = weight_of(*make()).sum(1).numpy()
        for tokens in TOKENS:
            require(next(got), np.broadcast_to(want, (1, tokens, len(want))), EXACT, name)


@pytest.mark.parametrize("tuning", ROUTES)
def test_11_large_groups(tuning: str) -> None:
    for y in products("halves", tuning):
        assert (y == -1024.0).all()


@pytest.mark.parametrize("tuning", ROUTES)
def test_12_an_odd_number_of_groups(tuning: str) -> None:
    for y in products("odd", tuning):
        assert (y[..., :4] == 0).all()
        assert (y[..., 4] == 64).all()


# -- rows do not leak

WIDTHS = (769, 5120, 7168, 1, 3)
ROWS = (7, 9, 17)


class Rows(nn.Module):
    """Norms of awkward widths over 7 rows, and products over 7, 9 and 17."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(gpu.Norm(width) for width in WIDTHS)
        weight = torch.randn(19, 72, generator=torch.Generator().manual_seed(0))
        self.product = QuantLinear.from_float(weight, None, "q4gaw", 24)

    def forward(
        self, x0: Tensor, x1: Tensor, x2: Tensor, x3: Tensor, x4: Tensor,
        x5: Tensor, x6: Tensor, x7: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Return the norms of the first five and the products of the others."""
        norms = tuple(norm(x) for norm, x in zip(self.norms, (x0, x1, x2, x3, x4), strict=True))
        return (*norms, self.product(x5), self.product(x6), self.product(x7))


@pytest.mark.parametrize("tuning", ROUTES)
def test_16_a_row_is_what_it_is_among_other_rows(tuning: str) -> None:
    shapes = [(1, 7, width) for width in WIDTHS] + [(1, m, 72) for m in ROWS]
    chance = np.random.default_rng(0)
    first = {f"x{i}": chance.standard_normal(s).astype(np.float32) for i, s in enumerate(shapes)}
    folder = gpu.bundle(
        "bank-rows", lambda: (Rows(), {n: torch.from_numpy(x) for n, x in first.items()}, {}, ())
    )
    steps = [first]
    for kept in (0, 3, -1):
        others = {name: 1000 * chance.standard_normal(x.shape).astype(np.float32)
                  for name, x in first.items()}  # fmt: skip
        for name, x in first.items():
            others[name][:, kept] = x[:, kept]
        steps.append(others)
    whole, *rest = exporter.run(folder, [gpu.step(s) for s in steps], options={"tuning": tuning})
    for kept, outputs in zip((0, 3, -1), rest, strict=True):
        for name, y in outputs.items():
            np.testing.assert_array_equal(y[:, kept], whole[name][:, kept], f"{name}, row {kept}")
            assert not np.array_equal(y, whole[name])
