"""The near end of a channel: sends requests to a worker that asks for them over HTTP, and gathers
its answers.

Input:  a method, JSON params, named bytes. Output: the result, named bytes; events go to a
callback.
Way of the data: `host` -> channel -> `server` <-HTTP-> web/host/channel.js -> web/core.js ->
runtime_py/rpc.py.

The worker's side only ever makes ordinary HTTP requests, so a browser and Node are driven the same
way, and megabytes travel as request bodies. One thread calls at a time; server threads fill the
inbox.
"""

from __future__ import annotations

import json
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from runtime_py.errors import HostError

Event: TypeAlias = "Callable[[dict[str, Any]], None]"
POLL_S = 15.0
TICK_S = 0.25
SILENCE_S = 60.0
LOST_S = 2.0


@dataclass
class Reply:
    """What a request came to: `error` is empty, or `{code, message, hint}`."""

    result: dict[str, Any] = field(default_factory=dict)
    error: dict[str, str] = field(default_factory=dict)
    blobs: dict[str, bytearray] = field(default_factory=dict)


class Channel:
    """Requests in order to one worker. `alive` returns why the other end is gone, or None."""

    def __init__(self, alive: Callable[[], str | None]) -> None:
        self.key = secrets.token_urlsafe(16)
        self.alive = alive
        self.closed = False
        self._ids = 0
        self._requests: queue.Queue[bytes] = queue.Queue()
        self._inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self._inputs: dict[str, memoryview] = {}
        self._outputs: dict[str, bytearray] = {}
        self._polls = 0
        self._last_poll = time.monotonic()
        self._patience_s = SILENCE_S
        self._lock = threading.Lock()

    def call(
        self,
        method: str,
        params: Mapping[str, Any],
        blobs: Mapping[str, memoryview],
        on_event: Event | None,
        timeout_s: float,
    ) -> Reply:
        """Send a request and wait for its reply; raises `HostError` on silence or a dead worker."""
        request = self._send(method, params, blobs)
        deadline = time.monotonic() + timeout_s
        while True:
            message = self._receive(method, deadline, timeout_s)
            if message["id"] not in (request, -1):
                continue  # a late answer of a call that was given up
            if "event" in message:
                if on_event:
                    on_event(message["event"])
                continue
            self._inputs.clear()
            outputs, self._outputs = self._outputs, {}
            return Reply(message.get("result") or {}, message.get("error") or {}, outputs)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a request whose answer nobody waits for (`abort`); safe beside a running call."""
        self._send(method, params, {})

    def _send(self, method: str, params: Mapping[str, Any], blobs: Mapping[str, memoryview]) -> int:
        with self._lock:
            self._ids += 1
            self._inputs.update(blobs)
            request = {
                "id": self._ids,
                "method": method,
                "params": params,
                "blob_names": list(blobs),
            }
            self._requests.put(json.dumps(request).encode())
            return self._ids

    def _receive(self, method: str, deadline: float, timeout_s: float) -> dict[str, Any]:
        while True:
            try:
                return self._inbox.get(timeout=TICK_S)
            except queue.Empty:
                gone = self.alive() or self.silence()
            if gone:
                raise HostError(f"{gone} during {method!r}", hint="the next call starts a new one")
            if time.monotonic() > deadline:
                raise HostError(
                    f"no answer to {method!r} within {timeout_s:g} s",
                    hint="pass a longer timeout; the next call starts a new host",
                )

    def silence(self) -> str | None:
        """Return a complaint if the other end has stopped asking for requests, or hung up."""
        quiet_s = time.monotonic() - self._last_poll
        if self._polls == 0 and quiet_s > self._patience_s:
            return f"the page went away ({quiet_s:.0f} s ago)"
        return None

    # What follows is called by the server's threads.

    def next_request(self, connected: Callable[[], bool]) -> bytes | None:
        """Return the next request as JSON, or None after `POLL_S`; an unsent request goes back."""
        with self._lock:
            self._polls += 1
            self._patience_s = SILENCE_S
        try:
            return self._take(connected)
        finally:
            with self._lock:
                self._polls -= 1
                self._last_poll = time.monotonic()

    def _take(self, connected: Callable[[], bool]) -> bytes | None:
        deadline = time.monotonic() + POLL_S
        while not self.closed and time.monotonic() < deadline:
            try:
                return self._requests.get(timeout=TICK_S)
            except queue.Empty:
                if not connected():
                    self._patience_s = LOST_S  # a browser may ask once more on a new connection
                    return None
        return None

    def take_input(self, name: str) -> memoryview | None:
        """Return an input's bytes, or None if the running request has no such input."""
        return self._inputs.get(name)

    def put_output(self, name: str, data: bytearray) -> None:
        """Keep an output's bytes until the reply that names it."""
        self._outputs[name] = data

    def put_messages(self, messages: list[dict[str, Any]]) -> None:
        """Hand replies and events to the waiting caller, in order."""
        for message in messages:
            self._inbox.put(message)
