"""The reference's own tables as rows of data: shapes, sequences, inputs.

Input:  nothing. Output: frozen rows, and the deterministic inputs they are defined on.
Way of the data: read by the operator, attention and export tests; tolerances are in tests/tolerances.py.

    SDPA["llama1b_decode"].hq        # 32
    ramp((2, 3), 17, 8, 16)          # float32 [2, 3]: ((i % 17) - 8) / 16
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]


def ramp(shape: tuple[int, ...], mod: int, off: int, den: float, step: int = 0) -> FloatArray:
    """Return `((i % mod) - off) / den` over the flat index i; step t of a replay counts from i + 31 * t."""
    index = np.arange(int(np.prod(shape)), dtype=np.int64) + 31 * step
    return (((index % mod) - off) / den).astype(np.float32).reshape(shape)


@dataclass(frozen=True)
class Sdpa:
    """One static attention case: S tokens at input_pos over a cache of Cmax slots."""

    name: str
    hq: int
    hkv: int
    d: int
    s: int
    cmax: int
    pos: int
    den: float = 16.0
    kv: str = "f32"
    note: str = ""

    def inputs(self) -> dict[str, FloatArray]:
        """Return q, k, v and the caches as they are before the step (zero from input_pos on)."""
        k_cache = np.zeros((1, self.cmax, self.hkv, self.d), np.float32)
        v_cache = np.zeros_like(k_cache)
        if self.pos:
            filled = (1, self.pos, self.hkv, self.d)
            k_cache[:, : self.pos] = ramp(filled, 7, 3, 16)
            v_cache[:, : self.pos] = ramp(filled, 5, 2, 16)
        return {
            "q": ramp((1, self.s, self.hq, self.d), 17, 8, self.den),
            "k": ramp((1, self.s, self.hkv, self.d), 13, 6, self.den),
            "v": ramp((1, self.s, self.hkv, self.d), 11, 5, self.den),
            "k_cache": k_cache,
            "v_cache": v_cache,
        }


SDPA_ROWS: tuple[Sdpa, ...] = (
    Sdpa("gqa31_prefill", 6, 2, 8, 4, 16, 0),
    Sdpa("mha_ctxodd", 4, 4, 16, 3, 8, 0, note="odd context"),
    Sdpa("gqa21_prefill", 8, 4, 4, 5, 16, 0),
    Sdpa("gqa31_decode", 6, 2, 8, 2, 16, 2),
    Sdpa("llama3_prefill", 24, 8, 128, 128, 256, 0),
    Sdpa(
        "mha_biglogit", 4, 4, 32, 4, 16, 0, 0.5, note="peak logit about 177: a naive exp overflows"
    ),
    Sdpa("llama1b_prefill", 32, 8, 64, 128, 512, 0),
    Sdpa("llama1b_decode", 32, 8, 64, 1, 512, 127),
    Sdpa("llama1b_decode_4k", 32, 8, 64, 1, 4096, 4095),
    Sdpa("llama1b_decode_8k", 32, 8, 64, 1, 8192, 8191),
    Sdpa("llama1b_prefill_512", 32, 8, 64, 512, 512, 0, note="the QK grid folds to two dimensions"),
    Sdpa("llama1b_prefill_2048", 32, 8, 64, 2048, 2048, 0, note="QK, softmax and AV fold"),
    Sdpa("qwen3_prefill", 16, 8, 128, 128, 256, 0, 10, "f16", "golden rounds K and V to f16"),
    Sdpa("qwen3_odd_boundary", 16, 8, 128, 17, 64, 31, 10, "f16", "cache initialised"),
    Sdpa("reject_d6", 4, 4, 6, 4, 16, 0, note="refused by the reference (D % 4); right here"),
)
SDPA = {case.name: case for case in SDPA_ROWS}


@dataclass(frozen=True)
class Replay:
    """A conversation: one step an entry, the cache carried on, input_pos the running sum."""

    name: str
    hq: int
    hkv: int
    d: int
    cmax: int
    steps: tuple[int, ...]
    kv: str = "f32"

    @property
    def positions(self) -> tuple[int, ...]:
        """input_pos of every step."""
        return tuple(sum(self.steps[:index]) for index in range(len(self.steps)))

    def inputs(self, step: int, tokens: int | None = None) -> dict[str, FloatArray]:
        """Return q, k, v of step `step`; `tokens` overrides the table's count (one-token graphs)."""
        s = self.steps[step] if tokens is None else tokens
        return {
            "q": ramp((1, s, self.hq, self.d), 17, 8, 16, step),
            "k": ramp((1, s, self.hkv, self.d), 13, 6, 16, step),
            "v": ramp((1, s, self.hkv, self.d), 11, 5, 16, step),
        }


