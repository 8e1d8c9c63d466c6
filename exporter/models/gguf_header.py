"""Walks a GGUF header before a library trusts it: counts, sizes, offsets and alignment against the
file's length.

Input:  a `.gguf` file (memory-mapped, nothing is copied).
Output: nothing, or `ExportError` naming the rule that is broken. Every loop is bounded by the bytes
there are.
Way of the data: called by `models.gguf` before `gguf.GGUFReader`. Format: ggml's docs/gguf.md,
version 2 and 3.

    check_header(Path("model.gguf"))
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from runtime_py.errors import ExportError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DIMS = 4
DEFAULT_ALIGNMENT = 32
UINT32, STRING, ARRAY = 4, 8, 9
# Bytes of a scalar by GGUF value type: u8 i8 u16 i16 u32 i32 f32 bool, then u64 i64 f64.
SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
LEAST_FIELD_BYTES = 13  # an empty key, a type, a 1-byte value
LEAST_TENSOR_BYTES = 32  # an empty name, one dimension, a type, an offset


def check_header(path: Path) -> None:
    """Return if every size that the header of `path` states fits the file; raises `ExportError`
    otherwise.
    """
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _Walker(path.name, data).walk()
    except (OSError, ValueError) as error:
        raise ExportError(f"{path} cannot be read as GGUF: {error}") from error


class _Walker:
    """A cursor over the mapped header; every read is checked against the end of the file."""

    def __init__(self, name: str, data: mmap.mmap) -> None:
        self.name, self.data, self.at, self.alignment = name, data, 0, DEFAULT_ALIGNMENT

    def walk(self) -> None:
        if self._take(4) != MAGIC:
            raise self._error("does not start with the letters GGUF")
        version = self._u32()
        if version not in VERSIONS:
            raise self._error(
                f"is of GGUF version {version}, expected one of {VERSIONS} (little-endian)"
            )
        tensors, fields = self._u64(), self._u64()
        left = len(self.data) - self.at
        if tensors * LEAST_TENSOR_BYTES + fields * LEAST_FIELD_BYTES > left:
            raise self._error(
                f"states {fields} fields and {tensors} tensors but has {left} bytes left"
            )
        self._walk_fields(fields)
        extents = self._walk_tensors(tensors)
        start = -(-self.at // self.alignment) * self.alignment
        for name, offset, size in extents:
            if start + offset + size > len(self.data):
                raise self._error(f"ends before tensor {name!r}: {size} bytes at {start + offset}")

    def _walk_fields(self, count: int) -> None:
        seen = set()
        for _ in range(count):
            key, kind = self._string(), self._u32()
            if key in seen:
                raise self._error(f"has the field {key!r} twice")
            seen.add(key)
            if key == "general.alignment":
                self._read_alignment(kind)
            else:
                self._skip_value(kind, key)

    def _read_alignment(self, kind: int) -> None:
        if kind != UINT32:
            raise self._error(f"has general.alignment of value type {kind}, expected uint32")
        self.alignment = self._u32()
        if self.alignment == 0 or self.alignment & (self.alignment - 1):
            raise self._error(f"has general.alignment {self.alignment}, expected a power of two")

    def _skip_value(self, kind: int, key: str, depth: int = 0) -> None:
        if kind == STRING:
            self._string()
        elif kind in SCALAR_BYTES:
            self._skip(SCALAR_BYTES[kind])
        elif kind == ARRAY and depth < 2:
            item, count = self._u32(), self._u64()
            if item in SCALAR_BYTES:
                self._skip(SCALAR_BYTES[item] * count)
                return
            if count * 8 > len(self.data) - self.at:
                raise self._error(f"states {count} items in {key!r}, more than the file can hold")
            for _ in range(count):
                self._skip_value(item, key, depth + 1)
        else:
            raise self._error(f"has the field {key!r} of unknown value type {kind}")

    def _walk_tensors(self, count: int) -> list[tuple[str, int, int]]:
        extents = []
        seen = set()
        for _ in range(count):
            name = self._string()
            if name in seen:
                raise self._error(f"has the tensor {name!r} twice")
            seen.add(name)
            dims = self._dims(name)
            kind, offset = self._u32(), self._u64()
            if offset % self.alignment:
                raise self._error(
                    f"has tensor {name!r} at {offset}, off its alignment {self.alignment}"
                )
            extents.append((name, offset, self._size(name, dims, kind)))
        return extents

    def _dims(self, name: str) -> list[int]:
        count = self._u32()
        if not 1 <= count <= MAX_DIMS:
            raise self._error(
                f"has tensor {name!r} with {count} dimensions, expected 1 to {MAX_DIMS}"
            )
        dims = [self._u64() for _ in range(count)]
        if 0 in dims:
            raise self._error(f"has tensor {name!r} of shape {dims}: a dimension is zero")
        return dims

    def _size(self, name: str, dims: list[int], kind: int) -> int:
        try:
            block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        except (ValueError, KeyError):
            raise self._error(f"has tensor {name!r} of unknown type {kind}") from None
        if dims[0] % block:
            raise self._error(
                f"has tensor {name!r} with rows of {dims[0]}, not whole blocks of {block}"
            )
        size = block_bytes * (dims[0] // block)
        for dim in dims[1:]:  # Python integers do not wrap, so a huge product is seen as one
            size *= dim
        if size > len(self.data):
            raise self._error(f"has tensor {name!r} of shape {dims}: larger than the whole file")
        return int(size)

    def _string(self) -> str:
        return self._take(self._u64()).decode("utf-8", "replace")

    def _u32(self) -> int:
        return int(struct.unpack("<I", self._take(4))[0])

    def _u64(self) -> int:
        return int(struct.unpack("<Q", self._take(8))[0])

    def _take(self, size: int) -> bytes:
        start = self.at
        self._skip(size)
        return self.data[start : self.at]

    def _skip(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise self._error(
                f"ends inside its header: {size} bytes wanted at {self.at} of {len(self.data)}"
            )
        self.at += size

    def _error(self, what: str) -> ExportError:
        return ExportError(
            f"{self.name} {what}", hint="the file is damaged or was cut short; fetch it again"
        )
