"""Linear layers and embeddings in float64, from the stored words; shares no code with the runtime.

Input:  numpy arrays as a bundle stores them. Output: float64 arrays.
Way of the data: read by tests only. Written from docs/FORMAT.md, one value at a time where it can be.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def codes_of(words: NDArray[Any], bits: int) -> NDArray[np.int64]:
    """Return the codes [rows, words * 32 / bits] that `words` [rows, words] pack."""
    data = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), -1).astype(np.int64)
    if bits == 8:
        return np.where(data < 128, data, data - 256)
    codes = np.zeros((len(words), data.shape[1] * 2), np.int64)
    for byte in range(4):
        codes[:, byte::8] = data[:, byte::4] & 15
        codes[:, byte + 4 :: 8] = data[:, byte::4] >> 4
    return codes


def dequantise(
    words: NDArray[Any], scales: NDArray[Any], scheme: str, group: int, k: int
) -> Floats:
    """Return the weight [rows, k] of a scheme: (code - 8) * s, code * s, or code * s + min."""
    bits = 4 if scheme.startswith("q4") else 8
    codes = codes_of(words, bits)[:, :k].astype(np.float64)
    step = 32 // bits
    which = np.arange(k) // (-(-group // step) * step)
    numbers = scales.astype(np.float64)
    if scheme.endswith("gaw"):
        return np.asarray(codes * numbers[:, which, 0] + numbers[:, which, 1])
    return np.asarray((codes - (8 if scheme == "q4gsw" else 0)) * numbers[:, which])


def linear(
    x: NDArray[Any],
    weight: NDArray[Any],
    bias: NDArray[Any] | None = None,
    residual: NDArray[Any] | None = None,
) -> Floats:
    """Return x @ weight.T + bias + residual."""
    y = x.astype(np.float64) @ weight.astype(np.float64).T
    y = y if bias is None else y + bias
    return np.asarray(y if residual is None else y + residual)


def gated(x: NDArray[Any], weight: NDArray[Any], act: str) -> Floats:
    """Return act(x @ gate.T) * (x @ up.T), gate the first half of the rows of `weight`."""
    gate, up = np.split(linear(x, weight), 2, axis=-1)
    if act == "silu":
        return np.asarray(gate / (1 + np.exp(-gate)) * up)
    inner = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)
    return np.asarray(0.5 * gate * (1 + np.tanh(inner)) * up)


def rms_norm(x: NDArray[Any], weight: NDArray[Any], eps: float) -> Floats:
    """Return x / sqrt(mean(x^2) + eps) * weight over the last dimension."""
    x = x.astype(np.float64)
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight)


def in_f16(numbers: NDArray[Any]) -> Floats:
    """Return what is left of `numbers` after storage in f16, infinity past its range."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32).astype(np.float16).astype(np.float64)
