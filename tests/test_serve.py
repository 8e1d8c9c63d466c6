"""The command line of serve.py: what it prints, and its exit codes."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from exporter import profiling
from exporter.commands import build_parser, main
from exporter.hosts.server import Server

ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "/no/such", "--chat", "hi"], "is not a bundle"),
        (["bench", "/no/such"], "is not a bundle"),
        (["bench", "{toy}", "--decode", "0"], "at least 1"),
    ],
)
def test_user_errors_exit_with_2_and_a_hint(
    words: list[str], message: str, toys: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.format(toy=toys / "first") for word in words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error


@pytest.mark.parametrize(
    "words",
    [
        ["run", "x"],
        ["run", "x", "--prompt", "a", "--chat", "b"],
        ["run", "x", "--ids", "1,b"],
        ["run", "x", "--chat", "a", "--options", "[1]"],
        ["run", "x", "--chat", "a", "--host", "safari"],
    ],
)
def test_a_malformed_command_line_exits_with_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2


def test_stop_strings_follow_each_other_or_repeat_the_flag() -> None:
    words = ["run", "DIR", "--chat", "a"]
    for stops in (["--stop", "a", "b"], ["--stop", "a", "--stop", "b"]):
        assert build_parser().parse_args([*words, *stops, "--json"]).stop == ["a", "b"]


def test_a_port_in_use_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        assert main(["--port", str(server.server_port)]) == 2
    assert f"--port {server.server_port + 1}" in capsys.readouterr().err


def test_serving_does_not_import_torch() -> None:
    code = "import sys, exporter.commands; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.gpu
def test_run_prints_one_json_document(
    toys: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", str(toys / "first"), "--chat", "hi", "--max-tokens", "3", "--json"]
    assert main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {
        *("prompt_ids", "ids", "text", "finish_reason", "timings", "adapter", "report")
    }
    assert (len(answer["ids"]), answer["finish_reason"]) == (3, "length")
    assert answer["text"].startswith("**Paris** is")


@pytest.mark.gpu
def test_run_prints_text_as_it_comes_and_stops_at_a_stop_string(
    toys: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(toys / "first"), "--chat", "hi", "--stop", " of"]) == 0
    assert capsys.readouterr().out == "**Paris** is the capital\n"


@pytest.mark.gpu
@pytest.mark.parametrize("words", [["--ids", "999999"], ["--ids", ""], ["--prompt", ""]])
def test_bad_prompts_are_user_errors(
    toys: pathlib.Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(toys / "first"), *words]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.gpu
def test_bench_reports_its_parts_apart(
    toys: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--prompt-tokens", "8", "--decode", "4", "--repeat", "2", "--profile", "--json"]
    assert main(["bench", str(toys / "third"), *words]) == 0
    numbers = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"boot_ms", "weights_ms", "compile_ms", "total_ms"} <= set(numbers["load"])
    assert numbers["prefill"]["tokens"] == 8
    assert {"median_ms", "p90_ms", "tok_s"} <= set(numbers["decode"])
    assert numbers["dispatches_per_token"] == 5, "look up, count, cut, and two to sample"
    assert 0 < numbers["js_calls_per_token"] <= 10
    assert numbers["adapter"]["vendor"]
    assert "Chrome" in numbers["versions"]["browser"]
    assert {"tabfire", "commit", "python", "pyodide"} <= set(numbers["versions"])
    for name, tokens in (("prefill", 8), ("decode", 1)):
        step = numbers["profile"][name]
        assert step["tokens"] == tokens
        names = {kernel["kernel"] for kernel in step["kernels"]}
        assert "index_select" in names
        assert any(name.startswith("sample_") for name in names)
        assert sum(kernel["dispatches"] for kernel in step["kernels"]) == step["dispatches"] >= 4


def test_the_table_of_a_profile_holds_every_kernel() -> None:
    def kernel(name: str, dispatches: int, time_ms: float) -> dict[str, object]:
        return {"kernel": name, "dispatches": dispatches, "time_ms": time_ms, "share": time_ms / 4}

    kernels = [kernel("linear_gemv", 121, 3.0), kernel("argmax", 1, 1.0)]
    step = {"tokens": 1, "input_pos": 8, "dispatches": 122, "time_ms": 4.0, "kernels": kernels}
    lines = profiling.table("decode", step).splitlines()
    assert lines[0] == "decode: 1 tokens at 8, 122 dispatches, 4.00 ms of GPU time"
    assert lines[2].split() == ["linear_gemv", "121", "3000", "75.0", "%"]
    assert lines[3].split() == ["argmax", "1", "1000", "25.0", "%"]
