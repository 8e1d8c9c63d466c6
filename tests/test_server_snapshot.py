"""The snapshot of Python that a server makes once: what it serves, and that a first load starts from it or does without."""

from __future__ import annotations

import gzip
import http.client
import pathlib
import subprocess
from typing import Any

import pytest
from playwright.sync_api import Browser

from exporter.hosts import snapshot
from exporter.hosts.archive import build_archive
from exporter.hosts.server import Server
from exporter.hosts.snapshot import Snapshots
from tests import toy

LOAD = """async () => {
  const { Engine } = await import("/engine.js");
  const engine = await Engine.load("/models/m/", { cache: false });
  let text = "";
  for await (const piece of engine.generate("L", { max_tokens: 3 })) text += piece.text;
  const { from_snapshot } = await engine.stats();
  engine.close();
  return [text, from_snapshot];
}"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Snapshots:
    """Snapshots that hold the one of this runtime."""
    snapshots = Snapshots(tmp_path_factory.mktemp("snapshots"))
    assert snapshots.make(build_archive()) is not None
    return snapshots


def get(server: Server, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request("GET", "/tabfire.snapshot", headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def load(browser: Browser, folder: pathlib.Path, snapshots: Snapshots | None) -> Any:
    """Return the text of a first load in a new profile and whether it came from a snapshot."""
    toy.write_reciter(folder / "m", "Endless", endless=True)
    context = browser.new_context()
    page = context.new_page()
    with Server(models=folder, snapshots=snapshots) as server:
        page.goto(f"{server.origin}/empty")
        found = page.evaluate(LOAD)
    context.close()
    return found


def test_a_server_without_snapshots_says_so() -> None:
    with Server() as server:
        response, body = get(server)
    assert (response.status, body) == (204, b"")


def test_it_is_served_packed_and_once(made: Snapshots) -> None:
    with Server(snapshots=made) as server:
        response, body = get(server, **{"Accept-Encoding": "gzip"})
        etag = response.headers["ETag"]
        again, nothing = get(server, **{"If-None-Match": etag})
    assert (response.status, response.headers["Content-Encoding"]) == (200, "gzip")
    assert gzip.decompress(body)[:4] == b"TFPY"
    assert (again.status, nothing) == (304, b"")


def test_it_is_made_once_for_each_runtime_and_the_old_one_goes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []

    def freeze(archive: bytes, folder: pathlib.Path) -> pathlib.Path:
        asked.append(archive)
        path = folder / "made.gz"
        path.write_bytes(archive)
        return path

    monkeypatch.setattr(snapshot, "_freeze", freeze)
    snapshots = Snapshots(tmp_path)
    first = snapshots.make(b"one")
    assert first is not None
    assert snapshots.make(b"one") == snapshots.find(b"one") == first
    second = snapshots.make(b"two")
    assert second is not None
    assert asked == [b"one", b"two"]
    assert list(tmp_path.iterdir()) == [second]


def test_a_host_that_cannot_make_one_does_without_and_does_not_try_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def freeze(archive: bytes, folder: pathlib.Path) -> pathlib.Path:
        asked.append(archive)
        raise subprocess.CalledProcessError(1, "node")

    monkeypatch.setattr(snapshot, "_freeze", freeze)
    snapshots = Snapshots(tmp_path)
    assert snapshots.make(b"one") is None
    assert snapshots.find(b"one") is None
    assert len(asked) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.gpu
def test_a_first_load_starts_from_it(
    browser: Browser, made: Snapshots, tmp_path: pathlib.Path
) -> None:
    assert load(browser, tmp_path, made) == ["LLL", True]


@pytest.mark.gpu
@pytest.mark.parametrize("fault", ["absent", "altered", "cut", "of another runtime"])
def test_a_first_load_does_without_a_bad_one(
    fault: str, browser: Browser, made: Snapshots, tmp_path: pathlib.Path
) -> None:
    good = made.find(build_archive())
    assert good is not None
    data = bytearray(gzip.decompress(good.read_bytes()))
    if fault == "altered":
        data[len(data) // 2] ^= 255
    elif fault == "cut":
        del data[len(data) // 2 :]
    elif fault == "of another runtime":
        data[8] ^= 255  # the first byte of the archive's hash
    bad = Snapshots(tmp_path / "snapshots")
    bad.folder.mkdir()
    (bad.folder / good.name).write_bytes(gzip.compress(bytes(data), 1))
    models = tmp_path / "models"
    models.mkdir()
    assert load(browser, models, None if fault == "absent" else bad) == ["LLL", False]
