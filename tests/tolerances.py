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
