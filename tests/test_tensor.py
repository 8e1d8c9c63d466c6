"""Tensors at the edge: what may be passed in, what is refused, what comes back."""

from __future__ import annotations

import array
import struct

import numpy as np
import pytest

from runtime_py.errors import InputError
from runtime_py.tensor import Tensor, pack


@pytest.mark.parametrize(
    "data",
    [
        [1, 2, 3],
        [[1], [2], [3]],
        (1, 2, 3),
        range(1, 4),
        array.array("i", [1, 2, 3]),
        np.array([1, 2, 3], np.int32),
        np.array([1, 2, 3], np.int64),
        np.array([[1, 0], [2, 0], [3, 0]], np.int64)[:, 0],
        struct.pack("<3i", 1, 2, 3),
    ],
)
def test_pack_i32(data: object) -> None:
    assert pack("ids", "i32", data, 3) == struct.pack("<3i", 1, 2, 3)


@pytest.mark.parametrize(
    "data",
    [
        [0.5, -2.0],
        np.array([0.5, -2.0]),
        np.array([0.5, -2.0], np.float32),
        np.array([0.5, -2], "f2"),
    ],
)
def test_pack_floats(data: object) -> None:
    assert pack("x", "f32", data, 2) == struct.pack("<2f", 0.5, -2.0)
    assert pack("x", "f16", data, 2) == struct.pack("<2e", 0.5, -2.0)


@pytest.mark.parametrize(
    ("dtype", "data"),
    [
        ("i32", [1, 2**31]),
        ("i32", np.array([1, 2**40])),
        ("i32", [1, 2.5]),
        ("i32", ["a", 2]),
        ("i32", [1]),
        ("i32", [1, 2, 3]),
        ("f32", ["x", "y"]),
        ("f32", np.array([1, 2], np.int32)),
        ("f16", [1e9, 0.0]),
    ],
)
def test_pack_refuses(dtype: str, data: object) -> None:
    with pytest.raises(InputError, match="ids"):
        pack("ids", dtype, data, 2)


def test_an_int64_beyond_int32_is_refused_by_value() -> None:
    with pytest.raises(InputError, match="2147483648"):
        pack("input_pos", "i32", np.array([2**31]), 1)


def test_tensor_gives_lists_and_arrays() -> None:
    data = memoryview(struct.pack("<6f", *range(6)))
    tensor = Tensor("f32", (2, 3), data)
    assert tensor.tolist() == [[0, 1, 2], [3, 4, 5]]
    np.testing.assert_array_equal(tensor.numpy(), np.arange(6, dtype=np.float32).reshape(2, 3))
    half = Tensor("f16", (3,), memoryview(struct.pack("<3e", 0.5, 1, 2) + b"\0\0"))
    assert half.tolist() == [0.5, 1.0, 2.0]
    np.testing.assert_array_equal(half.numpy(), np.array([0.5, 1, 2], np.float16))
    assert Tensor("i32", (), memoryview(struct.pack("<i", -7))).tolist() == -7
