"""Every tolerance of the tests, each with its reason, and the one rule by which a number passes.

Input:  what ran and what it should have been. Output: true or false, and the worst error for messages.

    accept(got, want, *SDPA_F32)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Pair = tuple[float, float]  # (absolute, relative)

# The reference's own pairs (its SDPA suite): f32 arithmetic against a float64 golden.
SDPA_F32: Pair = (1e-4, 1e-3)
# The reference's pair for a cache stored in f16; only where f16 is really stored.
SDPA_F16: Pair = (2e-3, 1e-2)
# Cache contents are copies: the reference allows one rounding of the last place.
CACHE: Pair = (1e-6, 0.0)
# update_cache copies bits.
EXACT: Pair = (0.0, 0.0)
# The reference's pair for rotary embedding.
ROPE: Pair = (1e-3, 1e-3)
# Ours: the angle is reduced by integer arithmetic, sine and cosine are good to 1e-7; values here are below 100.
ROPE_TIGHT: Pair = (2e-5, 1e-6)
# Norms sum up to 8192 squares in f32 (relative error about 1e-6) and scale values up to about 5.
NORM: Pair = (1e-4, 1e-4)
# One f32 operation, or a short formula of WGSL builtins (exp 3 + 2|x| ulp): absolute for results near zero.
ELEMENTWISE: Pair = (1e-5, 1e-5)
# Sums of a few thousand f32 products of values about 1, in another order than numpy's.
SUM: Pair = (1e-4, 1e-4)
# One sequence cut into calls in different ways: the routes differ only in the order of f32 additions.
CUTS: Pair = (1e-5, 0.0)
# 4-bit embedding rows are code * scale, one f32 multiplication.
EMBEDDING: Pair = (1e-5, 0.0)
# Closed-form values printed with five decimals.
FIVE_DECIMALS: Pair = (2e-5, 0.0)


def accept(got: npt.ArrayLike, want: npt.ArrayLike, atol: float, rtol: float) -> bool:
    """True if every element has |got - want| <= atol or |got - want| / max(|want|, 1e-6) <= rtol.

    NaN never passes, on either side; shapes must be equal.
    """
    g, w = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if g.shape != w.shape or np.isnan(g).any() or np.isnan(w).any():
        return False
    same = g == w  # infinities of one sign: their difference is no number
    with np.errstate(invalid="ignore"):
        error = np.abs(g - w)
    passes = (error <= atol) | (error / np.maximum(np.abs(w), 1e-6) <= rtol)
    return bool((passes | same).all())


def worst(got: npt.ArrayLike, want: npt.ArrayLike) -> float:
    """Return the greatest |got - want|, NaN if there is one or the shapes differ."""
    g, w = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if g.shape != w.shape:
        return float("nan")
    return float(np.abs(g - w).max()) if g.size else 0.0


def require(got: Any, want: Any, pair: Pair, what: str = "") -> None:
    """Raise `AssertionError` with the worst error and its place unless `accept` holds."""
    if accept(got, want, *pair):
        return
    g, w = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if g.shape != w.shape:
        raise AssertionError(f"{what}: shape {g.shape}, expected {w.shape}")
    error = np.where(np.isnan(g) | np.isnan(w), np.inf, np.abs(g - w))
    place = np.unravel_index(int(error.argmax()), error.shape) if error.ndim else ()
    raise AssertionError(f"{what}: {g[place]} at {tuple(map(int, place))}, expected {w[place]} within {pair}")
