"""`exporter.export`: from an `nn.Module` to a bundle on disk, through every stage.

Input:  a module made of supported operators, example inputs, the declared symbols.
Output: a folder that the runtime loads; golden steps beside it if asked for.
Way of the data: capture -> probe -> emit -> fuse -> check -> bundle.

    export(model, {"x": torch.zeros(1, 3, 8), "pos": 0}, "bundle",
           symbols={"S": Sym(1, 16, at=("x", 1)), "pos": Sym(0, 15, at="pos")},
           constraints=[(["+", "S", "pos"], 16)])
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from exporter.bundle import write_bundle
from exporter.capture import Captured, capture
from exporter.eager import run_steps
from exporter.emit import emit
from exporter.fuse import fuse
from exporter.probe import settle
from exporter.rewrite import Emitted
from exporter.symbolic import Sym
from runtime_py import __version__
from runtime_py.errors import OptionError
from runtime_py.graph import check_graph
from runtime_py.ops import registry
from runtime_py.schema import DTYPE_BYTES, Constant, Graph, Manifest, Part
from runtime_py.symbols import evaluate, product

DESCRIPTIONS = ("text_files", "text", "model_card", "generation", "features")


def export(
    module: nn.Module,
    example_inputs: Sequence[Any] | Mapping[str, Any],
    out_dir: str | os.PathLike[str],
    *,
    symbols: Mapping[str, Sym],
    golden_steps: Sequence[Mapping[str, Any]] | None = None,
    constraints: Sequence[tuple[object, int]] = (),
    specializations: Sequence[Mapping[str, tuple[int, int]]] | None = None,
    output_names: Sequence[str] | None = None,
    probe: bool = True,
    exporter_info: Mapping[str, str] | None = None,
    **options: Any,
) -> Manifest:
    """Write `module` to the bundle `out_dir` and return its manifest; the module stays as it was.

    `symbols` maps a name to `Sym(min, max, at=...)`; `constraints` are pairs (expression as JSON,
    greatest value); `golden_steps` are `{"inputs", "symbols"}` to be answered eagerly and stored;
    `specializations` are the symbol ranges planned at load (default: S = 1 apart from the rest);
    `probe=False` skips running the smallest sizes. The other options (`text_files`, `text`,
    `model_card`, `generation`, `features`) go into the manifest. Raises `ExportError`,
    `UnsupportedOpError` or `OptionError`.
    """
    unknown = sorted(set(options) - set(DESCRIPTIONS))
    if unknown:
        raise OptionError(
            f"unknown options {unknown}", hint=f"export takes {', '.join(DESCRIPTIONS)}, ..."
        )
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        captured = capture(module, example_inputs, symbols, constraints)
        settle(captured, module, run=probe)
        emitted = fuse(emit(captured, output_names=output_names))
        names = [port.name for port in emitted.graph.outputs]
        golden = run_steps(module, captured, golden_steps or (), names)
    finally:
        for part, mode in modes.items():
            part.training = mode
    graph = replace(emitted.graph, specializations=_specializations(captured, specializations))
    check(Emitted(graph, emitted.constants))
    made_by = {"version": __version__, "torch": torch.__version__, **(exporter_info or {})}
    return write_bundle(
        out_dir, graph, emitted.constants, golden=golden, exporter=made_by, **options
    )


def _specializations(
    captured: Captured, given: Sequence[Mapping[str, tuple[int, int]]] | None
) -> tuple[Mapping[str, tuple[int, int]], ...]:
    """Return `given`, or: every extent that can be 1 exactly there, and one for the rest."""
    ranges = captured.domain.ranges
    if given is not None:
        for special in given:
            for name, (low, high) in special.items():
                if name not in ranges or not ranges[name][0] <= low <= high <= ranges[name][1]:
                    raise OptionError(
                        f"specialization {name} = {low}..{high} is no part of {ranges}"
                    )
        return tuple(dict(special) for special in given)
    split = [
        name
        for name, sym in captured.symbols.items()
        if sym.min == 1 < sym.max and any(isinstance(place, tuple) for place in sym.places)
    ]
    if not split:
        return ()
    return {name: (1, 1) for name in split}, {name: (2, ranges[name][1]) for name in split}


def check(emitted: Emitted) -> None:
    """Raise what the runtime would raise on this graph, before anything is written.

    The constants have no place in a file yet; one imaginary file each stands in for it.
    """
    graph = emitted.graph
    sizes = {name: _size_bytes(graph, name) for name in graph.constants}
    placed = {name: Constant(name, (Part(name, 0, size),)) for name, size in sizes.items()}
    check_graph(replace(graph, constants=placed), registry, sizes)


def _size_bytes(graph: Graph, name: str) -> int:
    value = graph.values[name]
    return DTYPE_BYTES[value.dtype] * evaluate(product(value.shape), {})
