"""The local server: what it serves, under which headers, and what it refuses."""

from __future__ import annotations

import http.client
import io
import json
import pathlib
import subprocess
import sys
import zipfile

import pytest

from exporter.hosts.archive import ROOT, build_archive
from exporter.hosts.server import Server
from runtime_py.errors import HostError, OptionError


def get(
    server: Server, path: str, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    """Return the answer to one request; header names are given with _ for -."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/engine.js", "text/javascript; charset=utf-8"),
        ("/node_modules/pyodide/pyodide.mjs", "text/javascript; charset=utf-8"),
        ("/node_modules/pyodide/pyodide.asm.wasm", "application/wasm"),
        ("/tabfire.zip", "application/zip"),
        ("/models/index.json", "application/json"),
        ("/models/first/weights-00001.bin", "application/octet-stream"),
    ],
)
def test_types_and_policy(server: Server, path: str, kind: str) -> None:
    response, body = get(server, path)
    assert (response.status, response.headers["Content-Type"]) == (200, kind)
    assert len(body) == int(response.headers["Content-Length"])
    assert "script-src 'self' 'wasm-unsafe-eval'" in response.headers["Content-Security-Policy"]
    assert response.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert response.headers["Cross-Origin-Embedder-Policy"] == "require-corp"


@pytest.mark.parametrize(
    ("span", "status", "slice_"),
    [
        ("bytes=0-9", 206, slice(0, 10)),
        ("bytes=5-", 206, slice(5, None)),
        ("bytes=-7", 206, slice(-7, None)),
        ("bytes=0-999999999", 200, slice(None)),
        ("bytes=999999999-", 416, slice(0)),
        ("nonsense", 200, slice(None)),
    ],
)
def test_ranges(server: Server, toys: pathlib.Path, span: str, status: int, slice_: slice) -> None:
    whole = (toys / "first/weights-00001.bin").read_bytes()
    response, body = get(server, "/models/first/weights-00001.bin", Range=span)
    assert (response.status, body) == (status, whole[slice_])


@pytest.mark.parametrize("path", ["/engine.js", "/tabfire.zip", "/models/first/weights-00001.bin"])
def test_unchanged_files_are_not_sent_again(server: Server, path: str) -> None:
    first, _ = get(server, path)
    again, body = get(server, path, If_None_Match=first.headers["ETag"])
    assert (again.status, body) == (304, b"")
    other, _ = get(server, path, If_None_Match='"other"')
    assert other.status == 200


def test_only_what_is_named_by_hash_is_kept_for_good(server: Server) -> None:
    plain, _ = get(server, "/models/first/weights-00001.bin")
    named, _ = get(server, "/models/first/weights-00001.bin?sha256=abc")
    assert plain.headers["Cache-Control"] == "no-cache"
    assert named.headers["Cache-Control"] == "max-age=31536000, immutable"


def test_json_is_packed_for_who_takes_it(server: Server) -> None:
    packed, short = get(server, "/models/first/graph.json", Accept_Encoding="gzip")
    plain, long = get(server, "/models/first/graph.json")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert len(short) < len(long)


@pytest.mark.parametrize(
    "path",
    ["/../pyproject.toml", "/models/../../etc/passwd", "/%2e%2e/pyproject.toml", "/a%00b", "/c:/x"],
)
def test_no_way_out(server: Server, path: str) -> None:
    assert get(server, path)[0].status == 403


def test_other_host_names_are_refused(server: Server) -> None:
    assert get(server, "/", Host="evil.example")[0].status == 403
    assert get(server, "/", Host="localhost:1234")[0].status == 200


@pytest.mark.parametrize(
    "path", ["/nothing.js", "/bundles/0/manifest.json", "/models/no/graph.json"]
)
def test_missing_files(server: Server, path: str) -> None:
    assert get(server, path)[0].status == 404


def test_head_has_the_headers_only(server: Server) -> None:
    response, body = get(server, "/engine.js", "HEAD")
    assert (response.status, body) == (200, b"")
    assert int(response.headers["Content-Length"]) > 0


def test_index_lists_bundles_and_nothing_else(tmp_path: pathlib.Path, toys: pathlib.Path) -> None:
    (tmp_path / "good").symlink_to(toys / "first")
    (tmp_path / "no_bundle").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/manifest.json").write_text("{")
    with Server(models=tmp_path) as server:
        models = json.loads(get(server, "/models/index.json")[1])["models"]
        assert server.strays() == ["broken", "no_bundle"]
    assert [(m["id"], m["name"], m["url"]) for m in models] == [
        ("good", "Reciter", "/models/good/")
    ]
    assert models[0]["size_bytes"] > 1000


def test_mounted_folders_are_served_once(server: Server, counter: pathlib.Path) -> None:
    url = server.mount(counter)
    assert server.mount(counter) == url
    assert get(server, url.removeprefix(server.origin) + "manifest.json")[0].status == 200


def test_port_in_use_names_another(server: Server) -> None:
    with pytest.raises(HostError, match=f"port {server.server_port}") as caught:
        Server(server.server_port)
    assert f"--port {server.server_port + 1}" in caught.value.hint


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_cannot_be_is_refused(port: int) -> None:
    with pytest.raises(OptionError, match=str(port)):
        Server(port)


def test_archive_holds_the_runtime_and_is_reproducible() -> None:
    data = build_archive()
    names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    for name in ("runtime_py/rpc.py", "jinja2/__init__.py", "markupsafe/_native.py"):
        assert name in names
    assert any(name.startswith("wgsl/") for name in names)
    assert not any(name.endswith((".so", ".pyc")) for name in names)
    assert build_archive() is data


def test_the_archive_can_be_written_for_another_server(tmp_path: pathlib.Path) -> None:
    words = [sys.executable, "-m", "exporter.hosts.archive", str(tmp_path / "tabfire.zip")]
    subprocess.run(words, cwd=ROOT, check=True)
    assert (tmp_path / "tabfire.zip").read_bytes() == build_archive()
