"""Damages bundles on disk, and the runtime: what a broken download, an old exporter or a curious hand leave behind.

Input:  a bundle's folder. Output: a copy to be damaged, or the folder changed in place.
Way of the data: read by tests of loading, of the command line and of `verify`.

    folder = copy_bundle(bundle, tmp_path / "m")
    flip_byte(folder / "weights-00001.bin", 100)
"""

from __future__ import annotations

import hashlib
import io
import json
import pathlib
import shutil
import zipfile
from collections.abc import Callable
from typing import Any

from exporter.hosts.archive import build_archive

SHARD = "weights-00001.bin"


def copy_bundle(folder: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """Copy a bundle to `target` and return it."""
    return pathlib.Path(shutil.copytree(folder, target))


def flip_byte(path: pathlib.Path, at: int) -> None:
    """Change one byte of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0xFF]))


def cut_short(path: pathlib.Path, by_bytes: int = 1) -> None:
    """Drop the last bytes of a file."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - by_bytes)


def edit_json(path: pathlib.Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Let `change` alter a JSON file in place."""
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def state_hashes(folder: pathlib.Path) -> None:
    """Make the manifest state size and sha256 of the files as they are now."""

    def restate(manifest: dict[str, Any]) -> None:
        for file in manifest["files"]:
            data = (folder / file["path"]).read_bytes()
            file |= {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    edit_json(folder / "manifest.json", restate)


def constant_at(folder: pathlib.Path, value: str) -> tuple[pathlib.Path, int]:
    """Return the file and the offset at which the constant of a graph's value begins."""
    graph = json.loads((folder / "graph.json").read_text(encoding="utf-8"))
    [found] = [c for c in graph["constants"] if c["value"] == value]
    part = found["parts"][0]
    return folder / part["file"], part["offset_bytes"]


def spoil_archive(name: str, old: str, new: str) -> bytes:
    """Return the runtime's archive with one of its files changed."""
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(build_archive())) as source,
        zipfile.ZipFile(packed, "w") as out,
    ):
        for entry in source.namelist():
            data = source.read(entry)
            if entry == name:
                assert old.encode() in data
                data = data.replace(old.encode(), new.encode())
            out.writestr(entry, data)
    return packed.getvalue()
