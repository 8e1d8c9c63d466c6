"""The words of lowering rules: a reference to a value, a constant tensor, a number; a refusal.

Input and output: plain data. Way of the data: under `lowering.builder`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from exporter.symbolic import same
from runtime_py.schema import as_attr
from runtime_py.symbols import Expr, Op, Shape

DTYPES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.int64: "i32",
    torch.int32: "i32",
    torch.bool: "u32",
}


@dataclass(frozen=True)
class Ref:
    """A value of the graph, by name (a bare string would be taken for a symbol)."""

    name: str


Operand: TypeAlias = "Ref | torch.Tensor"
Scalar: TypeAlias = "int | float | Expr"


class Refused(Exception):
    """A lowering rule cannot express this form of its operator; the text says why."""


def equal_shapes(a: Shape, b: Shape) -> bool:
    """True if two shapes are the same for every value of the symbols."""
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def identity_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (
        tensor.data_ptr(),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
        tensor.storage_offset(),
    )


def stored_attr(key: str, value: Any) -> Any:
    """Return an attribute as a node stores it; where a name stands for a symbol, say so."""
    if key in EXPRESSIONS and isinstance(value, (str, Op)):
        return as_attr(value)
    return tuple(value) if isinstance(value, list) else value


EXPRESSIONS = frozenset(("scalar", "value", "start", "step", "input_pos", "rows"))
