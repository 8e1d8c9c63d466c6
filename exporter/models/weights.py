"""Where a model gets its weights: one small protocol that every checkpoint reader speaks.

Input:  the model's own name of a weight and the shape it needs.
Output: a ready module (float or quantised) or a vector; wrong shapes and missing tensors are
`ExportError`.
Way of the data: checkpoint reader -> `Weights` -> `models.llama`. `RandomWeights` serves tests.

    model = Llama(config, RandomWeights(seed=0))
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.quantize import QuantEmbedding
from runtime_py.errors import ExportError


class Embedding(nn.Embedding):
    """A float table `[V, E]` that can also serve as the head (tied weights)."""

    def project(self, x: Tensor) -> Tensor:
        """Return `[..., V]`, x `[..., E]` times the table."""
        return F.linear(x, self.weight)


Table: TypeAlias = "Embedding | QuantEmbedding"


class Weights(Protocol):
    """A checkpoint, seen by a model. Names are the model's own: `layers.0.attention.q`."""

    def linear(self, name: str, rows: int, columns: int, bias: bool) -> nn.Module:
        """Return a layer from `columns` to `rows` features."""

    def embedding(self, name: str, rows: int, columns: int) -> Table:
        """Return a table with `forward(ids)` and `project(x)`."""

    def vector(self, name: str, size: int) -> Tensor:
        """Return a float32 vector, such as a norm's weight."""


class RandomWeights:
    """Small random weights, the same for the same seed and the same order of calls."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def linear(self, name: str, rows: int, columns: int, bias: bool) -> nn.Module:
        return float_linear(
            self._normal(rows, columns) / columns**0.5, self._normal(rows) if bias else None
        )

    def embedding(self, name: str, rows: int, columns: int) -> Table:
        return float_embedding(self._normal(rows, columns))

    def vector(self, name: str, size: int) -> Tensor:
        return 1 + 0.1 * self._normal(size)

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)


def float_linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Return an `nn.Linear` around `weight` `[N, K]`, without a copy."""
    rows, columns = weight.shape
    layer = nn.Linear(columns, rows, bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer


def float_embedding(weight: Tensor) -> Embedding:
    """Return an `Embedding` around `weight` `[V, E]`, without a copy."""
    rows, width = weight.shape
    table = Embedding(rows, width, device="meta")
    table.weight = nn.Parameter(weight, requires_grad=False)
    return table


def expect_shape(name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Raise `ExportError` unless the checkpoint's tensor has the shape that the configuration
    implies.
    """
    if found != wanted:
        raise ExportError(
            f"tensor {name} has shape {list(found)}, the configuration needs {list(wanted)}",
            hint="the configuration and the weights are not of the same model",
        )
