"""What the operators should compute, in float64 and by the shortest formula.

Input:  the stored float32 (or float16) arrays. Output: float64 arrays.
Way of the data: held against by the tests; shares no code with the kernels or their lowering.

    sdpa(q, k_cache, v_cache, pos=127)     # [B, S, Hq, D]
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Stored = npt.NDArray[np.float32] | npt.NDArray[np.float16] | npt.NDArray[np.float64]
Mask = npt.NDArray[np.float32] | npt.NDArray[np.uint32]


def visible(
    tokens: int, pos: int, causal: bool, window: int, mask: Mask | None
) -> npt.NDArray[np.bool_]:
    """Return which of pos + tokens keys each token sees, [.., S, C], by the rules of docs/OPS.md."""
    query, keys = pos + np.arange(tokens)[:, None], np.arange(pos + tokens)[None]
    seen = np.ones((tokens, pos + tokens), bool)
    if causal:
        seen &= keys <= query
    if window:
        seen &= keys > query - window
    if mask is None:
        return seen
    kept = mask != 0 if mask.dtype == np.uint32 else mask > -np.inf
    return np.asarray(seen & kept[..., : pos + tokens])


def sdpa(
    q: Stored,
    k_cache: Stored,
    v_cache: Stored,
    pos: int,
    *,
    scale: float | None = None,
    causal: bool = True,
    window: int = 0,
    softcap: float = 0.0,
    mask: Mask | None = None,
) -> Array:
    """Return attention of q [B,S,Hq,D] over the first pos + S slots of the caches [B,C,Hkv,D].

    A key that is not visible takes no part, whatever it holds; a token that sees none gives zeros.
    """
    batch, tokens, heads, width = q.shape
    group, count = heads // k_cache.shape[2], pos + tokens
    shape = (batch, heads, tokens, count)
    seen = np.broadcast_to(visible(tokens, pos, causal, window, mask), shape)
    out = np.zeros((batch, tokens, heads, width))
    added = mask[..., :count] if mask is not None and mask.dtype != np.uint32 else np.zeros(1)
    bias = np.broadcast_to(added, shape)
    for b in range(batch):
        for h in range(heads):
            k = k_cache[b, :count, h // group].astype(np.float64)
            v = v_cache[b, :count, h // group].astype(np.float64)
            scores = q[b, :, h].astype(np.float64) @ k.T * (width**-0.5 if scale is None else scale)
            if softcap:
                scores = softcap * np.tanh(scores / softcap)
            out[b, :, h] = _weighted(scores + bias[b, h], v, seen[b, h])
    return out


def _weighted(scores: Array, v: Array, seen: npt.NDArray[np.bool_]) -> Array:
    scores = np.where(seen, scores, -np.inf)
    peak = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isneginf(peak), 0, peak))
    total = weights.sum(-1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    if np.isfinite(v).all():
        return np.asarray(weights @ v)
    rows = [weights[t, seen[t]] @ v[seen[t]] for t in range(len(weights))]
    return np.asarray(rows)


def update_cache(value: Stored, cache: Stored, pos: int) -> Stored:
    """Return `cache` [B,C,H,D] with `value` [B,S,H,D] written from slot `pos` on."""
    result = cache.copy()
    result[:, pos : pos + value.shape[1]] = value
    return result


def rope(
    x: Stored, inv_freq: Stored, pos: int, *, interleaved: bool = False, scale: float = 1.0
) -> Array:
    """Return x [B,S,H,D] with its first 2 * len(inv_freq) dimensions rotated."""
    result = x.astype(np.float64)
    rotated = 2 * len(inv_freq)
    angle = (pos + np.arange(x.shape[1], dtype=np.float64))[:, None] * inv_freq.astype(np.float64)
    cos, sin = np.cos(angle)[None, :, None] * scale, np.sin(angle)[None, :, None] * scale
    a = np.arange(0, rotated, 2) if interleaved else np.arange(rotated // 2)
    b = a + 1 if interleaved else a + rotated // 2
    left, right = result[..., a], result[..., b]
    result[..., a], result[..., b] = left * cos - right * sin, right * cos + left * sin
    return result


def frequencies(rotated: int, base: float) -> npt.NDArray[np.float32]:
    """Return the float32 inverse frequencies base^(-2i / R) of R rotated dimensions."""
    return np.asarray(base ** (-np.arange(0, rotated, 2, dtype=np.float64) / rotated), np.float32)


def rms_norm(x: Stored, weight: Stored | None, eps: float) -> Array:
    """Return x / sqrt(mean(x^2) + eps) * weight over the last dimension."""
    wide = x.astype(np.float64)
    result = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + eps)
    return np.asarray(result if weight is None else result * weight.astype(np.float64))


def layer_norm(x: Stored, weight: Stored | None, bias: Stored | None, eps: float) -> Array:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias over the last dimension."""
    wide = x.astype(np.float64)
    result = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + eps)
    result = result if weight is None else result * weight.astype(np.float64)
    return np.asarray(result if bias is None else result + bias.astype(np.float64))
