"""The tensors of a folder of safetensors, by name, each read when asked for and counted as used.

Input:  `model.safetensors`, or the shards that `model.safetensors.index.json` names.
Output: float32 tensors. A name that occurs twice, a missing shard or a damaged file is an
`ExportError`.
Way of the data: files -> the safetensors package -> `models.huggingface`.

    with SafetensorsFolder(Path("checkpoint")) as tensors:
        table = tensors.read("model.embed_tokens.weight")
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from exporter.models.huggingface_text import read_json
from runtime_py.errors import ExportError

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class SafetensorsFolder:
    """Opened shards; memory-mapped by the library, so that only what is read is touched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file_of: dict[str, Any] = {}
        self.used: set[str] = set()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> SafetensorsFolder:
        try:
            for path in _files(self.folder):
                self._open(path)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def read(self, name: str) -> torch.Tensor:
        """Return the tensor `name` as float32; raises `ExportError` if it is missing, not float or
        not finite.
        """
        if name not in self.file_of:
            raise ExportError(
                f"{self.folder} has no tensor {name}",
                hint="config.json and the weights are not of one model",
            )
        self.used.add(name)
        tensor: torch.Tensor = self.file_of[name].get_tensor(name)
        if tensor.dtype not in FLOATS:
            raise ExportError(
                f"tensor {name} is {tensor.dtype}", hint="supported: float32, float16, bfloat16"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise ExportError(
                f"tensor {name} holds NaN or infinity", hint="the checkpoint is damaged"
            )
        return tensor.to(torch.float32, copy=True)

    def unused(self) -> list[str]:
        """Return the names of tensors that nobody read, sorted."""
        return sorted(set(self.file_of) - self.used)

    def _open(self, path: Path) -> None:
        try:
            file = self._stack.enter_context(safe_open(path, framework="pt"))
        except (OSError, SafetensorError) as error:
            raise ExportError(f"{path} cannot be read as safetensors: {error}") from error
        for name in file.keys():  # noqa: SIM118 (the library's object is not iterable)
            if name in self.file_of:
                raise ExportError(f"{path} holds {name}, which another file holds too")
            self.file_of[name] = file


def _files(folder: Path) -> list[Path]:
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    index = read_json(folder / "model.safetensors.index.json", required=False)
    names = index.get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ExportError(
            f"{folder} has neither model.safetensors nor model.safetensors.index.json",
            hint="other formats (pytorch_model.bin) can be converted with the safetensors package",
        )
    files = sorted({str(name) for name in names.values()})
    for name in files:
        if Path(name).name != name:
            raise ExportError(
                f"model.safetensors.index.json names {name!r}, which is not in the folder"
            )
    return [folder / name for name in files]
