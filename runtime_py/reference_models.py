"""The numpy meaning of the operators that only language models use: quantised weights, RoPE,
attention with a cache.

Input:  as `reference_ops`. Output: the same.
Way of the data: part of the table behind `reference`. docs/FORMAT.md gives the packing of quantised
weights.
"""

from __future__ import annotations

from typing import Any

from runtime_py.reference_ops import REFERENCE, Context, activation, op, rms_norm, softmax
from runtime_py.schema import Node

__all__ = ["REFERENCE", "Context"]


def _numpy() -> Any:
    import numpy

    return numpy


def unpack(words: Any, bits: int) -> Any:
    """Return the codes of packed rows: nibbles 0..15 (low halves of a word's bytes first), or
    signed bytes.
    """
    np = _numpy()
    as_bytes = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), -1, 4)
    if bits == 8:
        return as_bytes.reshape(len(words), -1).view(np.int8)
    return np.stack((as_bytes & 15, as_bytes >> 4), axis=2).reshape(len(words), -1)


def dequantize(ctx: Context, node: Node, codes: Any, scales: Any, width: int) -> Any:
    """Return the weight rows: (code - 8) * scale, code * scale, or code * scale + min."""
    np = _numpy()
    scheme, group = str(node.attrs["scheme"]), int(str(node.attrs["group"]))
    numbers = unpack(codes, 4 if scheme.startswith("q4") else 8)[:, :width].astype(ctx.dtype)
    of = np.arange(width) // group
    if scheme.endswith("gaw"):
        return numbers * scales[:, of, 0] + scales[:, of, 1]
    return (numbers - (8 if scheme == "q4gsw" else 0)) * scales[:, of]


def _normed(node: Node, x: Any, weight: Any) -> Any:
    return x if weight is None else rms_norm(x, weight, float(str(node.attrs["eps"])))


@op("linear_q")
def _linear_q(
    ctx: Context,
    node: Node,
    x: Any,
    codes: Any,
    scales: Any,
    bias: Any = None,
    residual: Any = None,
    norm_weight: Any = None,
) -> Any:
    weight = dequantize(ctx, node, codes, scales, int(str(node.attrs["in_features"])))
    result = _normed(node, x, norm_weight) @ weight.T
    result = result if bias is None else result + bias
    return result if residual is None else result + residual


@op("gate_up_q")
def _gate_up_q(
    ctx: Context, node: Node, x: Any, codes: Any, scales: Any, norm_weight: Any = None
) -> Any:
    np = _numpy()
    weight = dequantize(ctx, node, codes, scales, int(str(node.attrs["in_features"])))
    gate, up = np.split(_normed(node, x, norm_weight) @ weight.T, 2, axis=-1)
    return activation(np, str(node.attrs["act"]), gate) * up


@op("embedding_q")
def _embedding_q(ctx: Context, node: Node, ids: Any, codes: Any, scales: Any) -> Any:
    flat = ids.reshape(-1)
    rows = dequantize(ctx, node, codes[flat], scales[flat], int(str(node.attrs["width"])))
    return rows.reshape(ctx.shape(node))


def rotate(ctx: Context, node: Node, x: Any, inv_freq: Any) -> Any:
    """Return x `[B, S, H, D]` turned by (input_pos + s) * inv_freq; pairs (i, i + R/2) or (2i, 2i +
    1).
    """
    np = _numpy()
    half = len(inv_freq)
    position = ctx.expr(node, "input_pos") + np.arange(x.shape[1])
    angle = (position[:, None] * inv_freq)[None, :, None, :]
    scale = float(str(node.attrs.get("scale", 1.0)))
    cos, sin = np.cos(angle) * scale, np.sin(angle) * scale
    if node.attrs.get("interleaved"):
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        first, second = slice(0, half), slice(half, 2 * half)
    result = x.copy()
    result[..., first] = x[..., first] * cos - x[..., second] * sin
    result[..., second] = x[..., second] * cos + x[..., first] * sin
    return result


@op("rope")
def _rope(ctx: Context, node: Node, x: Any, inv_freq: Any) -> Any:
    return rotate(ctx, node, x, inv_freq)


def _write(ctx: Context, node: Node, name: str, value: Any) -> Any:
    start = ctx.expr(node, "input_pos")
    cache = ctx.values[name].copy()
    cache[:, start : start + value.shape[1]] = value
    ctx.values[name] = cache
    return cache


@op("update_cache")
def _update_cache(ctx: Context, node: Node, value: Any, cache: Any) -> None:
    _write(ctx, node, node.mutates[0], value)


@op("rope_qkv_update")
def _rope_qkv_update(
    ctx: Context, node: Node, qkv: Any, inv_freq: Any, k_cache: Any, v_cache: Any
) -> Any:
    np = _numpy()
    heads, kv_heads, width = (
        int(str(node.attrs[name])) for name in ("heads", "kv_heads", "head_dim")
    )
    split = qkv.reshape(*qkv.shape[:2], heads + 2 * kv_heads, width)
    q, k, v = np.split(split, [heads, heads + kv_heads], axis=2)
    _write(ctx, node, node.mutates[0], rotate(ctx, node, k, inv_freq))
    _write(ctx, node, node.mutates[1], v)
    return rotate(ctx, node, q, inv_freq)


@op("sdpa_with_kv_cache")
def _sdpa_with_kv_cache(
    ctx: Context, node: Node, q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, mask: Any = None
) -> Any:
    keys, values = _write(ctx, node, node.mutates[0], k), _write(ctx, node, node.mutates[1], v)
    return _sdpa_cached(ctx, node, q, keys, values, mask)


@op("sdpa_cached")
def _sdpa_cached(
    ctx: Context, node: Node, q: Any, k_cache: Any, v_cache: Any, mask: Any = None
) -> Any:
    start = ctx.expr(node, "input_pos")
    valid = start + q.shape[1]
    k, v = k_cache[:, :valid], v_cache[:, :valid]
    if mask is not None:
        mask = mask[..., :valid]
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    return attend(node, q, k, v, mask, start).transpose(0, 2, 1, 3)


@op("sdpa")
def _sdpa(ctx: Context, node: Node, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return attend(node, q, k, v, mask, 0)


def attend(node: Node, q: Any, k: Any, v: Any, mask: Any, start: int) -> Any:
    """Return softmax(q k^T scale + mask) v; q `[B, Hq, S, D]`, k and v `[B, Hkv, C, D]`; query s is
    at start + s.
    """
    np = _numpy()
    repeat = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, repeat, axis=1), np.repeat(v, repeat, axis=1)
    scores = q @ k.transpose(0, 1, 3, 2) * float(str(node.attrs["scale"]))
    softcap, window = (
        float(str(node.attrs.get("softcap", 0))),
        int(str(node.attrs.get("window", 0))),
    )
    if softcap > 0:
        scores = softcap * np.tanh(scores / softcap)
    if mask is not None:
        hidden = mask == 0 if mask.dtype == np.uint32 else None
        scores = np.where(hidden, -np.inf, scores) if hidden is not None else scores + mask
    key, query = np.arange(k.shape[2])[None, :], start + np.arange(q.shape[2])[:, None]
    if node.attrs.get("causal"):
        scores = np.where(key > query, -np.inf, scores)
    if window > 0:
        scores = np.where(key <= query - window, -np.inf, scores)
    return softmax(scores) @ v
