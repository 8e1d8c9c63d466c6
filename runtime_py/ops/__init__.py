"""The operator registry: every operator that the exporter may emit and the runtime can run.

Input:  the rows of the family modules beside this file. Output: `registry`, name -> `OpDef`.
Way of the data: read by `exporter.emit` (checks) and by `runtime_py.graph` and `plan` (shapes,
lowering).
"""

from __future__ import annotations

import importlib

from runtime_py.ops.base import OpDef

FAMILIES = (
    *("elementwise", "shape", "reduce", "norm", "linear", "embedding", "rope", "attention"),
    "sampling",
)


def _collect() -> dict[str, OpDef]:
    rows: dict[str, OpDef] = {}
    for family in FAMILIES:
        for row in importlib.import_module(f"runtime_py.ops.{family}").OPS:
            if row.name in rows:
                raise RuntimeError(f"operator {row.name} is registered twice")
            rows[row.name] = row
    return rows


registry: dict[str, OpDef] = _collect()
