"""Opens one page of bench/peers, in a browser with a fresh profile, and gathers what it posts.

Input:  an engine's name, plans (plain data, see bench/peers/common.js), files that pages ask for.
Output: for every plan the page's messages in order, the last of kind "done" or "error".
Way of the data: `versus` -> visits -> a browser -> bench/peers/*.js -> messages -> `table`.

The browser is the one of `exporter.hosts` with the same flags, the server the same one with more
places: /versus/ has the pages, /versus/files/ the peers' own files, /versus/plan what is to be
done. After a plan the page opens itself anew, in the same process, for the next: its first visit
finds an empty cache, its second does not.

    with BenchServer(files) as server:
        (cold, warm) = Visits(server, "tabfire", [plan, plan]).run(timeout_s=60)
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from exporter.hosts.browser import find_browser
from exporter.hosts.chromium import browser_flags
from exporter.hosts.handler import CSP, Handler
from exporter.hosts.server import Server
from exporter.hosts.snapshot import Snapshots

PAGES = pathlib.Path(__file__).resolve().parent / "peers"
# wllama starts its worker from a blob; every page gets the same policy, tabfire's too.
PAGE_CSP = CSP.replace("'self'", "'self' blob:").replace("'wasm-unsafe-eval'", "'unsafe-eval'")
TAIL_CHARS = 1500
Message: TypeAlias = "dict[str, Any]"
Hear: TypeAlias = "Callable[[Message], None]"


class BenchHandler(Handler):
    """Answers for the comparison's own paths, and leaves the rest to `Handler`."""

    server: BenchServer

    def do_GET(self) -> None:
        if self._path() == "versus/plan":
            plans = self.server.plans
            plan = plans.pop(0) if len(plans) > 1 else plans[0]
            self._send(json.dumps(plan).encode(), ".json")
        else:
            super().do_GET()

    def do_POST(self) -> None:
        if self._path() != "versus/result":
            super().do_POST()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.inbox.put(json.loads(body))
        self._send(b"", ".json")

    def _locate(self, path: str) -> pathlib.Path | None:
        if path.startswith("versus/files/"):
            return self.server.files.get(path.removeprefix("versus/files/"))
        if path.startswith("versus/"):
            return PAGES / path.removeprefix("versus/")
        return super()._locate(path)

    def send_header(self, keyword: str, value: str) -> None:
        super().send_header(keyword, PAGE_CSP if value == CSP else value)


class BenchServer(Server):
    """The local server with the comparison's places. `files` maps a name to a path on disk."""

    def __init__(
        self, files: Mapping[str, pathlib.Path], snapshots: Snapshots | None = None
    ) -> None:
        super().__init__(snapshots=snapshots)
        self.RequestHandlerClass = BenchHandler
        self.files = dict(files)
        self.plans: list[Message] = []
        self.inbox: queue.Queue[Message] = queue.Queue()


class Visits:
    """A browser with a fresh profile that opens one page again and again, once for every plan."""

    def __init__(self, server: BenchServer, page: str, plans: Sequence[Message]) -> None:
        self.server, self.page = server, page
        numbers = [time.monotonic_ns() + index for index in range(len(plans))]
        again = [f"/versus/page.html?engine={page}&visit={number}" for number in numbers[1:]]
        self.numbers = numbers
        server.plans = [
            {**plan, "visit": number, "then": then}
            for plan, number, then in zip(plans, numbers, [*again, ""], strict=True)
        ]

    def run(self, timeout_s: float, hear: Hear = lambda message: None) -> list[list[Message]]:
        """Return the messages of every visit; one that fails is the last.

        A page that stays silent for `timeout_s`, or a browser that ends, is a message "error".
        """
        with tempfile.TemporaryDirectory(prefix="versus-", ignore_cleanup_errors=True) as folder:
            log = pathlib.Path(folder) / "log"
            with log.open("wb") as stream:
                process = subprocess.Popen(
                    self._command(folder),
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=stream,
                    start_new_session=True,
                )
            try:
                return self._gather(process, log, timeout_s, hear)
            finally:
                _end(process)

    def _command(self, folder: str) -> list[str]:
        profile = f"--user-data-dir={folder}/profile"
        url = f"{self.server.origin}/versus/page.html?engine={self.page}"
        return [str(find_browser()), *browser_flags(), profile, "--remote-debugging-port=0", url]

    def _gather(
        self, process: subprocess.Popen[bytes], log: pathlib.Path, timeout_s: float, hear: Hear
    ) -> list[list[Message]]:
        gathered: list[list[Message]] = []
        for number in self.numbers:
            messages: list[Message] = []
            gathered.append(messages)
            while not messages or messages[-1]["kind"] not in ("done", "error"):
                messages.append(self._next(process, log, number, time.monotonic() + timeout_s))
                hear(messages[-1])
            if messages[-1]["kind"] == "error":
                break
        return gathered

    def _next(
        self, process: subprocess.Popen[bytes], log: pathlib.Path, number: int, deadline: float
    ) -> Message:
        while time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                message = self.server.inbox.get(timeout=0.5)
                if message["visit"] == number:
                    return message
                continue  # of a page that was given up
            if process.poll() is not None:
                return {"kind": "error", "message": f"the browser ended: {_tail(log)}"}
        return {"kind": "error", "message": f"the page fell silent: {_tail(log)}"}


def _tail(log: pathlib.Path) -> str:
    return log.read_text(errors="replace")[-TAIL_CHARS:].strip()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the browser with its children; it is many processes."""
    if sys.platform == "win32":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
