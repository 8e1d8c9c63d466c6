"""Perplexity of a bundle as a real host computes it, beside a reference on the same tokens.

Input:  a bundle's folder, a text, session options, a host's name.
Output: a `Comparison`: both perplexities, and how far single tokens are apart.
Way of the data: text -> tokenizer.json -> windows -> `headless` (rows of logits) and
`perplexity_reference` -> log-softmax in float64 here -> `cli`.

Method. The text's first N + 1 tokens (N with a BOS) are cut into windows of `width` tokens. A
window starts from an empty cache, with BOS in front if the tokenizer adds it to a text; without one
it repeats the last token of the window before. So each of the N tokens is predicted exactly once,
from those before it in its window. Perplexity is exp(-mean ln p), p the softmax of the row of
logits before the token. The cache is filled in steps of `step` tokens, as a long prompt would be.

    compare("models/smollm2", default_text(), tokens=2048).difference
"""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from exporter import perplexity_reference
from exporter.headless import Model, open_model
from exporter.hosts.host import DEFAULT_TIMEOUT_S
from runtime_py.errors import InputError, NonFiniteError, OptionError

Rows: TypeAlias = "npt.NDArray[np.float32]"
# A window's ids -> blocks of logits [rows, V], one after the other; the last id's row is not used.
RowSource: TypeAlias = "Callable[[Sequence[int]], Iterable[Rows]]"

WIDTH = 512
STEP = 128
BLOCK_ROWS = 64  # rows whose softmax is computed at once: 49152 x 64 float64 are 25 MB


@dataclass(frozen=True)
class Comparison:
    """What `compare` found. `nats` and `reference_nats` are -ln p of every predicted token."""

    nats: npt.NDArray[np.float64]
    reference_nats: npt.NDArray[np.float64] | None
    reference: str
    adapter: Mapping[str, Any]
    options: Mapping[str, Any]
    width: int
    step: int

    @property
    def perplexity(self) -> float:
        """exp of the mean of `nats`."""
        return _perplexity(self.nats)

    @property
    def reference_perplexity(self) -> float | None:
        """exp of the mean of `reference_nats`, None without a reference."""
        return None if self.reference_nats is None else _perplexity(self.reference_nats)

    @property
    def difference(self) -> float | None:
        """Perplexity minus the reference's, None without a reference."""
        wanted = self.reference_perplexity
        return None if wanted is None else self.perplexity - wanted

    def summary(self) -> dict[str, Any]:
        """Return the figures and their method, ready for JSON."""
        worst = None
        if self.reference_nats is not None:
            worst = float(np.abs(self.nats - self.reference_nats).max())
        return {
            "perplexity": self.perplexity,
            "reference_perplexity": self.reference_perplexity,
            "difference": self.difference,
            "worst_token_nats": worst,
            "tokens": len(self.nats),
            "window": self.width,
            "step": self.step,
            "reference": self.reference,
            "options": dict(self.options),
            "adapter": dict(self.adapter),
        }


def default_text() -> str:
    """Return English prose that every CPython carries: the help topics of `pydoc_data.topics`, in
    the order of their labels, a blank line between two.

    It differs from one version of CPython to the next, and so does a perplexity on it.
    """
    from pydoc_data.topics import topics

    return "\n\n".join(topics[label] for label in sorted(topics))


