"""Tells whether a bundle is up to date: a hash of everything that it was made from.

Input:  the checkpoint (a file or a folder), the exporter's own sources, the arguments.
Output: a hex digest, kept in the manifest as `exporter.stamp`.
Way of the data: `cli` asks before it exports; `make demo` exports once.

    is_current(Path("models/smollm2"), make_stamp(Path("model.gguf"), {"max_context": 2048}))
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch

from exporter.bundle import read_manifest
from runtime_py.errors import UserError

SOURCES = Path(__file__).resolve().parent
RUNNING = {
    *("hosts", "run", "verify", "headless", "commands", "__main__", "__init__"),
    *("perplexity", "perplexity_reference", "profiling"),
}
CONTRACT = ("schema.py", "symbols.py")


def make_stamp(model: Path, arguments: Mapping[str, object]) -> str:
    """Return the digest of the checkpoint's bytes, the sources and `arguments`."""
    digest = hashlib.sha256(
        json.dumps([torch.__version__, dict(arguments)], sort_keys=True).encode()
    )
    for path in (*_files(model), *_source_files()):
        digest.update(path.name.encode())
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def is_current(bundle_dir: Path, stamp: str) -> bool:
    """True if `bundle_dir` holds a whole bundle that was made with `stamp`."""
    try:
        manifest = read_manifest(bundle_dir)
    except UserError:
        return False
    sizes_match = all(
        (bundle_dir / f.path).is_file() and (bundle_dir / f.path).stat().st_size == f.size_bytes
        for f in manifest.files.values()
    )
    return sizes_match and manifest.exporter.get("stamp") == stamp


def _files(model: Path) -> list[Path]:
    return sorted(p for p in model.iterdir() if p.is_file()) if model.is_dir() else [model]


def _source_files() -> list[Path]:
    """Return the sources that decide what a bundle holds: not those that run one or check one."""
    made_by = [
        path
        for path in sorted(SOURCES.rglob("*.py"))
        if not RUNNING & {path.stem, *path.relative_to(SOURCES).parts}
    ]
    return [*made_by, *(SOURCES.parent / "runtime_py" / name for name in CONTRACT)]
