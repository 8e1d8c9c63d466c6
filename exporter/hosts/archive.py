"""Packs what Pyodide needs into one zip: runtime_py, wgsl, and jinja2 with the pure part of
markupsafe.

Input:  the source tree, and the packages installed for the running interpreter.
Output: bytes of `tabfire.zip`, the same for the same sources (fixed dates, sorted names).
Way of the data: `server` hands it to web/worker.js, which unpacks it onto Python's path.

    python -m exporter.hosts.archive web/tabfire.zip                # for a server of your own

    zipfile.ZipFile(io.BytesIO(build_archive())).namelist()[:1]     # ['jinja2/__init__.py']
"""

from __future__ import annotations

import functools
import importlib.util
import io
import pathlib
import sys
import zipfile

import runtime_py
from runtime_py.errors import HostError

ROOT = pathlib.Path(runtime_py.__file__).resolve().parent.parent
EPOCH = (1980, 1, 1, 0, 0, 0)


def build_archive() -> bytes:
    """Return the zip; built again only when a source has changed."""
    files = _sources()
    return _zip(
        tuple((name, path, path.stat().st_mtime_ns) for name, path in sorted(files.items()))
    )


@functools.lru_cache(maxsize=2)
def _zip(files: tuple[tuple[str, pathlib.Path, int], ...]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, path, _ in files:
            info = zipfile.ZipInfo(name, EPOCH)
            archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED, compresslevel=6)
    return buffer.getvalue()


def _sources() -> dict[str, pathlib.Path]:
    roots = (
        ("runtime_py", ROOT / "runtime_py", "*.py"),
        ("wgsl", ROOT / "wgsl", "*.wgsl"),
        ("jinja2", _package("jinja2"), "*.py"),
        ("markupsafe", _package("markupsafe"), "*.py"),
    )
    return {
        f"{name}/{path.relative_to(root).as_posix()}": path
        for name, root, pattern in roots
        for path in root.rglob(pattern)
    }


def _package(name: str) -> pathlib.Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise HostError(f"the Python package {name} is not installed", hint=f"pip install {name}")
    return pathlib.Path(spec.origin).parent


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m exporter.hosts.archive FILE")
    pathlib.Path(sys.argv[1]).write_bytes(build_archive())