REPLAY_ROWS: tuple[Replay, ...] = (
    Replay("small", 8, 4, 4, 16, (3, 1, 1, 5, 1, 1, 2)),
    Replay("small_d", 6, 2, 8, 16, (3, 1, 1, 5, 1, 1)),
    Replay("llama3", 24, 8, 128, 256, (111, 1, 1, 1, 57, 1, 1)),
    Replay("qwen3_fd", 16, 8, 128, 64, (17, 1), "f16"),
)
REPLAY = {case.name: case for case in REPLAY_ROWS}
# Also run with S = 1 at positions 0..5, and with in-graph caches.
DYNAMIC_REPLAYS = ("small", "small_d", "llama3")
DYNAMIC_POSITIONS = tuple(range(6))


@dataclass(frozen=True)
class SymInt:
    """Symbolic-integer round trip: a placeholder, a value set, a host int64, one beyond int32."""

    placeholder: int = 0
    set_to: int = 7
    from_int64: int = 5
    refused: int = 2**31


SYMINT = SymInt()
RESIZE_STEPS = ((0, 3, 1), (3, 3, 0), (3, 8, 1))  # from, to, how often the resize hook runs


@dataclass(frozen=True)
class Update:
    """update_cache: `s` tokens of [H, D] at `pos` into C slots; bit-exact."""

    s: int
    h: int
    d: int
    c: int
    pos: int


UPDATES: tuple[Update, ...] = (
    Update(2, 2, 4, 8, 0),
    Update(2, 2, 4, 8, 5),
    Update(3, 4, 8, 16, 0),
    Update(3, 4, 8, 16, 10),
)
# H, D, tokens a step; C is the sum.
UPDATE_REPLAYS: tuple[tuple[int, int, tuple[int, ...]], ...] = (
    (4, 4, (3, 1, 1, 5, 1, 1, 2)),
    (2, 8, (3, 1, 1, 5, 1, 1)),
    (8, 128, (111, 1, 1, 1, 57, 1, 1)),
)


@dataclass(frozen=True)
class Rope:
    """RoPE of q and k heads at `pos`, with `interleaved` pairs or rotate-half."""

    s: int
    hq: int
    hkv: int
    d: int
    pos: int
    interleaved: bool
    max_tokens: int = 0


ROPES: tuple[Rope, ...] = (
    *(Rope(5, 8, 2, 64, 0, interleaved) for interleaved in (True, False)),
    *(Rope(1, 32, 8, 64, 0, interleaved) for interleaved in (True, False)),
    *(Rope(1, 16, 8, 128, pos, False, 16) for pos in (0, 7, 15)),
)
ROPE_REUSE = ((16, 0), (5, 7), (1, 15), (16, 0))  # (S, pos) on one graph
ROPE_SCALED_POSITIONS = (1000, 8192)  # Llama-3 frequency scaling against the formula


@dataclass(frozen=True)
class RmsNorm:
    """RMS norm of `shape`; `values` says what x and the weight are made of."""

    shape: tuple[int, ...]
    values: str = "plain"


RMS_NORMS: tuple[RmsNorm, ...] = (
    RmsNorm((1, 1, 7, 896)),
    *(RmsNorm((3, width)) for width in (64, 32, 1, 100, 130)),
    RmsNorm((1, 5, 4, 128)),
    RmsNorm((1, 1, 1024, 64)),
    RmsNorm((5, 256)),
    RmsNorm((1, 1, 7, 896), "mixed signs"),
    *(RmsNorm((2, width)) for width in (2048, 4096, 8192)),
    RmsNorm((5, 256), "zero weights"),
    RmsNorm((5, 256), "negative weights"),
    RmsNorm((1, 1, 7, 896), "about 800"),
    # past the reference: widths that are no powers of two, and more rows than one
    *(RmsNorm((7, width)) for width in (769, 5120, 7168, 3)),
)


@dataclass(frozen=True)
class EmbeddingQ4:
    """embedding_q4gsw: rows of a 4-bit table of V x E in groups of `group`."""

    v: int
    e: int
    group: int
    indices: tuple[int, ...]


EMBEDDINGS_Q4: tuple[EmbeddingQ4, ...] = (
    EmbeddingQ4(64, 64, 32, (1, 5, 63, 0)),
    EmbeddingQ4(512, 2048, 64, (1, 5, 511, 0)),
)

BROADCAST_OPS = ("mul", "add", "sub", "div")
BROADCASTS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((8, 32), (8, 32)),
    ((1, 1, 7, 896), (1, 1, 7, 1)),
    ((4, 4), (1, 4)),
    ((3, 5, 7, 11), (1, 5, 1, 11)),
    ((4,), (3, 4)),
)

# Dynamic shapes on one graph: the lengths S takes in turn.
DYNAMIC_DOWN = (128, 64, 8, 1)
DYNAMIC_BACK = (128, 1, 64, 8, 128)
DYNAMIC_LINEAR_F32 = ((32, 64), (32, 63))  # N, K
DYNAMIC_LINEAR_Q4 = ((64, 128, 32), (72, 2048, 24))  # K, N, group
DYNAMIC_SDPA = (8, 2, 16, 64, (64, 1, 16, 1, 64))  # Hq, Hkv, D, Cmax, S in turn


