"""Answers one HTTP request of `server`: files with ranges and cache headers, the zip, the channels.

Input:  GET, HEAD, POST from this machine. Output: responses under a strict Content-Security-Policy.
Way of the data: `server` -> handler -> the browser.

Files are answered with an ETag and `no-cache` (kept by the browser, asked for again); a request
that names the content by hash, `?sha256=...`, may be kept for good.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import pathlib
import re
import select
import shutil
import socket
import urllib.parse
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from exporter.hosts.archive import build_archive

if TYPE_CHECKING:
    from exporter.hosts.channel import Channel
    from exporter.hosts.server import Server

CSP = (
    "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; "
    "style-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".zip": "application/zip",
}
RANGE = re.compile(r"bytes=(\d*)-(\d*)$")
CHUNK_BYTES = 1 << 20


class Handler(BaseHTTPRequestHandler):
    """One connection; `server` is the `Server` that it belongs to."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: requests are no news."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self._path()
        if path is None:
            self._refuse(403, "not allowed")
        elif path == "tabfire.zip":
            self._send(build_archive(), ".zip")
        elif path == "tabfire.snapshot":
            self._snapshot()
        elif path == "models/index.json":
            self._send(json.dumps(self.server.index()).encode(), ".json")
        elif path.startswith("channel/"):
            self._channel_get(path)
        else:
            self._file(path)

    def do_POST(self) -> None:
        body = bytearray(int(self.headers.get("Content-Length", 0)))
        view = memoryview(body)
        while view and (count := self.rfile.readinto(view)):
            view = view[count:]
        path = self._path() or ""
        channel, rest = self._channel(path)
        if channel is None:
            self._refuse(404, "no such channel")
        elif rest == "messages":
            channel.put_messages(json.loads(body))
            self._send(b"", ".json", status=200)
        else:
            channel.put_output(urllib.parse.unquote(rest.removeprefix("blob/")), body)
            self._send(b"", ".json", status=200)

    def _path(self) -> str | None:
        """Return the asked-for path without its leading slash, None if it leads out or names
        another host.

        A page elsewhere can make its own name resolve to 127.0.0.1; the Host header then gives it
        away.
        """
        host = self.headers.get("Host", "").partition(":")[0]
        path = urllib.parse.unquote(self.path.partition("?")[0]).lstrip("/")
        leads_out = ".." in path.split("/") or any(char in path for char in "\\\0:")
        if host not in ("127.0.0.1", "localhost") or leads_out:
            return None
        return path

    # -- channels

    def _channel(self, path: str) -> tuple[Channel | None, str]:
        _, _, tail = path.partition("channel/")
        key, _, rest = tail.partition("/")
        return self.server.channels.get(key), rest

    def _channel_get(self, path: str) -> None:
        channel, rest = self._channel(path)
        if channel is None or channel.closed:
            self._refuse(410, "the channel is closed")
        elif rest == "next":
            request = channel.next_request(self._connected)
            self._send(request or b"", ".json", status=200 if request else 204)
        else:
            data = channel.take_input(urllib.parse.unquote(rest.removeprefix("blob/")))
            if data is None:
                self._refuse(404, "no such input")
            else:
                self._send(data, ".bin")

    def _connected(self) -> bool:
        """Return whether the client still holds this connection open."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return not readable or bool(self.connection.recv(1, socket.MSG_PEEK))

    # -- files

    def _locate(self, path: str) -> pathlib.Path | None:
        top, _, rest = path.partition("/")
        if top == "models":
            return self.server.models / rest if self.server.models else None
        if top == "bundles":
            number, _, name = rest.partition("/")
            known = number.isdecimal() and int(number) < len(self.server.bundles)
            return self.server.bundles[int(number)] / name if known else None
        target = self.server.web / path
        return target / "index.html" if path == "" or path.endswith("/") else target

    def _file(self, path: str) -> None:
        target = self._locate(path)
        if target is None or not target.is_file():
            self._refuse(404, f"no such file: /{path}")
            return
        status = target.stat()
        etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
        if self.headers.get("If-None-Match") == etag:
            self._head(304, target.suffix, None, etag)
        elif self._packs(target.suffix):
            self._send(target.read_bytes(), target.suffix, etag=etag)
        else:
            self._stream(target, status.st_size, etag)

    def _snapshot(self) -> None:
        """Answer with the snapshot of the runtime that is served now; 204 where there is none."""
        snapshots = self.server.snapshots
        found = None if snapshots is None else snapshots.find(build_archive())
        if found is None:
            self._send(b"", ".bin", status=204)
            return
        etag, data = f'"{found.stem}"', found.read_bytes()
        if self.headers.get("If-None-Match") == etag:
            self._head(304, ".bin", None, etag)
            return
        takes = "gzip" in self.headers.get("Accept-Encoding", "")
        self._head(200, ".bin", len(data), etag, {"Content-Encoding": "gzip"} if takes else None)
        if self.command != "HEAD":
            self.wfile.write(data)

    def _stream(self, target: pathlib.Path, size: int, etag: str) -> None:
        span = self._range(size)
        if span is None:
            self._head(416, target.suffix, 0, etag, {"Content-Range": f"bytes */{size}"})
            return
        start, stop = span
        partial = (start, stop) != (0, size)
        extra = {"Content-Range": f"bytes {start}-{stop - 1}/{size}"} if partial else {}
        self._head(206 if partial else 200, target.suffix, stop - start, etag, extra)
        if self.command == "HEAD":
            return
        with target.open("rb") as file:
            if not partial:
                shutil.copyfileobj(file, self.wfile, CHUNK_BYTES)
                return
            file.seek(start)
            while start < stop and (chunk := file.read(min(CHUNK_BYTES, stop - start))):
                self.wfile.write(chunk)
                start += len(chunk)

    def _range(self, size: int) -> tuple[int, int] | None:
        """Return `(start, stop)` of what is asked for, None if it cannot be satisfied."""
        match = RANGE.match(self.headers.get("Range", ""))
        if match is None or match.group(0) == "bytes=-":
            return 0, size
        first, last = match.groups()
        if first == "":
            return max(0, size - int(last)), size
        stop = min(size, int(last) + 1) if last else size
        return (int(first), stop) if int(first) < stop else None

    # -- writing

    def _packs(self, suffix: str) -> bool:
        accepts = "gzip" in self.headers.get("Accept-Encoding", "")
        return self.server.gzip and accepts and suffix == ".json"

    def _send(
        self, data: bytes | memoryview, suffix: str, *, status: int = 200, etag: str = ""
    ) -> None:
        extra = {}
        if self._packs(suffix) and data:
            data, extra = gzip.compress(data), {"Content-Encoding": "gzip"}
        if suffix == ".zip":
            etag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
            if self.headers.get("If-None-Match") == etag:
                self._head(304, suffix, None, etag)
                return
        self._head(status, suffix, len(data), etag, extra)
        if self.command != "HEAD" and status != 204:
            self.wfile.write(data)

    def _head(
        self,
        status: int,
        suffix: str,
        length: int | None,
        etag: str,
        extra: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", TYPES.get(suffix, "application/octet-stream"))
        if length is not None and status != 204:
            self.send_header("Content-Length", str(length))
        forever = "sha256=" in self.path.partition("?")[2]
        self.send_header("Cache-Control", "max-age=31536000, immutable" if forever else "no-cache")
        if etag:
            self.send_header("ETag", etag)
            self.send_header("Accept-Ranges", "bytes")
        for name, value in (HEADERS | (extra or {})).items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: int, text: str) -> None:
        self._send(text.encode(), ".txt", status=status)
