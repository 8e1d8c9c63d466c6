"""Right values in float64, and the rule by which a result passes.

Input:  rows of `cases`; the float32 bytes that the GPU gets too. Output: tensors; a verdict.
Way of the data: `cases` -> oracles -> the tests.

    q, k, v = step_inputs(row.heads, row.kv_heads, row.head_dim, tokens=3, step=0)
    check(got, attention(q, k_all, v_all, input_pos=0), tolerances.SDPA_F32)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

LEAST = 1e-6  # the denominator of a relative error is never smaller
STEP_OFFSET = 31  # how far the flat index moves from step to step


def ramp(shape: tuple[int, ...], mod: int, off: int, den: float, step: int = 0) -> Tensor:
    """Return float32 ((i mod `mod`) - off) / den over the flat index i, moved by 31 a step."""
    index = torch.arange(int(np.prod(shape)), dtype=torch.int64) + STEP_OFFSET * step
    return ((index % mod - off).to(torch.float64) / den).to(torch.float32).reshape(shape)


def queries(tokens: int, heads: int, head_dim: int, den: float = 16, step: int = 0) -> Tensor:
    """Return the reference's q `[1, S, Hq, D]`."""
    return ramp((1, tokens, heads, head_dim), 17, 8, den, step)


def keys(tokens: int, heads: int, head_dim: int, den: float = 16, step: int = 0) -> Tensor:
    """Return the reference's k `[1, S, Hkv, D]`."""
    return ramp((1, tokens, heads, head_dim), 13, 6, den, step)


def values(tokens: int, heads: int, head_dim: int, den: float = 16, step: int = 0) -> Tensor:
    """Return the reference's v `[1, S, Hkv, D]`."""
    return ramp((1, tokens, heads, head_dim), 11, 5, den, step)


def cache(rows: int, context: int, heads: int, head_dim: int, mod: int, off: int) -> Tensor:
    """Return a cache `[1, C, H, D]` with `rows` rows of the reference's ramp, zeros after them."""
    full = torch.zeros(1, context, heads, head_dim)
    full[:, :rows] = ramp((1, rows, heads, head_dim), mod, off, 16)
    return full


def attention(q: Tensor, k: Tensor, v: Tensor, input_pos: int, f16_kv: bool = False) -> Tensor:
    """Return float32 `[1, S, Hq, D]` of q over all keys k, v `[1, input_pos + S, Hkv, D]`.

    torch's own attention in float64; KV heads are repeated, not tiled, and token s sees the keys
    up to input_pos + s. `f16_kv` rounds k and v as an f16 cache does.
    """
    if f16_kv:
        k, v = k.half(), v.half()
    group = q.shape[2] // k.shape[2]
    wide = [x.double().repeat_interleave(group, dim=2).transpose(1, 2) for x in (k, v)]
    query = input_pos + torch.arange(q.shape[1])[:, None]
    visible = torch.arange(k.shape[1])[None, :] <= query
    y = F.scaled_dot_product_attention(q.double().transpose(1, 2), *wide, attn_mask=visible)
    return y.transpose(1, 2).float()


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return x / sqrt(mean(x^2) + eps) * weight over the last dimension."""
    wide = x.double()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.double()).float()


def rope(x: Tensor, frequencies: Tensor, input_pos: int, interleaved: bool) -> Tensor:
    """Return x `[B, S, H, D]` turned by (input_pos + s) * frequencies (float64) pair by pair.

    A complex product: the pair is (2i, 2i + 1) when `interleaved`, (i, i + D/2) otherwise.
    """
    wide, half = x.double(), x.shape[-1] // 2
    pairs = wide.unflatten(-1, (half, 2)) if interleaved else wide.unflatten(-1, (2, half)).mT
    position = input_pos + torch.arange(x.shape[1], dtype=torch.float64)
    turn = torch.polar(torch.tensor(1.0, dtype=torch.float64), position[:, None] * frequencies)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn[None, :, None, :])
    return (turned if interleaved else turned.mT).flatten(-2).float()


def llama3_frequencies(
    head_dim: int, base: float, factor: float, low: float, high: float, original: int
) -> Tensor:
    """Return float64 `[D/2]`, Llama 3.1's scaling: by wavelength, from original/high to original/low."""
    plain = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    turns = original * plain / (2 * torch.pi)
    blend = ((turns - low) / (high - low)).clamp(0, 1)
    return blend * plain + (1 - blend) * plain / factor


def worst(got: Any, want: Any, atol: float, rtol: float) -> tuple[float, str | None]:
    """Return the greatest absolute error, and what fails (None if nothing does).

    An element passes if |got - want| <= atol or |got - want| / max(|want|, 1e-6) <= rtol. NaN
    never passes.
    """
    a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if a.shape != b.shape:
        return float("inf"), f"shape {a.shape}, expected {b.shape}"
    error = np.abs(a - b)
    passes = (error <= atol) | (error / np.maximum(np.abs(b), LEAST) <= rtol)
    if a.size == 0 or passes.all():
        return float(error.max(initial=0.0)), None
    at = np.unravel_index(int(np.argmin(passes)), a.shape)
    where = tuple(int(i) for i in at)
    return float(np.nanmax(error, initial=0.0)), (
        f"{int((~passes).sum())} of {a.size} elements fail; first at {where}: {a[at]} against {b[at]}"
    )


def check(got: Any, want: Any, tolerance: Mapping[str, float], label: str = "") -> float:
    """Return the greatest absolute error; raises `AssertionError` if an element does not pass."""
    error, fault = worst(got, want, **tolerance)
    assert fault is None, f"{label}: {fault}"
    return error


def differs(got: Any, want: Any, tolerance: Mapping[str, float]) -> bool:
    """Return True if `check` would fail: what a control must show."""
    return worst(got, want, **tolerance)[1] is not None
