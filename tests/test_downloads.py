"""How a bundle's files come: early, checked, kept for a load without a network; in Node, without a browser.

The network and the Cache API are those of tests/node_downloads.mjs, the code is web/ as the page
has it.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
from typing import Any

import pytest

from tests.text_backend import bpe_data

HERE = pathlib.Path(__file__).parent
SHARDS = [40_003, 30_001, 20_000, 5_002, 64]
FIRST = "weights-00001.bin"
SHARD_FILES = {f"weights-0000{i + 1}.bin" for i in range(len(SHARDS))}


def loads(*loads: dict[str, Any], tokenizer: Any = None) -> list[dict[str, Any]]:
    """Return what came of loading the same bundle once for each of `loads`."""
    program = shutil.which("node")
    assert program, "Node is required: install Node 20 or later"
    done = subprocess.run(
        [program, str(HERE / "node_downloads.mjs")],
        input=json.dumps({"shard_bytes": SHARDS, "tokenizer": tokenizer, "loads": loads}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    results: list[dict[str, Any]] = json.loads(done.stdout)
    return results


@pytest.mark.parametrize("python_ms", [0, 200])
def test_files_come_once_whether_python_is_late_or_not(python_ms: int) -> None:
    [load] = loads({"python_ms": python_ms})
    assert (load["error"], load["right"]) == ("", True)
    assert sorted(load["fetched"]) == sorted({"manifest.json", "graph.json"} | SHARD_FILES)
    assert load["modes"] == ["no-store"]
    assert load["left"] == 0


def test_progress_never_passes_its_total_and_reaches_it() -> None:
    for load in loads({}, {"python_ms": 100}, {"kept": "altered"}):
        for shares in (load["progress"], load["upload"]):
            assert max(shares) == 1
            assert shares[-1] == 1
            assert min(shares) >= 0


def test_the_second_load_asks_for_the_manifest_only_and_a_third_for_nothing() -> None:
    first, second, offline = loads({}, {}, {"offline": True})
    assert len(first["fetched"]) == len(SHARDS) + 2
    assert second["fetched"] == offline["fetched"] == ["manifest.json"]
    assert (second["error"], second["right"]) == (offline["error"], offline["right"]) == ("", True)


def test_memory_when_warm_is_that_when_cold() -> None:
    cold, warm = loads({}, {})
    assert 0 < warm["peak"] <= 1.1 * cold["peak"] <= 1.1 * (sum(SHARDS) + 4 * len(SHARDS))


@pytest.mark.parametrize("kept", ["altered", "short", "long"])
@pytest.mark.parametrize("python_ms", [0, 200])
def test_a_copy_that_was_altered_is_fetched_again(kept: str, python_ms: int) -> None:
    _, load, after = loads({}, {"kept": kept, "python_ms": python_ms}, {})
    assert (load["error"], load["right"]) == ("", True)
    assert sorted(load["fetched"]) == ["manifest.json", FIRST]
    assert after["fetched"] == ["manifest.json"]


def test_an_altered_copy_without_a_network_is_an_error() -> None:
    _, load = loads({}, {"kept": "altered", "offline": True})
    assert load["error"].startswith("bad_bundle|cannot fetch")
    assert load["left"] == 0


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("altered", f"integrity|{FIRST} has sha256"),
        ("long", f"integrity|{FIRST} is longer"),
        ("short", f"integrity|{FIRST} is truncated"),
        ("missing", f"bad_bundle|{FIRST}: HTTP status 404"),
    ],
)
@pytest.mark.parametrize("python_ms", [0, 200])
def test_a_bad_file_fails_the_load_and_is_not_kept(
    fault: str, message: str, python_ms: int
) -> None:
    bad, mended = loads({"fault": fault, "python_ms": python_ms}, {})
    assert bad["error"].startswith(message)
    assert bad["left"] == 0
    assert not any(name.startswith("manifest/") for name in bad["names"])
    assert (mended["error"], mended["right"]) == ("", True)
    assert FIRST in mended["fetched"]


@pytest.mark.parametrize("store", [False, "full"])
def test_without_room_or_without_a_store_every_load_uses_the_network(store: bool | str) -> None:
    first, second = loads({"store": store}, {"store": store})
    assert (first["error"], second["error"], second["right"]) == ("", "", True)
    assert first["names"] == second["names"] == []
    assert sorted(first["fetched"]) == sorted(second["fetched"])


def test_what_no_manifest_lists_any_more_is_dropped() -> None:
    first, second = loads({}, {"revised": True})
    assert second["fetched"] == ["manifest.json", "graph.json"]
    assert len(second["names"]) == len(first["names"])
    assert len(set(first["names"]) - set(second["names"])) == 1


@pytest.mark.parametrize("early", [False, True])
def test_a_tokenizer_is_made_once_of_bytes_that_were_checked(early: bool) -> None:
    load = {"early": early}
    first, second, mended = loads(load, load, {**load, "kept": ""}, tokenizer=bpe_data())
    assert first["ids"] == second["ids"] == mended["ids"] == [97, 98]
    assert first["fetched"].count("tokenizer.json") == 1
    assert second["fetched"] == ["manifest.json"]


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("altered", "integrity|tokenizer.json has sha256"),
        ("long", "integrity|tokenizer.json has"),
        ("missing", "bad_bundle|http://models.test/m/tokenizer.json: HTTP status 404"),
    ],
)
def test_a_bad_tokenizer_fails_the_load_however_early_it_was_asked_for(
    early: bool, fault: str, message: str
) -> None:
    bad, mended = loads({"early": early, "fault": fault}, {"early": early}, tokenizer=bpe_data())
    assert bad["error"].startswith(message)
    assert (mended["error"], mended["ids"]) == ("", [97, 98])
