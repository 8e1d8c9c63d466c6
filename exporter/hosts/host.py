"""A host: a process in which Pyodide and a GPU adapter live, driven from this one.

Input:  a method of runtime_py/rpc.py, JSON params, numpy arrays.
Output: the result, numpy arrays; the runtime's own typed exceptions; `HostError` when the process
is gone.
Way of the data: `exporter.run`, `serve.py` -> host -> `channel` -> worker.

    host = get_host("chromium")
    hello, _ = host.call("hello")
    hello["adapter"]["vendor"]
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy
import numpy.typing

from exporter.hosts import arrays as codec
from exporter.hosts.channel import Channel, Event, Reply
from exporter.hosts.server import Server
from runtime_py import errors
from runtime_py.errors import HostError

Arrays: TypeAlias = "dict[str, numpy.typing.NDArray[Any]]"
KINDS = ("chromium", "node")
DEFAULT_TIMEOUT_S = 300.0
TAIL_CHARS = 3000


class Host(ABC):
    """One child process at a time, started by a call, and again after a crash or a timeout."""

    kind = ""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._server: Server | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @abstractmethod
    def command(self, origin: str, key: str, folder: pathlib.Path) -> list[str]:
        """Return the command line that serves channel `key` of the server at `origin`."""

    def environment(self) -> dict[str, str] | None:
        """Return the process's environment, None for this one's."""
        return None

    def explain(self, error: errors.TabfireError) -> errors.TabfireError:
        """Return `error`, or one that says what it means on this host."""
        return error

    @property
    def server(self) -> Server:
        """The host's own HTTP server, started on first use."""
        if self._server is None:
            self._server = Server().start()
        return self._server

    @property
    def running(self) -> bool:
        """Whether the process that took the last call still lives."""
        return self._channel is not None and self._exit() is None

    def mount(self, folder: pathlib.Path) -> str:
        """Return the URL at which the process finds `folder`."""
        return self.server.mount(folder)

    def call(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        arrays: Mapping[str, numpy.typing.ArrayLike] | None = None,
        *,
        on_event: Event | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> tuple[dict[str, Any], Arrays]:
        """Return a method's result and arrays; raises the runtime's exceptions, or `HostError`."""
        described, blobs = codec.pack(arrays or {})
        with self._lock:
            channel = self._running()
            try:
                full = {**(params or {}), "arrays": described}
                reply = channel.call(method, full, blobs, _without_debug(on_event), timeout_s)
            except BaseException as error:
                tail = self._stop()
                if isinstance(error, HostError) and tail:
                    raise HostError(f"{error.message}\n{tail}", hint=error.hint) from None
                raise
        return self._result(reply)

    def load(
        self,
        folder: pathlib.Path,
        *,
        kind: str,
        options: Mapping[str, Any] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> dict[str, Any]:
        """Load a bundle as a "session" or an "engine" and return what `load` answers.

        `$TABFIRE_DEBUG` is the option `debug` where `options` do not give it.
        """
        if not (folder / "manifest.json").is_file():
            raise errors.BadBundleError(
                f"{folder} is not a bundle: it holds no manifest.json",
                hint="make one: python -m exporter llama MODEL -o DIR",
            )
        chosen = {**debug_option(os.environ), **(options or {})}
        request = {"url": self.mount(folder), "options": chosen, "kind": kind}
        return self.call("load", request, timeout_s=timeout_s)[0]

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a request without waiting, also while another thread's call is running: `abort`."""
        if self._channel is not None:
            self._channel.notify(method, params or {})

    @contextlib.contextmanager
    def loaded(self, handle: int) -> Iterator[None]:
        """Free what `load` answered `handle` for when the body ends; a body's error comes first."""
        try:
            yield
        except BaseException:
            if self.running:  # a process that went away took the session along
                with contextlib.suppress(errors.TabfireError):
                    self.call("close", {"handle": handle})
            raise
        self.call("close", {"handle": handle})

    def close(self) -> None:
        """End the process and the server; the next call starts both again."""
        with self._lock:
            self._stop()
            if self._server is not None:
                self._server.stop()
                self._server = None

    def _result(self, reply: Reply) -> tuple[dict[str, Any], Arrays]:
        if reply.error:
            raise self.explain(error_from(reply.error))
        return reply.result, codec.unpack(reply.result.pop("arrays", {}), reply.blobs)

    def _running(self) -> Channel:
        if self._channel is not None and self.running:
            return self._channel
        self._stop()
        self._folder = tempfile.TemporaryDirectory(prefix="tabfire-", ignore_cleanup_errors=True)
        folder = pathlib.Path(self._folder.name)
        channel = Channel(self._exit)
        self.server.channels = {channel.key: channel}
        with (folder / "stderr").open("wb") as log:
            self._process = subprocess.Popen(
                self.command(self.server.origin, channel.key, folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                start_new_session=True,
            )
        self._channel = channel
        return channel

    def _exit(self) -> str | None:
        """Return how the process ended, None while it runs."""
        code = self._process.poll() if self._process else None
        return None if code is None else f"the {self.kind} process ended with code {code}"

    def _stop(self) -> str:
        """End the process with its children; return the tail of what it printed."""
        if self._channel is not None:
            self._channel.closed = True
        if self._process is not None:
            _kill(self._process)
        tail = self._tail()
        if self._folder is not None:
            self._folder.cleanup()
        self._process = self._channel = self._folder = None
        return tail

    def _tail(self) -> str:
        if self._folder is None:
            return ""
        log = pathlib.Path(self._folder.name, "stderr")
        return log.read_text(errors="replace")[-TAIL_CHARS:].strip() if log.exists() else ""


def debug_option(environ: Mapping[str, str]) -> dict[str, int]:
    """Return the session option that `$TABFIRE_DEBUG` stands for, none if it is not set."""
    text = environ.get("TABFIRE_DEBUG", "")
    if text and not (text.isdecimal() and int(text) <= 5):
        raise errors.OptionError(f"$TABFIRE_DEBUG is {text!r}", hint="give 0 to 5")
    return {"debug": int(text)} if text else {}


def _without_debug(on_event: Event | None) -> Event:
    """Return a listener that prints debug lines on stderr and hands other events on."""

    def hear(event: dict[str, Any]) -> None:
        if event.get("type") == "debug":
            print(event["text"], file=sys.stderr)
        elif on_event:
            on_event(event)

    return hear


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a browser is many processes
    process.wait()


def error_from(fields: Mapping[str, str]) -> errors.TabfireError:
    """Return the exception that `fields` (`{code, message, hint}`) describes, of the class with
    that code.
    """
    message = str(fields.get("message", ""))
    if fields.get("detail"):
        message += "\n" + str(fields["detail"])
    for kind in _subclasses(errors.TabfireError):
        if kind.code == fields.get("code"):
            return kind(message, hint=str(fields.get("hint", "")))
    return errors.InternalError(f"{fields.get('code')}: {message}")


def _subclasses(root: type[errors.TabfireError]) -> list[type[errors.TabfireError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in _subclasses(child))]


_hosts: dict[str, Host] = {}


def get_host(kind: str = "chromium") -> Host:
    """Return this process's host of a kind, closed when the interpreter ends."""
    if kind not in KINDS:
        raise errors.OptionError(f"unknown host {kind!r}", hint=f"one of {', '.join(KINDS)}")
    if kind not in _hosts:
        from exporter.hosts.chromium import ChromiumHost
        from exporter.hosts.node import NodeHost

        _hosts[kind] = ChromiumHost() if kind == "chromium" else NodeHost()
        atexit.register(_hosts[kind].close)
    return _hosts[kind]
