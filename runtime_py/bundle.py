"""Read a bundle's manifest and graph, and hold every file against the size and sha256 that the
manifest states.

Input:  a `read(path) -> bytes` coroutine (fetch in a browser, a file on disk in CPython).
Output: `Manifest`, checked `Graph`, text files. Weights are streamed by `device`, never read here.
Way of the data: fetch -> bundle -> `graph`.

    bundle = await Bundle.open(read)
    tokenizer = json.loads(await bundle.read_text("tokenizer.json"))
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from runtime_py.errors import BadBundleError, IntegrityError
from runtime_py.graph import check_graph
from runtime_py.ops import registry
from runtime_py.schema import File, Graph, Manifest

Read: TypeAlias = "Callable[[str], Awaitable[bytes]]"
GRAPH_FILE = "graph.json"
MANIFEST_FILE = "manifest.json"


@dataclass(frozen=True)
class Bundle:
    """An opened bundle: its manifest, its checked graph, and the way to its other files."""

    manifest: Manifest
    graph: Graph
    read: Read

    @staticmethod
    async def open(read: Read) -> Bundle:
        """Return the bundle; raises `BadBundleError`, `IntegrityError` or `UnsupportedOpError`."""
        manifest = Manifest.from_json(_parse(MANIFEST_FILE, await read(MANIFEST_FILE)))
        data = await read_checked(manifest, read, GRAPH_FILE)
        graph = Graph.from_json(_parse(GRAPH_FILE, data))
        check_graph(graph, registry, {f.path: f.size_bytes for f in manifest.files.values()})
        return Bundle(manifest, graph, read)

    def file(self, path: str) -> File:
        """Return the manifest's entry for a file; raises `BadBundleError` if there is none."""
        return _entry(self.manifest, path)

    async def read_text(self, path: str) -> str:
        """Return a text file of the bundle, integrity checked."""
        return (await read_checked(self.manifest, self.read, path)).decode("utf-8")


async def read_checked(manifest: Manifest, read: Read, path: str) -> bytes:
    """Return the bytes of `path`; raises `IntegrityError` unless size and sha256 are the
    manifest's."""
    entry, data = _entry(manifest, path), await read(path)
    if len(data) != entry.size_bytes:
        raise IntegrityError(f"{path} has {len(data)} bytes, its manifest says {entry.size_bytes}")
    digest = hashlib.sha256(data).hexdigest()
    if digest != entry.sha256:
        raise IntegrityError(
            f"{path} has sha256 {digest}, its manifest says {entry.sha256}: the file was altered",
            hint="download or export the bundle again",
        )
    return data


def _entry(manifest: Manifest, path: str) -> File:
    if path not in manifest.files:
        raise BadBundleError(f"manifest.json does not list {path!r}")
    return manifest.files[path]


def _parse(path: str, data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise BadBundleError(
            f"{path} is not JSON: {error}", hint="is this a folder made by `python -m exporter`?"
        ) from error
