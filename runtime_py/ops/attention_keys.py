"""Attention kernels at representative axes: the keys whose WGSL is kept as golden texts.

Input:  nothing. Output: `KEYS`, every value of every axis at least once.
Way of the data: beside `ops.attention_routes`, which makes such keys from nodes; read by tests.

    KernelLibrary().render(KEYS[0])
"""

from __future__ import annotations

from dataclasses import asdict

from runtime_py.ops.attention_tiled import Tiling
from runtime_py.ops.base import Axis, KernelKey, key

_PLAIN: dict[str, Axis] = {
    "cache": "f32",
    "mask": "none",
    "causal": True,
    "window": False,
    "softcap": False,
}
_RULES: dict[str, Axis] = {
    "cache": "f16",
    "mask": "f32",
    "causal": True,
    "window": True,
    "softcap": True,
}
_FREE: dict[str, Axis] = {**_PLAIN, "mask": "u32", "causal": False}
_CPU: dict[str, Axis] = {"vec": 4, "heads": 3, "threads": 4, "tile": 64, "rows": 4, "across": 4}
_GPU: dict[str, Axis] = {"vec": 4, "heads": 4, "threads": 64, "tile": 64, "rows": 2, "across": 16}
_ODD: dict[str, Axis] = {"vec": 1, "heads": 1, "threads": 64, "tile": 64, "rows": 2, "across": 6}
_STILL: dict[str, Axis] = {"rotary": "none", "rotary_dim": 0}
_DECODE: dict[str, Axis] = {"heads": 3, "threads": 128, "tile": 64, **_STILL}
_LEAN: dict[str, Axis] = {"heads": 1, "threads": 64, "tile": 32, **_STILL}
_HALF: dict[str, Axis] = {"rotary": "half", "rotary_dim": 64}
_PAIRS: dict[str, Axis] = {"rotary": "interleaved", "rotary_dim": 16}
KEYS: tuple[KernelKey, ...] = (
    key("update_cache", value_dtype="f32", cache="f32"),
    key("update_cache", value_dtype="f16", cache="f16"),
    key("attention_split", head_dim=64, partial=True, **_CPU, **_PLAIN),
    key("attention_split", head_dim=64, partial=True, **_GPU, **_RULES),
    key("attention_split", head_dim=6, partial=False, **_ODD, **_FREE),
    key("attention_decode", head_dim=64, partial=True, **_DECODE, **_PLAIN),
    key("attention_decode", head_dim=40, partial=False, **_LEAN, **_RULES),
    key("attention_decode", head_dim=128, partial=True, **{**_DECODE, "heads": 4}, **_FREE),
    key("attention_decode", head_dim=64, partial=True, **{**_DECODE, **_HALF}, **_PLAIN),
    key("attention_decode", head_dim=40, partial=False, **{**_LEAN, **_PAIRS}, **_RULES),
    key("attention_combine", vec=4, units=16, lanes=1),
    key("attention_combine", vec=4, units=16, lanes=16),
    key("attention_combine", vec=1, units=6, lanes=16),
    key("attention_stream", head_dim=64, rows=8, columns=8, **_PLAIN),
    key("attention_stream", head_dim=40, rows=4, columns=4, **_RULES),
    key("attention_stream", head_dim=6, rows=1, columns=4, **_FREE),
    key("attention_stream", head_dim=64, rows=2, columns=4, **_PLAIN),
    key("attention_tiled", head_dim=64, **asdict(Tiling(32, 64, 128, 16, 2, 1)), **_PLAIN),
    key("attention_tiled", head_dim=40, **asdict(Tiling(16, 32, 64, 16, 2, 2)), **_RULES),
    key("attention_tiled", head_dim=80, **asdict(Tiling(64, 32, 128, 16, 2, 1)), **_FREE),
    key("attention_scores", **_PLAIN),
    key("attention_scores", **_RULES),
    key("attention_scores", **_FREE),
    key("attention_softmax"),
    key("attention_values", cache="f32", causal=True, window=False),
    key("attention_values", cache="f16", causal=False, window=True),
)