def compare(
    bundle_dir: str | pathlib.Path,
    text: str,
    *,
    tokens: int,
    width: int = WIDTH,
    step: int = STEP,
    reference: str | None = None,
    host: str = "chromium",
    options: Mapping[str, Any] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Comparison:
    """Return the perplexity of the first `tokens` tokens of `text` in a host, and the reference's.

    `reference` is a checkpoint for eager PyTorch, "numpy" or "none"; see `perplexity_reference`.
    Raises `InputError` on a text that is too short, `NonFiniteError` on logits that are no numbers,
    and what loading raises.
    """
    with open_model(bundle_dir, host=host, options=options, timeout_s=timeout_s) as model:
        return compare_loaded(
            model,
            pathlib.Path(bundle_dir),
            text,
            tokens=tokens,
            width=width,
            step=step,
            reference=reference,
        )


def compare_loaded(
    model: Model,
    folder: pathlib.Path,
    text: str,
    *,
    tokens: int,
    width: int = WIDTH,
    step: int = STEP,
    reference: str | None = None,
) -> Comparison:
    """Return the same of a model that is loaded already; `folder` is its bundle."""
    if width < 2 or step < 1 or tokens < 1:
        raise OptionError(f"a window of {width}, a step of {step}, {tokens} tokens: too small")
    width = min(width, model.info["context"])
    pieces = windows(*text_ids(folder, text, tokens), width)
    nats = score(lambda ids: host_rows(model, ids, step), pieces)
    name, rows = perplexity_reference.rows_of(folder, reference, width)
    report = model.ask("report")
    return Comparison(
        nats=nats,
        reference_nats=None if rows is None else score(rows, pieces),
        reference=name,
        adapter=report["adapter"],
        options=report["options"],
        width=width,
        step=step,
    )


def text_ids(folder: pathlib.Path, text: str, tokens: int) -> tuple[list[int], int | None]:
    """Return the ids of which `tokens` are predicted, and the BOS that starts every window (None:
    the model's texts start without).
    """
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["text"]
    tokenizer = Tokenizer.from_file(str(folder / manifest["tokenizer"]))
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    bos = None
    if manifest.get("add_bos"):
        bos = tokenizer.token_to_id(manifest["special_tokens"]["bos_token"])
    wanted = tokens + (bos is None)
    if len(ids) < wanted:
        raise InputError(
            f"the text has {len(ids)} tokens, {wanted} are needed", hint="give fewer --tokens"
        )
    return ids[:wanted], bos


def windows(ids: Sequence[int], bos: int | None, width: int) -> list[list[int]]:
    """Return windows of at most `width` ids; in all of them together every id but a first one that
    no BOS precedes is predicted once.
    """
    if bos is not None:
        return [[bos, *ids[at : at + width - 1]] for at in range(0, len(ids), width - 1)]
    return [list(ids[at : at + width]) for at in range(0, len(ids) - 1, width - 1)]


def score(rows_of: RowSource, pieces: Iterable[Sequence[int]]) -> npt.NDArray[np.float64]:
    """Return -ln p of every predicted token of every window, in order."""
    return np.concatenate([_window_nats(rows_of(ids), ids) for ids in pieces])


def host_rows(model: Model, ids: Sequence[int], step: int) -> Iterator[Rows]:
    """Yield the logits after each id but the last, computed in the host, `step` ids at a time."""
    for at in range(0, len(ids) - 1, step):
        asked = {"ids": list(ids[at : min(at + step, len(ids) - 1)]), "input_pos": at}
        params = {**asked, "handle": model.info["handle"]}
        yield model.host.call("logits", params, timeout_s=model.timeout_s)[1]["logits"]


def _window_nats(blocks: Iterable[Rows], ids: Sequence[int]) -> npt.NDArray[np.float64]:
    nats: list[npt.NDArray[np.float64]] = []
    at = 0
    for block in blocks:
        for first in range(0, len(block), BLOCK_ROWS):
            rows = block[first : first + BLOCK_ROWS]
            targets = np.asarray(ids[at + 1 : at + 1 + len(rows)], np.int64)
            nats.append(_token_nats(rows[: len(targets)], targets))
            at += len(targets)
    return np.concatenate(nats)


def _token_nats(rows: Rows, targets: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return ln(sum exp(row)) - row[target] of every row, in float64."""
    logits = rows.astype(np.float64)
    greatest = logits.max(axis=1, keepdims=True)
    chosen = logits[np.arange(len(targets)), targets]
    if not (np.isfinite(greatest).all() and np.isfinite(chosen).all()):
        raise NonFiniteError(
            "the logits hold NaN or infinity",
            hint="exporter.run with options={'debug': 5} finds the first bad intermediate",
        )
    logits -= greatest
    nats: npt.NDArray[np.float64] = np.log(np.exp(logits).sum(axis=1)) - chosen + greatest[:, 0]
    return nats


def _perplexity(nats: npt.NDArray[np.float64]) -> float:
    return math.exp(float(nats.mean()))
