"""Checkpoint readers and the models they fill.

checkpoint = load_checkpoint(Path("SmolLM2-135M-Instruct.Q4_1.gguf"), max_context=2048)
"""

from __future__ import annotations

from pathlib import Path

import torch

from exporter.models.checkpoint import Checkpoint
from runtime_py.errors import ExportError, OptionError


def load_checkpoint(
    path: Path,
    *,
    max_context: int,
    kv_dtype: torch.dtype = torch.float32,
    quantize: str | None = None,
    group: int = 32,
) -> Checkpoint:
    """Return the checkpoint at `path`, a `.gguf` file or a Hugging Face folder; raises
    `ExportError`.
    """
    from exporter.models.gguf import load_gguf
    from exporter.models.huggingface import load_huggingface

    if path.is_dir():
        return load_huggingface(
            path, max_context=max_context, kv_dtype=kv_dtype, quantize=quantize, group=group
        )
    if not path.is_file():
        raise ExportError(
            f"{path} does not exist", hint="MODEL is a .gguf file or a checkpoint folder"
        )
    if quantize is not None:
        raise OptionError(
            "--quantize is for float checkpoints",
            hint="a GGUF file's own blocks are carried over as they are",
        )
    return load_gguf(path, max_context=max_context, kv_dtype=kv_dtype)
