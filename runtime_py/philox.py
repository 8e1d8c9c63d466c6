"""Random numbers that are a function of (seed, position), with no state to keep.

Input:  a 64-bit seed and a 32-bit counter. Output: four 32-bit words, or one number in (0, 1).
Way of the data: under `sampling`; imports nothing. A kernel can compute the same words, since only
32-bit operations (and the high half of a 32 x 32 product) are needed.

Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011,
section 3.3. A round with key (k0, k1) maps (c0, c1, c2, c3) to
    (hi(M1 * c2) ^ c1 ^ k0,  lo(M1 * c2),  hi(M0 * c0) ^ c3 ^ k1,  lo(M0 * c0))
and between rounds each key word grows by its Weyl constant, modulo 2**32.

    uniform(seed=7, position=12)      # 0.3122097849845886, on every host
"""

from __future__ import annotations

from typing import TypeAlias

Words: TypeAlias = "tuple[int, int, int, int]"

MASK = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
SEED_LIMIT = 1 << 64


def philox4x32(counter: Words, key: tuple[int, int]) -> Words:
    """Return the four words at `counter` under `key` after ten rounds."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK, (p0 >> 32) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return c0, c1, c2, c3


def words(seed: int, position: int, stream: int = 0) -> Words:
    """Return the words for `position` (a token's place) in `stream` (0: sampling, 1: seeds)."""
    return philox4x32((position & MASK, stream, 0, 0), (seed & MASK, (seed >> 32) & MASK))


def uniform(seed: int, position: int) -> float:
    """Return a number in (0, 1), a multiple of 2**-24 and thus exact in float32."""
    return ((words(seed, position)[0] >> 9) + 0.5) * 2.0**-23


def derive(seed: int, number: int) -> int:
    """Return the 64-bit seed of request `number` under an engine's `seed`."""
    low, high, _, _ = words(seed, number, stream=1)
    return high << 32 | low
