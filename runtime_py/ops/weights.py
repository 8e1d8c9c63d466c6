"""Weights as they are stored: schemes, their layout in words, windows that fit one binding.

Input:  a node with `scheme`, `group` and its constants `codes`, `scales` (or a plain f32 weight).
Output: a `Weight`: the axes that kernels need, and bindings of any run of its rows.
Way of the data: under `ops.linear` and `ops.embedding`; docs/FORMAT.md tells the layout in prose.

    weight = Weight("q4gaw", 32, 576, rows=49152, scale_type="f16", names=("codes", "scales"))
    weight.row_bytes            # (288, 72): a row of codes, a row of scales
    weight.windows(128 << 20)   # ((0, 49152),): one window holds it all
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime_py.errors import OutOfMemoryError
from runtime_py.ops.base import Axis, Binding
from runtime_py.schema import DTYPE_BYTES, Graph, Node, Value
from runtime_py.symbols import show_shape

CODE_BITS = {"q4gsw": 4, "q4gaw": 4, "q8gsw": 8, "q8gaw": 8}
AFFINE = ("q4gaw", "q8gaw")
WINDOW_ROWS = 64  # 64 rows of whole words are a multiple of 256 bytes, as binding offsets must be
MAX_WORDS = 2**31


@dataclass(frozen=True)
class Weight:
    """A matrix [rows, k] in one of the schemes, or plain f32 (`scheme` "f32", `group` k)."""

    scheme: str
    group: int
    k: int
    rows: int
    scale_type: str
    names: tuple[str, ...]

    @property
    def chunk(self) -> int:
        """Values that one load brings: the codes of a word, or 4 floats."""
        return 32 // CODE_BITS.get(self.scheme, 8)

    @property
    def words(self) -> int:
        """Words of codes in a row; rows are padded to 16 bytes."""
        return 4 * -(-self.k // (4 * self.chunk))

    @property
    def scale_shape(self) -> tuple[int, ...]:
        """The shape of `scales`: symmetric [rows, groups (even)], affine [rows, groups, 2]."""
        groups = -(-self.words // -(-self.group // self.chunk))
        even = groups + groups % 2
        return (self.rows, groups, 2) if self.scheme in AFFINE else (self.rows, even)

    @property
    def row_bytes(self) -> tuple[int, ...]:
        """Bytes of one row in each of the constants `names`."""
        if self.scheme == "f32":
            return (4 * self.k,)
        elements = self.scale_shape[-1] * (self.scale_shape[1] if len(self.scale_shape) == 3 else 1)
        return 4 * self.words, DTYPE_BYTES[self.scale_type] * elements

    def axes(self) -> dict[str, Axis]:
        """Return the axes that every kernel reading a weight has."""
        return {
            "scheme": self.scheme,
            "scale_type": self.scale_type,
            "group": self.group,
            "k": self.k,
        }

    def windows(self, limit_bytes: int) -> tuple[tuple[int, int], ...]:
        """Return `(first row, rows)` runs whose bytes fit a binding of `limit_bytes` each."""
        most = limit_bytes // max(self.row_bytes)
        if most >= self.rows:
            return ((0, self.rows),)
        step = most // WINDOW_ROWS * WINDOW_ROWS
        if step == 0:
            raise OutOfMemoryError(
                f"{WINDOW_ROWS} rows of {self.names[0]} take "
                f"{WINDOW_ROWS * max(self.row_bytes)} bytes, a binding holds {limit_bytes}"
            )
        return tuple((first, min(step, self.rows - first)) for first in range(0, self.rows, step))

    def bindings(self, first: int, rows: int) -> tuple[Binding, ...]:
        """Return the bindings of rows `first` to `first + rows`, no offsets if these are all."""
        if rows == self.rows:
            return tuple(Binding(name) for name in self.names)
        return tuple(
            Binding(name, "read", first * size, -(-rows * size // 4) * 4)
            for name, size in zip(self.names, self.row_bytes, strict=True)
        )


def quantised(node: Node, codes: Value, scales: Value, width: str) -> Weight:
    """Return the weight of a checked node; `width` names the attribute that holds k."""
    k = int(str(node.attrs[width]))
    group = int(str(node.attrs["group"]))
    rows = int(str(codes.shape[0]))
    return Weight(
        str(node.attrs["scheme"]), group, k, rows, scales.dtype, (codes.name, scales.name)
    )


def plain(weight: Value) -> Weight:
    """Return an f32 weight [rows, k]."""
    rows, k = (int(str(dim)) for dim in weight.shape)
    return Weight("f32", k, k, rows, "f32", (weight.name,))


def reason_against(graph: Graph, node: Node, width: str) -> str | None:
    """Return why the quantised constants of `node` (its inputs 1 and 2) cannot be read, or None."""
    codes, scales = (graph.values[str(name)] for name in node.inputs[1:3])
    scheme, group, k = (node.attrs.get(name) for name in ("scheme", "group", width))
    if scheme not in CODE_BITS:
        return f"{node.op}: scheme {scheme!r}, expected one of {', '.join(CODE_BITS)}"
    if not isinstance(k, int) or not isinstance(group, int) or k < 1 or group < 1:
        return f"{node.op}: {width} {k!r} and group {group!r} must be positive integers"
    chunk = 32 // CODE_BITS[str(scheme)]
    if group % chunk and group != k:
        return (
            f"{node.op}: group {group} of {scheme} must be a multiple of {chunk} or all {k} columns"
        )
    if len(codes.shape) != 2 or not isinstance(codes.shape[0], int) or codes.shape[0] < 1:
        return f"{node.op}: codes are {show_shape(codes.shape)}, expected [rows, words]"
    if codes.dtype not in ("u32", "i32") or scales.dtype not in ("f16", "f32"):
        return (
            f"{node.op}: codes are {codes.dtype}, scales {scales.dtype}; expected u32, f16 or f32"
        )
    weight = quantised(node, codes, scales, width)
    if weight.rows * weight.words >= MAX_WORDS:
        return f"{node.op}: {weight.rows} rows of {weight.words} words cannot be indexed"
    if codes.shape[1] != weight.words or scales.shape != weight.scale_shape:
        return (
            f"{node.op}: codes {show_shape(codes.shape)} and scales {show_shape(scales.shape)}, "
            f"expected [{weight.rows}, {weight.words}] and {show_shape(weight.scale_shape)} "
            f"for k {k}, group {group}"
        )
    return None
