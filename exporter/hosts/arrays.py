"""Between numpy arrays and the dtypes of a graph: what crosses to a worker as bytes with a name.

Input:  arrays by name. Output: `{name: {dtype, shape}}` for the JSON side, and the bytes; and back.
Way of the data: `host.call` -> arrays -> `channel`.

    pack({"x": numpy.zeros(3, "float32")})    # ({"x": {"dtype": "f32", "shape": [3]}}, {"x":
    <memory>})
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy
import numpy.typing

from runtime_py.errors import InputError

NUMPY = {"f32": "float32", "f16": "float16", "i32": "int32", "u32": "uint32"}
SAME = {name: dtype for dtype, name in NUMPY.items()}
INT32 = numpy.iinfo(numpy.int32)


def pack(
    arrays: Mapping[str, numpy.typing.ArrayLike],
) -> tuple[dict[str, dict[str, Any]], dict[str, memoryview]]:
    """Return descriptions and bytes. int64 that fits becomes i32, bool u32; other dtypes are
    refused.
    """
    described: dict[str, dict[str, Any]] = {}
    blobs: dict[str, memoryview] = {}
    for name, value in arrays.items():
        array = numpy.ascontiguousarray(_narrow(name, numpy.asarray(value)))
        shape = list(numpy.shape(value))
        described[name] = {"dtype": SAME[array.dtype.name], "shape": shape}
        blobs[name] = array.reshape(-1).view(numpy.uint8).data
    return described, blobs


def unpack(
    described: Mapping[str, Mapping[str, Any]], blobs: Mapping[str, bytearray]
) -> dict[str, numpy.typing.NDArray[Any]]:
    """Return writable arrays, the inverse of `pack`; bytes may be padded to a multiple of four."""
    result = {}
    for name, of in described.items():
        count = math.prod(of["shape"])
        flat = numpy.frombuffer(blobs.get(name, bytearray()), NUMPY[of["dtype"]], count)
        result[name] = flat.reshape(of["shape"])
    return result


def _narrow(name: str, array: numpy.typing.NDArray[Any]) -> numpy.typing.NDArray[Any]:
    if array.dtype.name in SAME:
        return array.astype(array.dtype.newbyteorder("<"), copy=False)
    if array.dtype == numpy.bool_:
        return array.astype(numpy.uint32)
    if array.dtype == numpy.int64:
        if array.size and (array.min() < INT32.min or array.max() > INT32.max):
            raise InputError(f"input {name!r} holds an integer that does not fit int32")
        return array.astype(numpy.int32)
    raise InputError(
        f"input {name!r} has dtype {array.dtype}",
        hint="give float32, float16, int32, uint32, int64 that fits int32, or bool",
    )
