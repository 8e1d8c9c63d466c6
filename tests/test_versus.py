"""The comparison without a browser: medians, ratios, faults and the table, on messages written by hand; its server."""

from __future__ import annotations

import json
import pathlib
import urllib.error
import urllib.request
from typing import Any

import pytest

from bench.table import Visit, faults, ratios, render, summarise
from bench.versus import cases, parser, take_ids
from bench.visits import BenchServer


def load(ms: float) -> dict[str, Any]:
    return {"kind": "load", "load_ms": ms}


def sample(
    prompt: int, first_ms: float | None, token_ms: float | None = None, warm: bool = True
) -> dict[str, Any]:
    return {
        "kind": "sample",
        "warm": warm,
        "prompt": prompt,
        "first_ms": first_ms,
        "token_ms": token_ms,
    }


VISITS = [
    Visit("tabfire", 0, True, [load(900), {"kind": "answer", "first_ms": 70.0}, {"kind": "done"}]),
    Visit(
        "tabfire",
        0,
        False,
        [load(500), sample(128, 999.0, 99.0, warm=False), sample(128, 10.0, 2.0), sample(5, 4.0)],
    ),
    Visit("tabfire", 1, False, [load(700), sample(128, 30.0, 4.0), sample(128, 20.0, 3.0)]),
    Visit("wllama", 0, True, [load(1800), {"kind": "answer", "first_ms": None}]),
    Visit(
        "wllama",
        0,
        False,
        [load(600), sample(128, 40.0, 30.0), {"kind": "error", "message": "lost"}],
    ),
]

MEDIANS = [
    ("tabfire", "load, cold", 900, None),
    ("tabfire", "load, warm", 600, None),
    ("tabfire", "first token of all, cold", 70, None),
    ("tabfire", "prefill 128", 20, 6400),
    ("tabfire", "decode at 128", 3, 1000 / 3),
    ("tabfire", "first token, 5", 4, None),
    ("wllama", "decode at 128", 30, 1000 / 30),
]


@pytest.mark.parametrize(("engine", "row", "median_ms", "tok_s"), MEDIANS)
def test_median_of_warm_samples(
    engine: str, row: str, median_ms: float, tok_s: float | None
) -> None:
    entry = summarise(VISITS)[engine][row]
    assert entry["median_ms"] == median_ms
    assert entry["tok_s"] == (None if tok_s is None else pytest.approx(tok_s))


def test_ratio_is_the_peers_time_over_ours() -> None:
    assert ratios(summarise(VISITS), "tabfire") == {
        "wllama": {"load, cold": 2.0, "load, warm": 1.0, "prefill 128": 2.0, "decode at 128": 10.0}
    }


def test_what_an_engine_did_not_measure_is_absent() -> None:
    results = summarise(VISITS)
    assert "first token, 5" not in results["wllama"]
    assert "first token of all, cold" not in results["wllama"]
    assert "prefill 5" not in results["tabfire"], "five tokens are no prefill"


def test_faults_name_the_round() -> None:
    assert faults(VISITS) == {"wllama": ["round 0: lost"]}


def test_table_has_a_row_a_figure_and_dashes_for_gaps() -> None:
    lines = render(summarise(VISITS), ["tabfire", "wllama"], "tabfire").splitlines()
    cells = {line.split("  ")[0]: line.split() for line in lines[1:]}
    assert lines[0].split() == ["tabfire", "wllama", "tabfire", "/", "wllama"]
    assert cells["prefill 128"][-4:] == ["tok/s", "6400", "3200", "2.00x"]
    assert cells["first token, 5"][-3:] == ["4.0", "-", "-"]
    assert [line.split()[0] for line in lines[1:]] == [
        "load,",
        "load,",
        "first",
        "first",
        "prefill",
        "decode",
    ]


def test_an_engine_that_never_loaded_has_a_column_of_dashes() -> None:
    lines = render(summarise(VISITS[:2]), ["tabfire", "ort"], "tabfire").splitlines()
    assert all(line.split()[-2:] == ["-", "-"] for line in lines[1:])


CASES = [
    ([], {5: 1, 16: 1, 128: 40, 512: 1, 1000: 1, 1024: 40, 2000: 40}),
    (["--quick", "--tokens", "8"], {5: 1, 16: 1, 128: 8}),
    (["--context", "1024"], {5: 1, 16: 1, 128: 40, 512: 1}),
    (["--tokens", "49"], {5: 1, 16: 1, 128: 49, 512: 1, 1000: 1, 1024: 49}),
    (["--prompts", "16", "2000"], {16: 1, 2000: 40}),
]


@pytest.mark.parametrize(("words", "wanted"), CASES)
def test_prompt_and_reply_fit_the_context(words: list[str], wanted: dict[int, int]) -> None:
    arguments = parser().parse_args(["m.gguf", "--bundle", "b", *words])
    assert {case["prompt"]: case["tokens"] for case in cases(arguments)} == wanted


def test_ids_of_prompts_leave_the_messages() -> None:
    told = {"kind": "sample", "key": "16 0 0 0", "prompt_ids": [3, 4]}
    assert take_ids([Visit("tabfire", 0, False, [told, {"kind": "done"}])]) == {"16 0 0 0": [3, 4]}
    assert "prompt_ids" not in told


def read(url: str, body: bytes | None = None) -> tuple[bytes, Any]:
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=10) as answer:
        return answer.read(), answer.headers


def test_server_gives_plans_in_turn_and_takes_results(tmp_path: pathlib.Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"weights")
    with BenchServer({"model.gguf": tmp_path / "model.gguf"}) as server:
        root = f"{server.origin}/versus"
        server.plans = [{"visit": 1}, {"visit": 2}]
        assert [json.loads(read(f"{root}/plan")[0])["visit"] for _ in range(3)] == [1, 2, 2]
        read(f"{root}/result", b'{"visit": 1, "kind": "done"}')
        assert server.inbox.get(timeout=1) == {"visit": 1, "kind": "done"}
        assert read(f"{root}/files/model.gguf")[0] == b"weights"
        page, headers = read(f"{root}/page.html?engine=wllama")
        assert b"start.js" in page
        assert headers["Cross-Origin-Embedder-Policy"] == "require-corp"
        assert "blob:" in headers["Content-Security-Policy"], "wllama starts its worker from a blob"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            read(f"{root}/files/other")
