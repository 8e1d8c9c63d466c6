"""Python's memory after the runtime's imports, for browsers to start from: made once by Node, kept
in .cache.

Input:  the runtime's archive, Node, web/node_modules. Output: a file for `/tabfire.snapshot`,
packed by gzip (web/snapshot.js has its form).
Way of the data: `archive` -> snapshot -> `server` -> web/core.js.

Without it a browser's first load imports everything itself and keeps a snapshot of its own.

    python -m exporter.hosts.snapshot web/tabfire.snapshot          # for a server of your own

    snapshots = Snapshots()
    snapshots.make(build_archive())         # PosixPath('.../.cache/snapshots/3f2a....gz')
"""

from __future__ import annotations

import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from exporter.hosts.archive import ROOT, build_archive

FOLDER = ROOT / ".cache" / "snapshots"
WEB = ROOT / "web"
TIMEOUT_S = 120


class Snapshots:
    """Makes snapshots, one at a time; those of other runtimes go when a new one comes."""

    def __init__(self, folder: pathlib.Path = FOLDER) -> None:
        self.folder = folder
        self._making = threading.Lock()
        self._failed = ""

    def find(self, archive: bytes) -> pathlib.Path | None:
        """Return the snapshot of the runtime in `archive`, None where none was made yet; then one
        is made in the background.
        """
        path = self._path(archive)
        if path.is_file():
            return path
        if self._failed != path.name and not self._making.locked():
            threading.Thread(target=self.make, args=(archive,), daemon=True).start()
        return None

    def make(self, archive: bytes) -> pathlib.Path | None:
        """Return the snapshot of the runtime in `archive`, made now if need be; None where Node or
        Pyodide is missing or fails: a browser does without.
        """
        path = self._path(archive)
        with self._making:
            if path.is_file():
                return path
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._clear_away()
                with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                    made = _freeze(archive, pathlib.Path(folder))
                    for other in self.folder.glob("*.gz"):
                        other.unlink()
                    return made.rename(path)
            except (OSError, subprocess.SubprocessError):
                self._failed = path.name
                return None

    def _clear_away(self) -> None:
        """Remove what servers left that were ended while they made one."""
        for folder in self.folder.glob("tmp*"):
            if time.time() - folder.stat().st_mtime > TIMEOUT_S:
                shutil.rmtree(folder, ignore_errors=True)

    def _path(self, archive: bytes) -> pathlib.Path:
        """Return where the snapshot lies, named by all that decides it."""
        package = WEB / "node_modules" / "pyodide" / "package.json"
        parts = [archive, *(path.read_bytes() for path in (package,) if path.is_file())]
        parts += [(WEB / name).read_bytes() for name in ("snapshot.js", "modules.js")]
        return self.folder / f"{hashlib.sha256(b''.join(parts)).hexdigest()[:32]}.gz"


def _freeze(archive: bytes, folder: pathlib.Path) -> pathlib.Path:
    """Return the packed snapshot in `folder`; raises `OSError` or `SubprocessError`."""
    node = shutil.which("node")
    if node is None:
        raise FileNotFoundError("node")
    source, target = folder / "tabfire.zip", folder / "snapshot.gz"
    source.write_bytes(archive)
    subprocess.run(
        [node, WEB / "host" / "freeze.js", source, target],
        check=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return target


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m exporter.hosts.snapshot FILE")
    kept = Snapshots().make(build_archive())
    if kept is None:
        sys.exit("Node 20 or later and web/node_modules are needed: run `npm ci` in web/")
    shutil.copyfile(kept, sys.argv[1])
