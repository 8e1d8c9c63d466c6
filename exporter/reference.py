"""The formulas of attention over a cache and of rotary positions, in plain torch.

Input:  tensors; they may be float64, and then the result is.
Output: tensors. Slow and plain: what a kernel's answer is held against.
Way of the data: under `ops`, whose eager implementations call these.

    out = attend(q, k_cache, v_cache, input_pos=12)          # [1, S, Hq, D]
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from runtime_py.errors import InputError


def rotate(
    x: Tensor, inv_freq: Tensor, input_pos: int, interleaved: bool = False, scale: float = 1.0
) -> Tensor:
    """Return x `[B, S, H, D]` with its first 2 * len(inv_freq) columns turned; see `ops.rope`."""
    half, rotary = inv_freq.shape[0], 2 * inv_freq.shape[0]
    if rotary > x.shape[-1]:
        raise InputError(f"rope: {half} frequencies turn {rotary} columns, x has {x.shape[-1]}")
    position = torch.arange(input_pos, input_pos + x.shape[1], dtype=torch.float32)
    angle = (position[:, None] * inv_freq.float())[None, :, None, :]
    cos, sin = (angle.cos() * scale).to(x.dtype), (angle.sin() * scale).to(x.dtype)
    turning = x[..., :rotary]
    if interleaved:
        a, b = turning[..., 0::2], turning[..., 1::2]
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    else:
        a, b = turning[..., :half], turning[..., half:]
        turned = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    return torch.cat((turned, x[..., rotary:]), dim=-1)


def attend(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    input_pos: int,
    mask: Tensor | None = None,
    scale: float | None = None,
    causal: bool = True,
    window: int = 0,
    softcap: float = 0.0,
) -> Tensor:
    """Return `[B, S, Hq, D]`: softmax(q k^T * scale) v over the cache's first input_pos + S rows.

    Query s sees key j if j <= input_pos + s (`causal`), j > input_pos + s - window (`window` > 0:
    that many keys, its own among them) and `mask` allows it: bool (True = seen) or a number added
    to the score, broadcastable to `[B, Hq, S, >= input_pos + S]`. KV head of query head h is h //
    (Hq / Hkv). A row that sees nothing is 0, as in
    `torch.nn.functional.scaled_dot_product_attention`. `softcap` c > 0: score = c tanh(score / c)
    (Gemma 2).
    """
    batch, rows, heads, width = q.shape
    kv_heads, keys = k_cache.shape[2], input_pos + rows
    if heads % kv_heads:
        raise InputError(f"{heads} query heads cannot share {kv_heads} KV heads evenly")
    grouped = q.reshape(batch, rows, kv_heads, heads // kv_heads, width)
    k, v = k_cache[:, :keys].to(q.dtype), v_cache[:, :keys].to(q.dtype)
    scores = torch.einsum("bsngd,bcnd->bngsc", grouped, k).reshape(batch, heads, rows, keys)
    scores = scores * (scale if scale is not None else 1.0 / math.sqrt(width))
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    scores = _masked(scores, input_pos, mask, causal, window)
    blind = scores.amax(-1, keepdim=True) == -math.inf
    weights = torch.softmax(scores, -1).masked_fill(blind, 0.0)
    weights = weights.reshape(batch, kv_heads, heads // kv_heads, rows, keys)
    return torch.einsum("bngsc,bcnd->bsngd", weights, v).reshape(batch, rows, heads, width)


def _masked(
    scores: Tensor, input_pos: int, mask: Tensor | None, causal: bool, window: int
) -> Tensor:
    rows, keys = scores.shape[-2:]
    key = torch.arange(keys)[None, :]
    query = input_pos + torch.arange(rows)[:, None]
    hidden = (key > query) if causal else torch.zeros(rows, keys, dtype=torch.bool)
    if window > 0:
        hidden = hidden | (key <= query - window)
    if mask is not None:
        mask = mask[..., :keys]
        if mask.dtype != torch.bool:
            scores = scores + mask.to(scores.dtype)
        else:
            hidden = hidden | ~mask
    return scores.masked_fill(hidden, -math.inf)
