"""Tensors at the edge of a session: what a caller passes in and gets back.

Input:  lists, `array`, `bytes`, memoryviews or numpy arrays. Output: `Tensor`, little-endian bytes
with a shape.
Way of the data: between the caller and `session`; numpy is used only where it is already loaded.

    Tensor("f32", (1, 3), data).tolist()     # [[0.0, 1.0, 2.0]]
"""

from __future__ import annotations

import array
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from runtime_py.errors import InputError
from runtime_py.schema import DTYPE_BYTES
from runtime_py.symbols import INT32_MAX, INT32_MIN

Format: TypeAlias = "Literal['f', 'i', 'I']"
FORMATS: Mapping[str, Format] = {"f32": "f", "i32": "i", "u32": "I"}


@dataclass(frozen=True)
class Tensor:
    """Row-major elements; `data` is a memoryview of bytes that the tensor owns."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    @property
    def elems(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def flat(self) -> Any:
        """Return the elements in order: a typed memoryview, or a tuple for f16."""
        if self.dtype == "f16":
            return struct.unpack(f"<{self.elems}e", self.data[: 2 * self.elems])
        size = self.elems * DTYPE_BYTES[self.dtype]
        return self.data[:size].cast("B").cast(FORMATS[self.dtype])

    def tolist(self) -> Any:
        """Return nested lists of numbers."""
        return _nest(list(self.flat()), self.shape)

    def numpy(self) -> Any:
        """Return a numpy array over the same bytes; raises `InputError` where numpy is not
        loaded."""
        try:
            import numpy
        except ImportError as error:
            raise InputError("numpy is not loaded", hint="use tolist() or flat()") from error
        kind = {"f32": "<f4", "f16": "<f2", "i32": "<i4", "u32": "<u4"}[self.dtype]
        size = self.elems * DTYPE_BYTES[self.dtype]
        return numpy.frombuffer(self.data[:size], kind).reshape(self.shape)


def pack(name: str, dtype: str, data: Any, elems: int) -> bytes:
    """Return input `name` as `elems` little-endian elements of `dtype`.

    Takes nested or flat lists and anything with the buffer protocol. 64-bit integers are narrowed
    to 32 bits if they
    fit; raises `InputError` for a wrong count, a wrong kind or a value past int32.
    """
    flat = _flatten(data)
    if isinstance(flat, memoryview):
        result = _pack_view(name, dtype, flat)
    else:
        result = _pack_list(name, dtype, list(flat))
    want = elems * DTYPE_BYTES[dtype]
    if len(result) != want:
        have = len(result) // DTYPE_BYTES[dtype]
        raise InputError(f"input {name!r} has {have} elements, this step needs {elems}")
    return result


def _flatten(data: Any) -> memoryview | Iterable[Any]:
    if isinstance(data, (bytes, bytearray)):
        return memoryview(data)
    try:
        view = memoryview(data)
    except TypeError:
        return _walk(data)
    return view if view.c_contiguous else _contiguous(view)


def _contiguous(view: memoryview) -> memoryview:
    kind: Any = view.format
    return memoryview(view.tobytes()).cast(kind)


def _walk(data: Any) -> Iterable[Any]:
    if isinstance(data, (list, tuple, range)):
        for item in data:
            yield from _walk(item)
    else:
        yield data


def _pack_view(name: str, dtype: str, view: memoryview) -> bytes:
    kind: Any = view.format.lstrip("<=@")
    if (
        kind == FORMATS.get(dtype, "e")
        or (kind == "B" and view.itemsize == 1)
        or (kind == "l" and view.itemsize == 4)
    ):
        return view.tobytes()
    if kind in ("q", "l", "Q", "L", "i", "I", "?") and dtype in ("i32", "u32"):
        return _pack_list(name, dtype, view.cast("B").cast(kind).tolist())
    if kind in ("d", "f", "e") and dtype in ("f32", "f16"):
        numbers = struct.unpack(f"<{view.nbytes // view.itemsize}{kind}", view.tobytes())
        return _pack_list(name, dtype, list(numbers))
    raise InputError(f"input {name!r} has elements of format {kind!r}, expected {dtype}")


def _pack_list(name: str, dtype: str, numbers: list[Any]) -> bytes:
    whole = dtype in ("i32", "u32")
    low, high = (INT32_MIN, INT32_MAX) if dtype == "i32" else (0, 2**32 - 1)
    for number in numbers:
        if whole and not (isinstance(number, int) and low <= number <= high):
            raise InputError(f"input {name!r} holds {number!r}, which is no {dtype}")
    try:
        if dtype == "f16":
            return struct.pack(f"<{len(numbers)}e", *numbers)
        return array.array(FORMATS[dtype], numbers).tobytes()
    except (TypeError, OverflowError, struct.error) as error:
        raise InputError(f"input {name!r} cannot be stored as {dtype}: {error}") from error


def _nest(flat: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return flat
    step = math.prod(shape[1:])
    return [_nest(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]