@dataclass(frozen=True)
class Past:
    """An attention case past the reference's tables; `kind` names what is special."""

    name: str
    hq: int
    hkv: int
    d: int
    s: int
    cmax: int
    pos: int
    batch: int = 1
    kind: str = "plain"
    window: int = 0
    softcap: float = 0.0
    scale: float | None = None
    causal: bool = True
    gain: float = 1.0


HEAD_DIMS = (4, 6, 8, 16, 40, 64, 72, 80, 88, 96, 112, 128, 256, 320)
GROUPS = ((4, 4), (9, 3), (8, 2), (7, 1), (8, 1), (16, 2), (14, 2), (11, 1))
# Those that no other row has; a kernel a width is what takes the time of a test.
ODD_HEAD_DIMS = tuple(d for d in HEAD_DIMS if d not in (4, 8, 16, 64))
PAST_ROWS: tuple[Past, ...] = (
    *(Past(f"d{d}_s{s}", 6, 2, d, s, 70, 70 - s) for d in ODD_HEAD_DIMS for s in (1, 5, 17)),
    *(
        Past(f"d{d}_last_column_s{s}", 6, 2, d, s, 70, 70 - s, kind="last column")
        for d in ODD_HEAD_DIMS
        for s in (1, 17)
    ),
    *(
        Past(f"group{hq}_{hkv}_s{s}", hq, hkv, 16, s, 96, 90 - s)
        for hq, hkv in ((4, 4), (8, 2), (14, 2), (16, 2), (11, 1))  # (9, 3): the rows `few`
        for s in (1, 20)
    ),
    *(Past(f"few{s}", 9, 3, 64, s, 80, 60) for s in range(2, 17)),
    *(Past(f"batch{b}_s{s}", 4, 2, 8, s, 64, 11, batch=b) for b in (2, 4) for s in (1, 3, 40)),
    *(
        row
        for s in (1, 3, 40)
        for row in (
            Past(f"scale_s{s}", 4, 2, 8, s, 64, 11, scale=0.3),
            Past(f"non_causal_s{s}", 4, 2, 8, s, 64, 11, causal=False),
            Past(f"window5_s{s}", 4, 2, 8, s, 64, 11, window=5),
            Past(f"window33_s{s}", 4, 2, 8, s, 164, 111, window=33),
            Past(f"window1_s{s}", 4, 2, 8, s, 64, 11, window=1),
            Past(f"softcap_s{s}", 4, 2, 8, s, 64, 11, softcap=5.0),
            Past(f"softcap_big_s{s}", 4, 2, 8, s, 64, 11, softcap=50.0, gain=1000.0),
            Past(f"peak1e4_s{s}", 4, 2, 8, s, 64, 11, gain=40000.0),
            Past(f"equal1e4_s{s}", 4, 2, 8, s, 64, 11, gain=20000.0, kind="equal keys"),
            Past(f"additive_mask_s{s}", 4, 2, 8, s, 64, 11, kind="additive mask"),
            Past(f"bool_mask_s{s}", 4, 2, 8, s, 64, 11, kind="bool mask"),
            Past(f"exact_cmax_s{s}", 4, 2, 8, s, 64, 64 - s),
            Past(f"nan_slots_s{s}", 4, 2, 8, s, 64, 11, kind="nan slots"),
            Past(f"nan_inside_s{s}", 4, 2, 8, s, 64, 11, kind="nan inside"),
        )
    ),
)
# W, read position, mean of V[j] = j over the window (q = 0); W + 1 keys give 3.0.
WINDOW_OFF_BY_ONE = (4, 5, 3.5)
WINDOW_VISIBLE = (1, 2, 3, 4, 4, 4)  # keys that tokens 0..5 see with W = 4
SLIDING_PROMPT = (8, 32, 20)  # window, Cmax, prompt: a prompt longer than the window runs
# S in turn in one session: each step equals a fresh run of the same history.
SHAPE_CHANGES = ((5, 1, 1, 9, 1), (1, 9, 1, 5, 1))
PARTIAL_ROTARY = {  # head width 8, factor 0.5, theta 1e4, position 3, x = 1..8
    False: (-1.41335, 1.87912, -2.82886, 4.05819, 5.0, 6.0, 7.0, 8.0),
    True: (-1.27223, -1.83886, 2.87867, 4.08819, 5.0, 6.0, 7.0, 8.0),
}
YARN = (4.0, 1.138629)  # factor, magnitude of cos at position 0 (0.1 ln 4 + 1)
TOO_MANY_ELEMENTS = (46341, 46341)  # one more than 2^31 allows
