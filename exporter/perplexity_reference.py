"""Rows of logits that a bundle's own are judged by: eager PyTorch, or numpy on the bundle's graph.

Input:  a bundle's folder; a checkpoint, "numpy" or "none". Output: a name for the report, and a
function from a window's ids to its logits.
Way of the data: beside `headless`, under `perplexity`.

Eager PyTorch runs the checkpoint that the bundle was made of: the demo's own GGUF file is found by
itself, others are named. A bundle whose checkpoint is gone is judged by `runtime_py.reference`, the
interpreter of its graph, in float32: another implementation, but the exporter's own constants.

    name, rows = rows_of(Path("models/smollm2"), None, 512)
    next(iter(rows([504, 3575]))).shape                     # (2, 49152)
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from runtime_py.errors import ExportError, OptionError

if TYPE_CHECKING:
    from exporter.models.checkpoint import Checkpoint

Rows: TypeAlias = "npt.NDArray[np.float32]"
RowSource: TypeAlias = "Callable[[Sequence[int]], Iterable[Rows]]"
NUMPY, NONE = "numpy", "none"


def rows_of(
    folder: pathlib.Path, reference: str | None, width: int
) -> tuple[str, RowSource | None]:
    """Return what the reference is, and its logits of a window of at most `width` ids.

    `reference` None is the demo's checkpoint if the bundle's model card is its own, else "numpy".
    Raises `OptionError` if a named checkpoint is another model than the bundle's.
    """
    if reference == NONE:
        return NONE, None
    if reference == NUMPY:
        return "numpy float32 on the bundle's graph", _numpy_rows(folder)
    card = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["model"]
    if reference is None:
        checkpoint = _demo_checkpoint(card, width)
        if checkpoint is None:
            return rows_of(folder, NUMPY, width)
    else:
        checkpoint = _load(pathlib.Path(reference), width)
        if not _same_model(checkpoint, card):
            raise OptionError(
                f"{reference} is {checkpoint.name}, the bundle holds {card.get('name')}",
                hint="name the checkpoint that the bundle was exported from",
            )
    return f"eager PyTorch float32, {checkpoint.name}", _torch_rows(checkpoint)


def _load(path: pathlib.Path, width: int) -> Checkpoint:
    from exporter.models import load_checkpoint

    return load_checkpoint(path, max_context=max(8, width))


def _demo_checkpoint(card: dict[str, Any], width: int) -> Checkpoint | None:
    from exporter.models.smollm2 import find_gguf

    try:
        path = find_gguf()
    except ExportError:
        return None
    if not path.name.startswith(str(card.get("name"))):
        return None
    checkpoint = _load(path, width)
    return checkpoint if _same_model(checkpoint, card) else None


def _same_model(checkpoint: Checkpoint, card: dict[str, Any]) -> bool:
    """True if name and numbers agree; a bundle may hold a shorter context."""
    found = checkpoint.model_card()
    return all(found[name] == card.get(name) for name in found if name != "max_context")


def _torch_rows(checkpoint: Checkpoint) -> RowSource:
    def rows(ids: Sequence[int]) -> Iterator[Rows]:
        yield checkpoint.model.logits(list(ids)).numpy()

    return rows


def _numpy_rows(folder: pathlib.Path) -> RowSource:
    """Return the logits as the interpreter computes them, in steps as long as the graph takes."""
    from exporter.debug import Comparison
    from runtime_py import reference

    bundle = Comparison(folder)
    longest = bundle.graph.ranges["S"][1]

    def rows(ids: Sequence[int]) -> Iterator[Rows]:
        bundle.reset()
        for at in range(0, len(ids), longest):
            part = np.asarray([ids[at : at + longest]])
            symbols = {"S": part.shape[1], "input_pos": at, "L": part.shape[1]}
            outputs = reference.run(
                bundle.graph,
                bundle.constants,
                bundle.buffers,
                {"tokens": part},
                symbols,
                dtype="float32",
            )
            yield outputs["logits"][0]

    return rows
