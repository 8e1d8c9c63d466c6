"""Golden steps: what eager PyTorch answered, stored beside the bundle so that any host can be
checked against it.

Input:  steps (named inputs, symbol values) and the outputs that the eager module gave for them.
Output: `golden/steps.json` (symbols and tolerances) and `golden/steps.safetensors` (the tensors);
and back again.
Way of the data: written by `bundle`, replayed by `verify`.

    step = GoldenStep(inputs={"tokens": ids}, symbols={"S": 5, "input_pos": 0, "L": 1},
    outputs={"logits": want})
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from runtime_py.errors import ExportError

FOLDER = "golden"


@dataclass(frozen=True)
class GoldenStep:
    """One step of a replay; steps follow each other in one session, `reset` first puts the buffers
    back.

    An element passes if |got - want| <= atol or |got - want| / max(|want|, 1e-6) <= rtol.
    """

    inputs: dict[str, torch.Tensor]
    symbols: dict[str, int]
    outputs: dict[str, torch.Tensor]
    reset: bool = False
    atol: float = 1e-3
    rtol: float = 1e-3
    name: str = field(default="")


def write_golden(bundle_dir: Path, steps: Sequence[GoldenStep]) -> None:
    """Write `golden/` under `bundle_dir`; nothing when there are no steps."""
    if not steps:
        return
    (bundle_dir / FOLDER).mkdir()
    tensors: dict[str, torch.Tensor] = {}
    rows = []
    for index, step in enumerate(steps):
        for kind, named in (("inputs", step.inputs), ("outputs", step.outputs)):
            for name, tensor in named.items():
                tensors[f"{index}/{kind}/{name}"] = tensor.detach().cpu().contiguous().clone()
        rows.append(
            {
                "name": step.name or f"step {index}",
                "symbols": step.symbols,
                "inputs": list(step.inputs),
                "outputs": list(step.outputs),
                "reset": step.reset,
                "atol": step.atol,
                "rtol": step.rtol,
            }
        )
    save_file(tensors, bundle_dir / FOLDER / "steps.safetensors")
    text = json.dumps({"steps": rows}, indent=1)
    (bundle_dir / FOLDER / "steps.json").write_text(text + "\n", encoding="utf-8")


def read_golden(bundle_dir: Path) -> list[GoldenStep]:
    """Return the golden steps of a bundle; raises `ExportError` if it has none or they cannot be
    read.
    """
    try:
        rows = json.loads((bundle_dir / FOLDER / "steps.json").read_text(encoding="utf-8"))["steps"]
        tensors = load_file(bundle_dir / FOLDER / "steps.safetensors")
        return [
            GoldenStep(
                inputs={name: tensors[f"{index}/inputs/{name}"] for name in row["inputs"]},
                symbols={name: int(value) for name, value in row["symbols"].items()},
                outputs={name: tensors[f"{index}/outputs/{name}"] for name in row["outputs"]},
                reset=bool(row["reset"]),
                atol=float(row["atol"]),
                rtol=float(row["rtol"]),
                name=str(row["name"]),
            )
            for index, row in enumerate(rows)
        ]
    except FileNotFoundError as error:
        raise ExportError(
            f"{bundle_dir} has no golden steps",
            hint="export it again; `exporter.export` takes golden_steps=...",
        ) from error
    except (KeyError, ValueError, TypeError) as error:
        raise ExportError(f"{bundle_dir}/{FOLDER} cannot be read: {error}") from error
