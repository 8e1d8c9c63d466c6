"""From a PyTorch module to a bundle (`export`), and from a bundle to outputs in a real browser
(`run`).

Input:  an `nn.Module`; or a bundle's folder and steps. Output: a bundle; or numpy arrays. Torch is
imported only by what needs it: `run` and `Sym` work without it.

    import exporter
    exporter.export(model, (x, 0), "bundle", symbols={"S": exporter.Sym(1, 16, at=("x", 1))})
    exporter.run("bundle", [{"inputs": {"x": array}, "symbols": {"S": 3}}])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Bound here before anything imports the submodule `exporter.run`, whose name would hide the
# function.
from exporter.run import run
from exporter.symbolic import Sym

if TYPE_CHECKING:
    from exporter.pipeline import export
    from exporter.quantize import QuantEmbedding, QuantLinear

__all__ = ["QuantEmbedding", "QuantLinear", "Sym", "export", "run"]

_HOMES = {"export": "pipeline", "QuantLinear": "quantize", "QuantEmbedding": "quantize"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'exporter' has no attribute {name!r}")
    return getattr(importlib.import_module(f"exporter.{_HOMES[name]}"), name)
