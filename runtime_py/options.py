"""The options of a session, each with its legal values; nothing lossy is on by default.

Input:  a mapping from the caller (JSON from the page or the command line). Output: a frozen
`SessionOptions`.
Way of the data: read once by `session`, then handed to `plan` and the ops' `lower` as plain data.

    SessionOptions.parse({"replay": "python"})
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime_py.errors import FeatureMissingError, OptionError
from runtime_py.ops.base import Caps

LEGAL: Mapping[str, tuple[object, ...]] = {
    "replay": ("js", "python"),
    "kv_dtype": ("auto", "f32", "f16"),
    "compute": ("f32", "f16"),
    "f16_accumulate_gemm": (False, True),
    "attention": ("auto", "materialized"),
    "linear": ("auto", "tiled", "nibble"),
    "tuning": ("auto", "cpu", "gpu"),
    "scratch_pool": (True, False),
    "power_preference": ("high-performance", "low-power"),
    "debug": (0, 1, 2, 3, 4, 5),
}
NEEDS_FEATURE: Mapping[tuple[str, object], str] = {
    ("kv_dtype", "f16"): "shader-f16",
    ("compute", "f16"): "shader-f16",
    ("f16_accumulate_gemm", True): "shader-f16",
}
# An option that means nothing without another one: where that falls back, this one does too.
REQUIRES: Mapping[str, str] = {"f16_accumulate_gemm": "compute"}


@dataclass(frozen=True)
class SessionOptions:
    """How a session runs a bundle.

    replay            "js": a step is replayed by `web/replay.js`;
                      "python": every call is made from Python (same bits)
    kv_dtype          "auto": as the bundle stores it;
                      "f16" halves the KV cache and needs shader-f16
    compute           "f16" rounds both factors of a linear layer's products to f16 and still sums
                      in f32, for any number of tokens; needs shader-f16
    f16_accumulate_gemm  True sums in f16 as well where more than 16 tokens are multiplied at once;
                      only with compute="f16", and the lossiest of the three
    attention         "materialized" forces the plain S x C route, for reference
    linear            "tiled" leaves subgroup matrices alone; "nibble" also dequantises each code
                      by itself, for reference (same bits)
    tuning            whose routes to take: "gpu", "cpu" (an adapter of few threads),
                      or "auto", as the adapter looks
    scratch_pool      False gives every temporary tensor a buffer of its own (same bits)
    prefer            options that may fall back, with a line in the report, where the device
                      lacks the feature
    debug             1 stages and sizes, 2 time per dispatch, 3 rendered WGSL, 4 graph and plan,
                      5 every intermediate as an output (see `debug`)
    """

    replay: str = "js"
    kv_dtype: str = "auto"
    compute: str = "f32"
    f16_accumulate_gemm: bool = False
    attention: str = "auto"
    linear: str = "auto"
    tuning: str = "auto"
    scratch_pool: bool = True
    power_preference: str = "high-performance"
    prefer: tuple[str, ...] = ()
    debug: int = 0

    @staticmethod
    def parse(given: Mapping[str, Any] | SessionOptions | None) -> SessionOptions:
        """Return the options in `given`; raises `OptionError` on an unknown name or value."""
        if isinstance(given, SessionOptions):
            return given
        given = dict(given or {})
        known = [f.name for f in dataclasses.fields(SessionOptions)]
        for name, value in given.items():
            if name not in known:
                raise OptionError(
                    f"unknown option {name!r}", hint=f"the options are {', '.join(known)}"
                )
            if name in LEGAL and not any(
                value == v and type(value) is type(v) for v in LEGAL[name]
            ):
                raise OptionError(
                    f"option {name} is {value!r}, expected one of {list(LEGAL[name])}"
                )
        prefer = given.pop("prefer", ())
        if isinstance(prefer, str) or not set(prefer) <= set(known):
            raise OptionError(f"option prefer is {prefer!r}, expected a list of option names")
        if given.get("f16_accumulate_gemm") and given.get("compute") != "f16":
            raise OptionError(
                'option f16_accumulate_gemm=True needs compute="f16": f32 products have f32 sums'
            )
        return SessionOptions(prefer=tuple(prefer), **given)

    def resolve(self, caps: Caps) -> tuple[SessionOptions, list[str]]:
        """Return the options this device can serve and the fallbacks taken; fails closed
        otherwise."""
        changes: dict[str, Any] = {}
        notes = []
        for (name, value), feature in NEEDS_FEATURE.items():
            if getattr(self, name) != value or feature in caps.features:
                continue
            if name not in self.prefer and REQUIRES.get(name) not in changes:
                raise FeatureMissingError(
                    f"option {name}={value!r} needs the device feature {feature!r}, "
                    "which this adapter lacks",
                    hint=f"drop the option, or add prefer=[{name!r}] to fall back",
                )
            changes[name] = SessionOptions.__dataclass_fields__[name].default
            notes.append(f"{name}={value!r} fell back to {changes[name]!r}: no {feature}")
        return dataclasses.replace(self, **changes), notes
