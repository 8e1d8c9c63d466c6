"""Writes a bundle: manifest.json, graph.json, weight shards, text files and golden steps
(docs/FORMAT.md).

Input:  a `schema.Graph` whose constants have no parts yet, and the tensor of every constant.
Output: a folder, put in place by one rename: it is there whole, or not at all.
Way of the data: the exporter's last stage; `runtime_py.bundle` reads what this writes.

    write_bundle("models/tiny", graph, {"w": weight}, model_card={"name": "tiny"})
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import torch

from exporter.golden import GoldenStep, write_golden
from runtime_py import symbols
from runtime_py.errors import ExportError, InternalError
from runtime_py.schema import (
    ALIGNMENT_BYTES,
    DTYPE_BYTES,
    FORMAT_NAME,
    MAX_SHARD_BYTES,
    Constant,
    File,
    Graph,
    Manifest,
    Part,
    Value,
)

# The torch dtypes in which a value's bytes may be handed over, and what they become.
STORED_DTYPES = {
    "f32": {torch.float32: torch.float32},
    "f16": {torch.float16: torch.float16},
    "i32": {torch.int32: torch.int32, torch.int64: torch.int32},
    "u32": {torch.int32: torch.int32, torch.uint32: torch.int32, torch.bool: torch.int32},
}


def write_bundle(
    out_dir: str | os.PathLike[str],
    graph: Graph,
    constants: Mapping[str, torch.Tensor],
    *,
    text_files: Mapping[str, str] | None = None,
    text: Mapping[str, Any] | None = None,
    model_card: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    golden: Sequence[GoldenStep] = (),
    features: Sequence[str] = (),
    exporter: Mapping[str, str] | None = None,
) -> Manifest:
    """Write the bundle to `out_dir` and return its manifest.

    `constants` holds a tensor for every name in `graph.constants`; equal bytes are stored once.
    `text_files` are written as they are (name -> content); the other mappings go into the manifest.
    Raises `ExportError` if a tensor does not fit its value's dtype or shape, or if `out_dir` holds
    anything but a bundle.
    """
    target = Path(out_dir)
    _check_target(target)
    _check_constants(graph, constants)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(
        tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent)
    )
    try:
        stored = _write_constants(partial, graph, constants)
        _write_json(partial / "graph.json", replace(graph, constants=stored).to_json())
        for name, content in (text_files or {}).items():
            (partial / name).write_text(content, encoding="utf-8", newline="")
        write_golden(partial, golden)
        manifest = Manifest(
            model=dict(model_card or {}),
            files={f.path: f for f in _describe_files(partial)},
            text=dict(text or {}),
            generation=dict(generation or {}),
            features=tuple(features),
            exporter=dict(exporter or {}),
        )
        _write_json(partial / "manifest.json", manifest.to_json(), indent=1)
        _put_in_place(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return manifest


def read_manifest(bundle_dir: str | os.PathLike[str]) -> Manifest:
    """Return the manifest of a bundle on disk; raises `BadBundleError` or `ExportError` if it is
    none.
    """
    path = Path(bundle_dir) / "manifest.json"
    try:
        return Manifest.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ExportError(
            f"{bundle_dir} is not a bundle: {error}",
            hint="make one with `python -m exporter llama MODEL -o DIR`",
        ) from error


@dataclass
class _Shards:
    """Appends tensors to `weights-00001.bin` and on; a tensor that meets the end of a shard goes on
    in the next.
    """

    folder: Path
    index: int = 0
    used: int = MAX_SHARD_BYTES
    file: BinaryIO | None = None
    parts_of: dict[bytes, tuple[Part, ...]] = field(default_factory=dict)

    def add(self, data: memoryview) -> tuple[Part, ...]:
        """Return where `data` lies, writing it unless the same bytes are there already."""
        digest = hashlib.sha256(data).digest()
        if digest not in self.parts_of:
            self.parts_of[digest] = tuple(self._append(data))
        return self.parts_of[digest]

    def _append(self, data: memoryview) -> list[Part]:
        parts = []
        done = 0
        while done < len(data):
            if self.used >= MAX_SHARD_BYTES:
                self._open_next()
            size = min(len(data) - done, MAX_SHARD_BYTES - self.used)
            parts.append(Part(self._name(), self.used, size))
            self._write(data[done : done + size])
            done += size
        self._write(memoryview(bytes(-self.used % ALIGNMENT_BYTES)))
        return parts

    def _write(self, data: memoryview) -> None:
        if len(data) == 0:
            return
        if self.file is None:
            raise InternalError("a shard is written before it is opened")
        self.file.write(data)
        self.used += len(data)

    def _open_next(self) -> None:
        self.close()
        self.index, self.used = self.index + 1, 0
        self.file = open(self.folder / self._name(), "wb")  # noqa: SIM115 (closed by close())

    def _name(self) -> str:
        return f"weights-{self.index:05d}.bin"

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def _write_constants(
    folder: Path, graph: Graph, constants: Mapping[str, torch.Tensor]
) -> dict[str, Constant]:
    shards = _Shards(folder)
    try:
        return {
            name: Constant(name, shards.add(_bytes_of(constants[name], graph.values[name])))
            for name in graph.constants
        }
    finally:
        shards.close()


def _bytes_of(tensor: torch.Tensor, value: Value) -> memoryview:
    """Return the little-endian bytes of `tensor` as `value` stores them, copied only if needed."""
    stored = tensor.detach().cpu().to(STORED_DTYPES[value.dtype][tensor.dtype]).contiguous()
    return stored.reshape(-1).view(torch.uint8).numpy().data if stored.numel() else memoryview(b"")


def _check_constants(graph: Graph, constants: Mapping[str, torch.Tensor]) -> None:
    wrong = set(graph.constants) ^ set(constants)
    if wrong:
        raise InternalError(f"constants of the graph and tensors differ: {sorted(wrong)}")
    for name, tensor in constants.items():
        value = graph.values[name]
        if tensor.dtype not in STORED_DTYPES[value.dtype]:
            raise ExportError(f"constant {name!r} is {tensor.dtype}, its value is {value.dtype}")
        if tuple(tensor.shape) != value.shape:
            raise ExportError(
                f"constant {name!r} has shape {list(tensor.shape)}, "
                f"its value {symbols.show_shape(value.shape)}"
            )
        if tensor.dtype == torch.int64 and tensor.numel() and not _fits_int32(tensor):
            raise ExportError(f"constant {name!r} holds integers beyond int32")
        if DTYPE_BYTES[value.dtype] * tensor.numel() >= 2**31:
            raise ExportError(f"constant {name!r} takes 2 GiB or more", hint="split it by rows")


def _fits_int32(tensor: torch.Tensor) -> bool:
    return int(tensor.min()) >= symbols.INT32_MIN and int(tensor.max()) <= symbols.INT32_MAX


def _describe_files(folder: Path) -> list[File]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [File(f.relative_to(folder).as_posix(), f.stat().st_size, _sha256(f)) for f in files]


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_json(path: Path, data: Any, indent: int | None = None) -> None:
    separators = (",", ":") if indent is None else None
    text = json.dumps(
        data, indent=indent, separators=separators, ensure_ascii=False, allow_nan=False
    )
    path.write_text(text + "\n", encoding="utf-8", newline="")


def _check_target(target: Path) -> None:
    """Refuse to replace anything that is not a bundle: a mistyped -o must not cost a folder."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        found = json.loads((target / "manifest.json").read_text(encoding="utf-8"))
        is_bundle = isinstance(found, dict) and found.get("format") == FORMAT_NAME
    except (OSError, ValueError):
        is_bundle = False
    if not is_bundle:
        raise ExportError(
            f"{target} exists and is not a bundle", hint="give a new or empty folder to -o"
        )


def _put_in_place(partial: Path, target: Path) -> None:
    os.chmod(partial, 0o755)  # mkdtemp makes it private
    if not target.exists():
        os.rename(partial, target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent))
    os.rename(target, old / target.name)
    os.rename(partial, target)
    shutil.rmtree(old, ignore_errors=True)
