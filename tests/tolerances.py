"""Every tolerance of the tests, each with its reason, and the one rule by which a number passes.

Input:  what ran and what it should have been. Output: true or false, and the worst error for messages.

    accept(got, want, *SDPA_F32)
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Pair = tuple[float, float]  # (absolute, relative)
Close: TypeAlias = "dict[str, Any]"  # keyword arguments of torch's and numpy's comparers

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
# A draw agrees with the host's where u is this far from the boundary of an id, as a part of the whole mass: weights
# are f32 exponentials (relative error about 1e-6 far below the best), their sums 17 levels of f32 additions.
SAMPLING_MARGIN = 3e-6
# The same where the logits come from another pass, over all tokens at once: the sums of its kernels have other orders.
SAMPLED_LOGITS = 1e-4
# 4-bit embedding rows are code * scale, one f32 multiplication.
EMBEDDING: Pair = (1e-5, 0.0)
# Closed-form values printed with five decimals.
FIVE_DECIMALS: Pair = (2e-5, 0.0)

# Quantised linear in f32 against float64, the reference's own pairs: K up to 4096, and K = 8192.
LINEAR: Pair = (1e-4, 1e-3)
LINEAR_LONG: Pair = (1e-3, 1e-2)
# The same with f16 products summed in f32: an f16 rounding of each factor.
LINEAR_F16: Pair = (2.3e-4, 1e-3)
# The same with f16 sums, K = 2048 and K = 8192: lossy, only where an option asks for it.
LINEAR_F16_SUMS: Pair = (2e-2, 3e-2)
LINEAR_F16_SUMS_LONG: Pair = (5e-2, 8e-2)
# One route of a linear layer against another: only the order of f32 sums differs, outputs are about 1.
LINEAR_ROUTES: Pair = (1e-5, 1e-5)

# The float64 graph interpreter against eager float32: eager's own rounding, sums of up to 100 terms.
INTERPRETED_F32: Pair = (2e-5, 2e-5)
# The same over a whole tiny model: two layers, widths up to a few hundred.
INTERPRETED_MODEL: Pair = (1e-4, 1e-4)
# The interpreter's dequantised weights against torch's, both from the same codes: float32 roundings.
DEQUANTIZED: Pair = (1e-6, 2e-5)
# The graph interpreter before and after a fusion, both float64: only the order of sums may differ.
FUSED_F64: Pair = (1e-10, 1e-10)

# SmolLM2's logits on the GPU against eager float32: 30 layers of f32 sums in another order. Measured
# on SwiftShader: 1.7e-4 at worst over 12 prompts of 1 to 400 tokens, each with 64 of reply.
MODEL_LOGITS: Pair = (1e-3, 1e-3)
# The same prompt in one piece, in pieces and token by token: other routes (tiles, vectors) sum in
# another order, and 30 layers carry that on; logits are up to 30. Measured on SwiftShader: 9e-5.
MODEL_CUTS: Pair = (1e-3, 1e-3)
# Perplexity against eager float32 on the same tokens, in perplexity (about 15 on the default text):
# exact arithmetic or an f16 cache; f16 multiply; f16 sums too (the reference's own step: 13.32 to
# 13.37). Measured over 2048 tokens: 2.5e-6 by default, 1.1e-3 with an f16 cache, 2e-4 with f16
# multiply, 0.03 with f16 sums too.
PERPLEXITY = 0.02
PERPLEXITY_F16 = 0.05
PERPLEXITY_F16_SUMS = 0.1
# Eager's best logit must lead by this much before another choice is called wrong.
MARGIN = 1e-3

# -- keyword arguments of torch's and numpy's comparers

# Two orders of summation of the same float32 numbers, over widths up to a few hundred, two layers.
EAGER_F32: Close = {"atol": 1e-4, "rtol": 1e-4}
# The importer's float32 run against the float64 oracle: tiny models whose logits are about 10.
ORACLE_F64: Close = {"atol": 1e-3, "rtol": 1e-3}
# One rounding from float64 to float32, 2^-24 relative.
F32_ROUNDING: Close = {"atol": 0.0, "rtol": 1.2e-7}
# The reference's own pair for rotary positions: an angle of 8192 in float32 is off by up to 5e-4.
EAGER_ROPE: Close = {"atol": 1e-3, "rtol": 1e-3}
# Values given by hand to five decimals.
FIVE_DIGITS: Close = {"atol": 1e-5, "rtol": 1e-5}

# -- plain numbers

# Half a step of a code, as a part of the group's peak: 0.5 / 7 (about 7 %) and 0.5 / 127, with room
# for the rounding of an f16 scale.
QUANT_STEP_OF_PEAK = {4: 0.5 / 7 * 1.01, 8: 0.5 / 127 * 1.01}
# Merging twice the text may take 2.6 times the look-ups (n log n takes 2.2, n squared 4). Its time
# grows by 2.2 to 2.5 on an idle machine; a busy one adds to that, but n squared is still told apart.
MAX_LOOKUP_RATIO_PER_DOUBLING = 2.6
MAX_TIME_RATIO_PER_DOUBLING = 3.4


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
    raise AssertionError(
        f"{what}: {g[place]} at {tuple(map(int, place))}, expected {w[place]} within {pair}"
    )
