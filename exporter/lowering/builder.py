"""Builder: appends nodes to the graph under construction; what every lowering rule writes with.

Input:  operands (`Ref` to a value, or a constant tensor), shapes and dtypes of torch's fake
tensors.
Output: values, nodes and constants, named after torch's nodes.
Way of the data: inside `emit`.

    def lower_relu(build, x):
        return build.unary("relu", x)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from exporter.lowering.operands import (
    DTYPES,
    Operand,
    Ref,
    Refused,
    Scalar,
    equal_shapes,
    identity_of,
    stored_attr,
)
from exporter.source import source_of
from exporter.symbolic import Domain, same, to_expr
from runtime_py.errors import ExportError, InternalError
from runtime_py.schema import Node, Source, Value
from runtime_py.symbols import Expr, Shape, combine

__all__ = ["DTYPES", "Builder", "Operand", "Ref", "Refused", "Scalar", "equal_shapes"]


class Builder:
    """The graph so far. `node` is the torch node being lowered: results take its name, shape and
    source.
    """

    def __init__(self, names: Mapping[str, str], domain: Domain) -> None:
        self.names, self.domain = names, domain
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.constants: dict[str, torch.Tensor] = {}
        self.computed: set[str] = set()  # values that some node makes
        self.roots: dict[str, str] = {}  # a view -> the value whose bytes it shows
        self.ranges: dict[str, Expr] = {}  # an i32 vector start, start + 1, ... -> start
        self._stored: dict[tuple[Any, ...], str] = {}
        self._kept: list[
            torch.Tensor
        ] = []  # keeps storage alive, so that its address stays its identity
        self._node: fx.Node | None = None

    @property
    def node(self) -> fx.Node:
        if self._node is None:
            raise InternalError("no node is being lowered")
        return self._node

    @node.setter
    def node(self, node: fx.Node) -> None:
        self._node = node

    # ---- shapes and dtypes

    def dtype_of(self, dtype: torch.dtype, what: str) -> str:
        """Return our name of a torch dtype; raises `ExportError` where a conversion would lose
        something.
        """
        if dtype not in DTYPES:
            raise ExportError(
                f"{what} is {dtype}; tensors are float32, float16, int32, int64 or bool"
            )
        return DTYPES[dtype]

    def shape(self, sizes: Sequence[Any]) -> Shape:
        """Return torch sizes (ints, SymInts) as expressions."""
        return tuple(
            to_expr(s.node.expr, self.names) if isinstance(s, torch.SymInt) else int(s)
            for s in sizes
        )

    def meta_of(self, node: fx.Node) -> tuple[Shape, str]:
        """Return shape and dtype of a torch node's result."""
        fake = node.meta["val"]
        return self.shape(fake.shape), self.dtype_of(fake.dtype, node.name)

    @property
    def out_shape(self) -> Shape:
        return self.shape(self.node.meta["val"].shape)

    @property
    def out_dtype(self) -> str:
        return self.dtype_of(self.node.meta["val"].dtype, self.node.name)

    def shape_of(self, x: Operand) -> Shape:
        return tuple(x.shape) if isinstance(x, torch.Tensor) else self.values[x.name].shape

    def dtype(self, x: Operand) -> str:
        return (
            self.dtype_of(x.dtype, "constant")
            if isinstance(x, torch.Tensor)
            else self.values[x.name].dtype
        )

    # ---- values

    def declare(self, name: str, shape: Shape, dtype: str) -> Ref:
        """Declare a value under `name`, or a name made unique from it."""
        unique, count = name, 1
        while unique in self.values:
            unique, count = f"{name}_{count}", count + 1
        self.values[unique] = Value(unique, dtype, shape)
        return Ref(unique)

    def add_constant(self, name: str, tensor: torch.Tensor, dtype: str) -> Ref:
        """Declare a stored tensor."""
        ref = self.declare(name, tuple(tensor.shape), dtype)
        self.constants[ref.name] = tensor
        return ref

    def stored(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return `tensor`, remembering that it is to be called `name` if it is used."""
        self._kept.append(tensor)
        self._stored.setdefault((identity_of(tensor), "name"), name)
        return tensor

    def ref(self, x: Operand, dtype: str | None = None) -> Ref:
        """Return `x` as a value; a constant tensor is stored once, however often it is used."""
        if isinstance(x, Ref):
            return x
        dtype = dtype or self.dtype_of(x.dtype, "a constant tensor")
        key = (identity_of(x), dtype)
        if key not in self._stored:
            self._kept.append(x)
            name = self._stored.get((identity_of(x), "name")) or f"{self.node.name}.const"
            self._stored[key] = self.add_constant(name, x.detach(), dtype).name
        return Ref(self._stored[key])

    def number(self, value: float, dtype: str = "f32") -> torch.Tensor:
        """Return a constant of rank 0."""
        kind = {"f32": torch.float32, "f16": torch.float16, "i32": torch.int32, "u32": torch.int32}[
            dtype
        ]
        return torch.tensor(value, dtype=kind)

    def root(self, name: str) -> str:
        """Return the value whose bytes `name` shows."""
        return self.roots.get(name, name)

    # ---- nodes

    def add(
        self,
        op: str,
        inputs: Sequence[Operand | None],
        shape: Shape | None = None,
        dtype: str | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Ref:
        """Append a node and return its output; shape and dtype default to those of torch's node."""
        out = self.declare(
            self.node.name,
            self.out_shape if shape is None else shape,
            self.out_dtype if dtype is None else dtype,
        )
        self._append(out.name, op, inputs, (out.name,), attrs or {}, ())
        self.computed.add(out.name)
        return out

    def add_mutating(
        self,
        op: str,
        inputs: Sequence[Operand | None],
        mutates: Sequence[Ref],
        attrs: Mapping[str, Any],
        out: tuple[Shape, str] | None = None,
    ) -> Ref | None:
        """Append a node that writes the buffers `mutates` (and returns a value if `out` gives shape
        and dtype).
        """
        ref = self.declare(self.node.name, *out) if out else None
        outputs = (ref.name,) if ref else ()
        self._append(
            f"{self.node.name}.{op}", op, inputs, outputs, attrs, tuple(r.name for r in mutates)
        )
        self.computed.update(outputs)
        return ref

    def _append(
        self,
        name: str,
        op: str,
        inputs: Sequence[Operand | None],
        outputs: tuple[str, ...],
        attrs: Mapping[str, Any],
        mutates: tuple[str, ...],
    ) -> None:
        unique = (
            name if all(n.name != name for n in self.nodes[-64:]) else f"{name}.{len(self.nodes)}"
        )
        names = tuple(None if x is None else self.ref(x).name for x in inputs)
        stored = {key: stored_attr(key, value) for key, value in attrs.items()}
        self.nodes.append(Node(unique, op, names, outputs, stored, mutates, self.source))

    @property
    def source(self) -> Source:
        return source_of(self.node)

    # ---- small words that many rules share

    def view(self, x: Operand, shape: Shape | None = None) -> Operand:
        """Return `x` under another shape; the same bytes."""
        shape = self.out_shape if shape is None else shape
        if isinstance(x, torch.Tensor) and all(isinstance(d, int) for d in shape):
            return x.reshape([int(d) for d in shape if isinstance(d, int)])
        if equal_shapes(self.shape_of(x), shape):
            return x
        source = self.ref(x)
        out = self.add("view", (source,), shape, self.dtype(source))
        self.roots[out.name] = self.root(source.name)
        if source.name in self.ranges and len(shape) == 1:
            self.ranges[out.name] = self.ranges[source.name]
        return out

    def cast(self, x: Operand, dtype: str) -> Operand:
        """Return `x` in `dtype`."""
        if self.dtype(x) == dtype:
            return x
        if isinstance(x, torch.Tensor):
            kind = {
                "f32": torch.float32,
                "f16": torch.float16,
                "i32": torch.int32,
                "u32": torch.bool,
            }
            return x.to(kind[dtype])
        return self.add("cast", (x,), self.shape_of(x), dtype, {"dtype": dtype})

    def expand(self, x: Operand, shape: Shape) -> Operand:
        """Return `x` broadcast to `shape`; where only extents of 1 are put in front, a view does
        it.
        """
        have = self.shape_of(x)
        if equal_shapes(have, shape[len(shape) - len(have) :]):
            front = shape[: len(shape) - len(have)]
            if all(extent == 1 for extent in front):
                return self.view(x, shape)
        return self.add("expand", (x,), shape, self.dtype(x))

    def materialize(self, x: Operand) -> Ref:
        """Return a copy of `x` that nothing overwrites."""
        ref = self.ref(x)
        return self.add("expand", (ref,), self.values[ref.name].shape, self.values[ref.name].dtype)

    def copy(self, source: Operand, buffer: Ref) -> None:
        """Overwrite `buffer` with `source`."""
        value = self.values[buffer.name]
        source = self.expand(self.cast(source, value.dtype), value.shape)
        self.add_mutating("copy", (source, buffer), (buffer,), {})

    def unary(self, op: str, x: Operand) -> Ref:
        return self.add(op, (x,), self.shape_of(x), self.dtype(x))

    def binary(self, op: str, a: Operand, b: Operand | Scalar, shape: Shape | None = None) -> Ref:
        """Return `a op b` in `a`'s dtype, `b` a value or a number."""
        shape = self.shape_of(a) if shape is None else shape
        if isinstance(b, (Ref, torch.Tensor)):
            return self.add(op, (a, b), shape, self.dtype(a))
        if isinstance(b, float) and not math.isfinite(b):
            return self.add(op, (a, self.number(b)), shape, self.dtype(a))  # JSON holds no infinity
        return self.add(op, (a, None), shape, self.dtype(a), {"scalar": b})

    def slice(self, x: Operand, dim: int, start: Expr, extent: Expr, step: int = 1) -> Operand:
        """Return `extent` entries of `x` along `dim` from `start`; demands that they exist."""
        shape = self.shape_of(x)
        if step == 1 and start == 0 and same(extent, shape[dim]):
            return x
        self.require_inside(start, extent, shape[dim], step)
        out = (*shape[:dim], extent, *shape[dim + 1 :])
        return self.add(
            "slice", (x,), out, self.dtype(x), {"dim": dim, "start": start, "step": step}
        )

    def require_inside(self, start: Expr, extent: Expr, size: Expr, step: int = 1) -> None:
        """Make `0 <= start` and `start + (extent - 1) * step < size` hold on every step that is
        accepted.
        """
        self.domain.require(combine("-", 0, start), 0)
        last = combine("+", start, combine("*", combine("-", extent, 1), step))
        self.domain.require(combine("-", last, size), -1)

    def range_start(self, x: Operand) -> Expr | None:
        """Return a if `x` is the integer vector a, a + 1, a + 2, ...; None if that is not known."""
        if isinstance(x, Ref):
            return self.ranges.get(x.name)
        if x.dim() != 1 or x.is_floating_point() or x.numel() == 0 or x.dtype == torch.bool:
            return None
        return int(x[0]) if torch.equal(x, torch.arange(len(x)).to(x.dtype) + x[0]) else None
