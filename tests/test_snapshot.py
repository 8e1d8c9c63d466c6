"""The snapshot of Python that a server makes once: what is in it, how it is served, that a first load starts from it or does
without, and that a browser keeps it.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import pathlib
import shutil
import subprocess
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from exporter.hosts import snapshot
from exporter.hosts.archive import ROOT, build_archive
from exporter.hosts.server import Server
from exporter.hosts.snapshot import Snapshots
from tests import toy

HERE = pathlib.Path(__file__).parent
# Not for a browser: references for checks, in numpy.
ELSEWHERE = {"reference", "reference_models", "reference_ops"}
RUNTIME = hashlib.sha256(build_archive()).hexdigest()
# Loads, answers, and waits until a snapshot is kept if it is to.
LOAD = """async ({ cache, wait = false }) => {
  const { Engine } = await import("/engine.js");
  const engine = await Engine.load("/models/m/", { cache });
  let text = "";
  for await (const piece of engine.generate("L", { max_tokens: 3 })) text += piece.text;
  const { from_snapshot: snapshot } = await engine.stats();
  for (let i = 0; wait && i < 300; i++) {
    const keys = await (await caches.open("tabfire-store-1")).keys();
    if (keys.some(({ url }) => url.includes("/snapshot/"))) break;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  engine.close();
  return [text, snapshot];
}"""


class Counted(Snapshots):
    """Snapshots that count how often a browser asked for one."""

    asked = 0

    def find(self, archive: bytes) -> pathlib.Path | None:
        self.asked += 1
        return super().find(archive)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Counted:
    """Snapshots that hold the one of this runtime."""
    snapshots = Counted(tmp_path_factory.mktemp("snapshots"))
    assert snapshots.make(build_archive()), "Node 20 and web/node_modules are required"
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
        found = page.evaluate(LOAD, {"cache": False})
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


@pytest.mark.tools
def test_it_holds_all_that_a_load_imports_and_every_template(made: Counted) -> None:
    node, file = shutil.which("node"), made.find(build_archive())
    assert node, "Node is required: install Node 20 or later"
    words = [node, str(HERE / "node_snapshot.mjs"), str(file), RUNTIME]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    found: dict[str, Any] = json.loads(done.stdout)
    modules = {path.stem for path in (ROOT / "runtime_py").glob("*.py")} - {"__init__"} - ELSEWHERE
    assert {f"runtime_py.{name}" for name in modules} <= set(found["modules"])
    templates = {p.relative_to(ROOT / "wgsl").as_posix() for p in (ROOT / "wgsl").rglob("*.wgsl")}
    assert set(found["templates"]) == templates
    assert found["headers"] == len(list((ROOT / "wgsl").glob("*.wgsl")))


def kept(page: Page) -> list[str]:
    """Return the names of the snapshots that the page's origin keeps."""
    urls: list[str] = page.evaluate(
        "async () => (await (await caches.open('tabfire-store-1')).keys()).map(({url}) => url)"
    )
    return [url.rsplit("/", 1)[1] for url in urls if "/snapshot/" in url]


@pytest.mark.gpu
def test_a_browser_keeps_the_server_s_snapshot_and_asks_no_more(
    browser: Browser, tmp_path: pathlib.Path, made: Counted
) -> None:
    toy.write_reciter(tmp_path / "m", "Endless", endless=True)
    context = browser.new_context()
    page = context.new_page()
    with Server(models=tmp_path, snapshots=made) as server:
        page.goto(f"{server.origin}/empty")
        assert page.evaluate(LOAD, {"cache": True, "wait": True}) == ["LLL", True]
        assert kept(page) == [RUNTIME]
        asked = made.asked
        assert page.evaluate(LOAD, {"cache": True}) == ["LLL", True]
        assert made.asked == asked
    context.close()
