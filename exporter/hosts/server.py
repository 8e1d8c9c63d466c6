"""The local HTTP server: the web page, the runtime as a zip, bundles, and channels to workers.

Input:  requests on 127.0.0.1.
Output: `/` = web/ (with its node_modules), `/tabfire.zip` = `archive`, `/tabfire.snapshot` =
        `snapshot`, `/models/` = a folder of bundles with an `index.json` made on the spot,
        `/bundles/<n>/` = folders mounted by a host, `/channel/<key>/` = `channel`.
Way of the data: disk -> server -> the browser. `serve.py` runs one; every host has one of its own.

    with Server(models=pathlib.Path("models")) as server:
        print(server.origin)      # http://127.0.0.1:43211
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
import sys
import threading
from http.server import ThreadingHTTPServer
from typing import Any, Self

from exporter.hosts.archive import ROOT
from exporter.hosts.channel import Channel
from exporter.hosts.handler import Handler
from exporter.hosts.snapshot import Snapshots
from runtime_py.errors import HostError, OptionError

WEB = ROOT / "web"


class Server(ThreadingHTTPServer):
    """Serves until `stop()`. Port 0 picks a free one; `gzip` packs JSON for who takes it, and
    `snapshots` gives browsers Python's memory to start from.
    """

    daemon_threads = True
    block_on_close = False
    # A reused address would let two servers share a port without either noticing (Windows).
    allow_reuse_address = sys.platform != "win32"

    def __init__(
        self,
        port: int = 0,
        *,
        models: pathlib.Path | None = None,
        web: pathlib.Path = WEB,
        gzip: bool = False,
        snapshots: Snapshots | None = None,
    ) -> None:
        self.web, self.models, self.gzip, self.snapshots = web, models, gzip, snapshots
        self.channels: dict[str, Channel] = {}
        self.bundles: list[pathlib.Path] = []
        self._connections: set[socket.socket] = set()
        if not 0 <= port <= 65535:
            raise OptionError(f"there is no port {port}", hint="give --port 0 to 65535")
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except OSError as error:
            raise HostError(
                f"cannot serve on port {port}: {error.strerror or error}",
                hint=f"stop the program that uses it, or choose another: --port {port + 1}",
            ) from error
        self._thread = threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def start(self) -> Self:
        """Serve in a thread of its own."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop serving, hang up on who is still connected, and free the port."""
        if self._thread.is_alive():
            self.shutdown()
        self.server_close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):  # its thread may be closing it
                connection.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, and remember it until it is closed."""
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def mount(self, folder: pathlib.Path) -> str:
        """Return the URL under which `folder` is served, ending in a slash."""
        folder = folder.resolve()
        if folder not in self.bundles:
            self.bundles.append(folder)
        return f"{self.origin}/bundles/{self.bundles.index(folder)}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a browser that hangs up in the middle of a file is no event."""

    def index(self) -> dict[str, Any]:
        """Return what `/models/index.json` says: every bundle in the models folder."""
        found = sorted(self.models.glob("*/manifest.json")) if self.models else []
        return {"models": [entry for path in found if (entry := _describe(path))]}

    def strays(self) -> list[str]:
        """Return the names of folders in the models folder that are no bundles."""
        folders = [p for p in self.models.glob("[!.]*") if p.is_dir()] if self.models else []
        return sorted(p.name for p in folders if _describe(p / "manifest.json") is None)


def _describe(path: pathlib.Path) -> dict[str, Any] | None:
    """Return a picker's entry for a bundle, or None if its manifest cannot be read."""
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        size_bytes = sum(int(file["size_bytes"]) for file in manifest["files"])
        name = str(manifest.get("model", {}).get("name") or path.parent.name)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    folder = path.parent.name
    return {"id": folder, "name": name, "url": f"/models/{folder}/", "size_bytes": size_bytes}
