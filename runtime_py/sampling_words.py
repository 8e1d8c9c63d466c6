"""Sampling options as the words that the `sample` kernels read, written once a request.

Input:  the options of a request, its seed, how many ids may be drawn; the ids of a prompt.
Output: bytes for the buffers `settings` (16 words) and `seen` (one bit an id).
Way of the data: `model` writes them before the first step; wgsl/macros/sampling.wgsl reads them.

    word   0 flags: 1 penalty, 2 draw, 4 top-k, 8 top-p    5 repetition penalty, f32
           1 ids that may be drawn, 0 for all              6 1 / temperature, f32
           2 top_k                                         7 seed, low half
           3 top_p, f32                                    8 seed, high half
           4 min_p, f32
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from runtime_py.sampling import SamplingOptions

PENALTY, DRAW, TOP_K, TOP_P = 1, 2, 4, 8
LEAST_TEMPERATURE = 1e-6  # as `sampling` has it
LAYOUT = "<3I4f2I28x"


def settings(options: SamplingOptions, known_tokens: int, seed: int) -> bytes:
    """Return the 64 bytes of `settings`."""
    flags = PENALTY * (options.repetition_penalty != 1.0) | DRAW * (options.temperature > 0.0)
    flags |= TOP_K * (0 < options.top_k < known_tokens) | TOP_P * (options.top_p < 1.0)
    return struct.pack(
        LAYOUT,
        flags,
        known_tokens,
        options.top_k,
        options.top_p,
        options.min_p,
        options.repetition_penalty,
        1.0 / max(options.temperature, LEAST_TEMPERATURE),
        seed & 0xFFFFFFFF,
        seed >> 32,
    )


def read_settings(words: bytes) -> tuple[SamplingOptions, int, int]:
    """Return options, known ids and seed of `settings`: its inverse, up to rounding to f32."""
    flags, known, top_k, top_p, min_p, penalty, inverse, *seed = struct.unpack(LAYOUT, words)
    options = SamplingOptions(
        temperature=1.0 / inverse if flags & DRAW else 0.0,
        top_k=top_k if flags & TOP_K else 0,
        top_p=top_p if flags & TOP_P else 1.0,
        min_p=min_p,
        repetition_penalty=penalty if flags & PENALTY else 1.0,
    )
    return options, known, seed[1] << 32 | seed[0]


def seen(ids: Iterable[int], vocabulary: int) -> bytes:
    """Return one bit for each id of the vocabulary, set where it is in `ids`; whole words."""
    bits = bytearray((vocabulary + 31) // 32 * 4)
    for token in set(ids):
        bits[token >> 3] |= 1 << (token & 7)
    return bytes(bits)
