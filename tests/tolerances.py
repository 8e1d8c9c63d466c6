"""Every tolerance of the tests, each with its reason.

Input:  nothing. Output: keyword arguments of `torch.testing.assert_close`, and plain numbers.
Way of the data: read by tests only.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Close: TypeAlias = "dict[str, Any]"

# Two orders of summation of the same float32 numbers, over widths up to a few hundred, two layers.
EAGER_F32: Close = {"atol": 1e-4, "rtol": 1e-4}

# The importer's float32 run against the float64 oracle: tiny models whose logits are about 10.
ORACLE_F64: Close = {"atol": 1e-3, "rtol": 1e-3}

# One rounding from float64 to float32, 2^-24 relative.
F32_ROUNDING: Close = {"atol": 0.0, "rtol": 1.2e-7}

# The reference's own pair for rotary positions: an angle of 8192 in float32 is off by up to 5e-4.
ROPE: Close = {"atol": 1e-3, "rtol": 1e-3}

# Values given by hand to five decimals.
FIVE_DIGITS: Close = {"atol": 1e-5, "rtol": 1e-5}

# Half a step of a code, as a part of the group's peak: 0.5 / 7 (about 7 %) and 0.5 / 127, with room
# for the rounding of an f16 scale.
QUANT_STEP_OF_PEAK = {4: 0.5 / 7 * 1.01, 8: 0.5 / 127 * 1.01}

# Merging twice the text may take 2.6 times the look-ups (n log n takes 2.2, n squared 4). Its time
# grows by 2.2 to 2.5 on an idle machine; a busy one adds to that, but n squared is still told apart.
MAX_LOOKUP_RATIO_PER_DOUBLING = 2.6
MAX_TIME_RATIO_PER_DOUBLING = 3.4

# The float64 graph interpreter against eager float32: eager's own rounding, sums of up to 100 terms.
INTERPRETED_F32: Close = {"atol": 2e-5, "rtol": 2e-5}

# The graph interpreter before and after a fusion, both float64: only the order of sums may differ.
FUSED_F64: Close = {"atol": 1e-10, "rtol": 1e-10}

# Quantised linear in float32 against float64, the reference's own pairs: K = 2048 and less, K = 8192.
LINEAR: Close = {"atol": 1e-4, "rtol": 1e-3}
LINEAR_LONG: Close = {"atol": 1e-3, "rtol": 1e-2}

# The same with f16 products summed in float32: an f16 rounding of each factor.
LINEAR_F16: Close = {"atol": 2.3e-4, "rtol": 1e-3}

# The same with f16 sums, K = 2048 and K = 8192: lossy, only where an option asks for it.
LINEAR_F16_SUMS: Close = {"atol": 2e-2, "rtol": 3e-2}
LINEAR_F16_SUMS_LONG: Close = {"atol": 5e-2, "rtol": 8e-2}

# One route of a linear layer against another on the same float32 numbers: only the order of sums
# differs, outputs are about 1.
LINEAR_ROUTES: Close = {"atol": 1e-5, "rtol": 1e-5}

# A table row is one product and one sum in float32.
EMBEDDING: Close = {"atol": 1e-5, "rtol": 1e-5}

# The reference's own pairs: attention with f32 caches, and with f16 ones where they are active.
SDPA_F32: Close = {"atol": 1e-4, "rtol": 1e-3}
SDPA_F16: Close = {"atol": 2e-3, "rtol": 1e-2}

# A cache is a copy of what was written into it; the reference's bound, though the bits are the same.
CACHE: Close = {"atol": 1e-6, "rtol": 0.0}

# Norms and float linears: the reference's strict pair (float32 sums of up to 8192 terms).
NORM: Close = {"atol": 1e-4, "rtol": 1e-3}
LINEAR: Close = {"atol": 1e-4, "rtol": 1e-3}

# One product of a code and a scale: the reference's bound for embeddings.
EMBEDDING: Close = {"atol": 1e-5, "rtol": 0.0}

# WGSL lets a float32 division err by 2.5 units in the last place; sums and products are exact to one.
ELEMENTWISE: Close = {"atol": 1e-6, "rtol": 1e-6}

# One sequence of tokens cut into calls in different ways: the sums run in another order.
CUTS: Close = {"atol": 1e-5, "rtol": 1e-5}
