"""What the objects of a GPU device say, as Python data: errors, and what an adapter offers.

Input:  JavaScript exceptions, shader modules, adapters, as Pyodide hands them over; duck-typed, so
nothing of the browser is imported.
Output: typed errors, `Caps`.
Way of the data: under `device`.

    caps = read_caps(adapter, ["subgroups"], {"maxBufferSize": 1 << 30})
"""

from __future__ import annotations

from typing import Any

from runtime_py.errors import (
    AbortedError,
    BadBundleError,
    IntegrityError,
    InternalError,
    ShaderError,
    TabfireError,
)
from runtime_py.ops.base import Caps

MATRICES = "chromium-experimental-subgroup-matrix"
BUNDLE_HINT = "the folder must be a whole bundle made by `python -m exporter`"


def typed(error: Any) -> TabfireError:
    """Return a JS exception as a typed error; web/*.js spell theirs `code|message`."""
    text = str(getattr(error, "message", error))
    code, bar, message = text.partition("|")
    if bar and code == "integrity":
        return IntegrityError(message, hint="download or export the bundle again")
    if bar and code == "bad_bundle":
        return BadBundleError(message, hint=BUNDLE_HINT)
    if bar and code == "aborted":
        return AbortedError(message)
    return InternalError(f"{getattr(error, 'name', 'JS error')}: {text}")


async def shader_error(label: str, wgsl: str, module: Any, error: Any) -> ShaderError:
    """Return the compiler's complaints about `wgsl`, with its numbered lines."""
    info = await module.getCompilationInfo()
    lines = [f"{m.lineNum}:{m.linePos} {m.type}: {m.message}" for m in info.messages]
    numbered = "\n".join(f"{i:4} {line}" for i, line in enumerate(wgsl.splitlines(), 1))
    said = "\n".join(lines) or str(getattr(error, "message", error))
    return ShaderError(f"kernel {label} does not compile:\n{said}\n{numbered}")


def read_caps(adapter: Any, features: list[str], limits: dict[str, int]) -> Caps:
    """Return what an adapter offers, of `features` and `limits` those that were asked for."""
    info = adapter.info
    return Caps(
        features=frozenset(features),
        limits=limits,
        subgroup_min=int(getattr(info, "subgroupMinSize", 0) or 0),
        subgroup_max=int(getattr(info, "subgroupMaxSize", 0) or 0),
        vendor=str(info.vendor),
        architecture=str(info.architecture),
        description=str(info.description),
        subgroup_matrix=MATRICES in features and _multiplies_halves(info),
    )


def _multiplies_halves(info: Any) -> bool:
    """Return whether the matrices include 16x16x16 of f16 with sums in f32."""
    return any(
        (c.componentType, c.resultComponentType, c.M, c.N, c.K) == ("f16", "f32", 16, 16, 16)
        for c in getattr(info, "subgroupMatrixConfigs", None) or ()
    )
