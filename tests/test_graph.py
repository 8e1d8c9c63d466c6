"""What a graph and a manifest may hold: every rule has a file that breaks it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import pytest

from runtime_py.bundle import Bundle
from runtime_py.errors import (
    BadBundleError,
    InputError,
    IntegrityError,
    UnsupportedOpError,
    UserError,
)
from runtime_py.graph import check_graph, check_step, index_limits
from runtime_py.ops import registry
from runtime_py.schema import Graph, Manifest
from tests.hostile.graphs import FILES, GRAPHS, MANIFESTS, Change, good_graph, good_manifest


def check(data: dict[str, Any]) -> None:
    check_graph(Graph.from_json(json.loads(json.dumps(data))), registry, FILES)


def test_the_good_graph_passes_and_round_trips() -> None:
    check(good_graph())
    graph = Graph.from_json(good_graph())
    assert Graph.from_json(json.loads(json.dumps(graph.to_json()))) == graph


@pytest.mark.parametrize(
    ("change", "words"), [row[1:] for row in GRAPHS], ids=[r[0] for r in GRAPHS]
)
def test_a_bad_graph_is_refused(change: Change, words: str) -> None:
    data = good_graph()
    change(data)
    with pytest.raises(UserError) as caught:
        check(data)
    assert words in str(caught.value)
    assert isinstance(caught.value, (BadBundleError, UnsupportedOpError))


def test_all_unsupported_nodes_are_listed_with_their_source() -> None:
    data = good_graph()
    for i, node in enumerate(data["nodes"]):
        node["op"] = f"mystery{i}"
        node["source"] = {"file": "model.py", "line": 10 + i, "code": "y = mystery(x)"}
    with pytest.raises(UnsupportedOpError) as caught:
        check(data)
    for words in ("2 operations", "mystery0", "mystery1", "model.py:10", "model.py:11"):
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"), [row[1:] for row in MANIFESTS], ids=[r[0] for r in MANIFESTS]
)
def test_a_bad_manifest_is_refused(change: Change, words: str) -> None:
    data = good_manifest()
    change(data)
    with pytest.raises(BadBundleError) as caught:
        Manifest.from_json(data)
    assert words in str(caught.value)


def test_the_good_manifest_round_trips() -> None:
    manifest = Manifest.from_json(good_manifest())
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"S": 3}, "'pos' has no value"),
        ({"S": 17, "pos": 0}, "outside its range 1..16"),
        ({"S": 0, "pos": 0}, "outside its range"),
        ({"S": 2, "pos": 31}, "(S + pos) = 33 exceeds 32"),
        ({"S": 2, "pos": 0, "T": 1}, "unknown symbols"),
        ({"S": True, "pos": 0}, "expected an integer"),
        ({"S": 2, "pos": 2**31}, "outside its range"),
    ],
)
def test_a_step_out_of_range_is_refused(values: dict[str, int], words: str) -> None:
    with pytest.raises(InputError) as caught:
        check_step(Graph.from_json(good_graph()), values)
    assert words in str(caught.value)


def test_a_step_that_fills_the_context_exactly_is_taken() -> None:
    check_step(Graph.from_json(good_graph()), {"S": 16, "pos": 16})


def test_index_limits_follow_ids_through_views() -> None:
    data = good_graph()
    data["values"] += [
        {"name": "ids", "dtype": "i32", "shape": [1, "S"]},
        {"name": "flat", "dtype": "i32", "shape": ["S"]},
        {"name": "rows", "dtype": "f32", "shape": ["S", 8]},
        {"name": "table", "dtype": "f32", "shape": [50, 8]},
    ]
    data["inputs"].append({"name": "ids", "value": "ids"})
    data["constants"].append({"value": "table", "parts": []})
    data["nodes"] += [
        {"name": "c", "op": "view", "inputs": ["ids"], "outputs": ["flat"]},
        {"name": "d", "op": "embedding", "inputs": ["flat", "table"], "outputs": ["rows"]},
    ]
    assert index_limits(Graph.from_json(data)) == {"ids": 50}


def open_bundle(files: dict[str, bytes]) -> Bundle:
    async def read(path: str) -> bytes:
        return files[path]

    return asyncio.run(Bundle.open(read))


def bundle_files() -> dict[str, bytes]:
    graph = json.dumps(good_graph()).encode()
    manifest = good_manifest()
    manifest["files"] = [
        {
            "path": "graph.json",
            "size_bytes": len(graph),
            "sha256": hashlib.sha256(graph).hexdigest(),
        },
        {"path": "weights-00001.bin", "size_bytes": 1024, "sha256": "00" * 32},
    ]
    return {"graph.json": graph, "manifest.json": json.dumps(manifest).encode()}


def test_a_good_bundle_opens() -> None:
    assert open_bundle(bundle_files()).graph == Graph.from_json(good_graph())


def test_an_altered_file_is_named_with_both_hashes() -> None:
    files = bundle_files()
    files["graph.json"] = files["graph.json"].replace(b'"S"', b'"T"')
    with pytest.raises(
        IntegrityError, match=r"graph.json has sha256 \w{64}, its manifest says \w{64}"
    ):
        open_bundle(files)


def test_a_truncated_file_is_named_with_both_sizes() -> None:
    files = bundle_files()
    whole = len(files["graph.json"])
    files["graph.json"] = files["graph.json"][:-1]
    with pytest.raises(IntegrityError, match=f"has {whole - 1} bytes, its manifest says {whole}"):
        open_bundle(files)


def test_a_manifest_that_is_no_json_is_refused() -> None:
    with pytest.raises(BadBundleError, match="not JSON"):
        open_bundle({"manifest.json": b"<html>not found</html>"})
