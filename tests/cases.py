"""The reference's own tables: names, shapes, sequences, inputs. Rows of data, nothing else.

Input:  nothing. Output: rows; `tolerances` holds what counts as equal, `oracles` the right values.
Way of the data: read by the tests that run on a GPU.

The first three groups are those of ExecuTorch's WebGPU tests (the SDPA suite, #20087, and the f16
KV cache, #20820) and of the operator tests around them: a result here can be laid beside one there.
Letters: B batch, S query tokens, C context, Hq query heads, Hkv KV heads, D head width.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sdpa:
    """One step of attention over a cache; `f16_kv` rounds K and V in the golden where f16 is on."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int
    tokens: int
    context: int
    input_pos: int = 0
    den: float = 16
    f16_kv: bool = False

    def __str__(self) -> str:
        return self.name


SDPA = (
    Sdpa("gqa31_prefill", 6, 2, 8, 4, 16),
    Sdpa("mha_ctxodd", 4, 4, 16, 3, 8),
    Sdpa("gqa21_prefill", 8, 4, 4, 5, 16),
    Sdpa("gqa31_decode", 6, 2, 8, 2, 16, 2),
    Sdpa("llama3_prefill", 24, 8, 128, 128, 256),
    Sdpa("mha_biglogit", 4, 4, 32, 4, 16, den=0.5),
    Sdpa("llama1b_prefill", 32, 8, 64, 128, 512),
    Sdpa("llama1b_decode", 32, 8, 64, 1, 512, 127),
    Sdpa("llama1b_decode_4k", 32, 8, 64, 1, 4096, 4095),
    Sdpa("llama1b_decode_8k", 32, 8, 64, 1, 8192, 8191),
    Sdpa("llama1b_prefill_512", 32, 8, 64, 512, 512),
    Sdpa("llama1b_prefill_2048", 32, 8, 64, 2048, 2048),
    Sdpa("qwen3_prefill", 16, 8, 128, 128, 256, den=10, f16_kv=True),
    Sdpa("qwen3_odd_boundary", 16, 8, 128, 17, 64, 31, den=10, f16_kv=True),
)

# A head width that is no multiple of four: right, or refused with a typed error.
SDPA_REJECT = Sdpa("reject_d6", 4, 4, 6, 4, 16)


@dataclass(frozen=True)
class Replay:
    """Steps over one cache; `input_pos` is the running sum of `steps`."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    steps: tuple[int, ...]
    f16_kv: bool = False

    def __str__(self) -> str:
        return self.name


REPLAY = (
    Replay("small", 8, 4, 4, 16, (3, 1, 1, 5, 1, 1, 2)),
    Replay("small_d", 6, 2, 8, 16, (3, 1, 1, 5, 1, 1)),
    Replay("llama3", 24, 8, 128, 256, (111, 1, 1, 1, 57, 1, 1)),
    Replay("qwen3_fd", 16, 8, 128, 64, (17, 1), f16_kv=True),
)

# Six steps of one token, positions 0..5, for a graph whose S is 1.
DECODE = tuple(
    Replay(row.name, row.heads, row.kv_heads, row.head_dim, row.context, (1,) * 6)
    for row in REPLAY[:3]
)

# (S, Hkv, D, C, input_pos)
UPDATE_CACHE = ((2, 2, 4, 8, 0), (2, 2, 4, 8, 5), (3, 4, 8, 16, 0), (3, 4, 8, 16, 10))
# (H, D, tokens of every step); the context is their sum.
UPDATE_REPLAY = (
    (4, 4, (3, 1, 1, 5, 1, 1, 2)),
    (2, 8, (3, 1, 1, 5, 1, 1)),
    (8, 128, (111, 1, 1, 1, 57, 1, 1)),
)


@dataclass(frozen=True)
class Rope:
    """Rotary positions of queries and keys; one graph serves every (S, input_pos) of `steps`."""

    name: str
    interleaved: bool
    heads: int
    kv_heads: int
    head_dim: int
    steps: tuple[tuple[int, int], ...]
    max_tokens: int

    def __str__(self) -> str:
        return self.name


ROPE = (
    Rope("interleaved_prefill", True, 8, 2, 64, ((5, 0),), 5),
    Rope("interleaved_decode", True, 32, 8, 64, ((1, 0),), 2),
    Rope("half_prefill", False, 8, 2, 64, ((5, 0),), 5),
    Rope("half_decode", False, 32, 8, 64, ((1, 0),), 2),
    Rope("half_positions", False, 16, 8, 128, ((16, 0), (16, 7), (16, 15), (1, 15)), 16),
    Rope("half_reused", False, 16, 8, 128, ((16, 0), (5, 7), (1, 15), (16, 0)), 16),
    Rope("interleaved_reused", True, 16, 8, 128, ((16, 0), (5, 7), (1, 15), (16, 0)), 16),
)
# Llama 3.2's frequency scaling: base, factor, low and high frequency factor, original context.
LLAMA3_ROPE = (500000.0, 32.0, 1.0, 4.0, 8192)
LLAMA3_POSITIONS = (1000, 8192)

# Shapes of x; the width is the last extent. 1024 rows fold a grid, 1 is the least width.
RMS_NORM = (
    (1, 1, 7, 896),
    (3, 64),
    (3, 32),
    (3, 1),
    (3, 100),
    (3, 130),
    (1, 5, 4, 128),
    (1, 1, 1024, 64),
    (5, 256),
    (2, 2048),
    (2, 4096),
    (2, 8192),
)
# Widths at which a row once spoilt its neighbour, 7 rows each.
RMS_NORM_ROWS = (1, 3, 769, 5120, 7168)

# (V, E, group, ids)
EMBEDDING = ((64, 64, 32, (1, 5, 63, 0)), (512, 2048, 64, (1, 5, 511, 0)))

BROADCAST = (
    ((8, 32), (8, 32)),
    ((1, 1, 7, 896), (1, 1, 7, 1)),
    ((4, 4), (1, 4)),
    ((3, 5, 7, 11), (1, 5, 1, 11)),
    ((4,), (3, 4)),
)

# Tokens of every call, one graph: down, and from 128 down and back up.
DOWN_UP = (128, 64, 8, 1, 8, 64, 128)
JUMPS = (128, 1, 64, 8, 128)
# (K, N) of float linears, (K, N, group) of 4-bit ones
DYNAMIC_LINEAR = ((64, 32), (63, 32))
DYNAMIC_Q4 = ((64, 128, 32), (72, 2048, 24))
# Hq, Hkv, D, C
DYNAMIC_SDPA = (8, 2, 16, 64)
SDPA_JUMPS = (64, 1, 16, 1, 64)
