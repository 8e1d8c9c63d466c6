"""serve.py as a person uses it: every flag of `run`, its JSON, `bench`, and what a mistake is told.

Malformed command lines and a port in use are in tests/test_serve.py. The toy model says the words
of `toy.REPLY`, one a token, after "<|assistant|>".
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from exporter.commands import main
from tests import damage, real_model, toy

ROOT = pathlib.Path(__file__).parent.parent
CHAT_TEXT = "<|user|>hi<|im_end|><|assistant|>"
FIELDS = {"prompt_ids", "ids", "text", "finish_reason", "timings", "adapter", "report"}
Ask: TypeAlias = "Callable[..., dict[str, Any]]"
Fail: TypeAlias = "Callable[..., str]"


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """`run DIR WORDS --json`; gives the document it prints."""

    def run(folder: pathlib.Path, *words: str) -> dict[str, Any]:
        code = main(["run", str(folder), *words, "--json"])
        printed = capsys.readouterr()
        assert (code, printed.err) == (0, "")
        answer: dict[str, Any] = json.loads(printed.out)
        return answer

    return run


@pytest.fixture
def fail(capsys: pytest.CaptureFixture[str]) -> Fail:
    """`run DIR WORDS --json`, which is to exit with 2; gives what it tells."""

    def run(folder: pathlib.Path, *words: str) -> str:
        code = main(["run", str(folder), *words, "--json"])
        printed = capsys.readouterr()
        assert (code, printed.out) == (2, "")
        assert printed.err.startswith("error: ")
        return printed.err

    return run


def serve(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run serve.py as a process of its own."""
    return subprocess.run(
        [sys.executable, "serve.py", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


# -- run


@pytest.mark.gpu
def test_a_process_prints_one_document_and_exits_with_0(toys: pathlib.Path) -> None:
    done = serve("run", str(toys / "first"), "--chat", "hi", "--max-tokens", "4", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    [line] = done.stdout.splitlines()
    answer = json.loads(line)
    assert set(answer) == FIELDS
    assert all(isinstance(i, int) for i in answer["prompt_ids"] + answer["ids"])
    assert {
        "prompt_tokens",
        "generated_tokens",
        "prefill_ms",
        "decode_ms",
        "first_token_ms",
    } <= set(answer["timings"])
    assert answer["timings"]["generated_tokens"] == len(answer["ids"]) == 4
    assert {"vendor", "architecture", "features", "limits"} <= set(answer["adapter"])
    assert {"programs", "memory", "options", "pipelines", "timings"} <= set(answer["report"])
    routes = answer["report"]["programs"][0]["dispatches"][0]
    assert {"node", "kernel", "key", "reason"} <= set(routes)


@pytest.mark.gpu
def test_chat_prompt_and_ids_are_three_spellings_of_one_prompt(
    toys: pathlib.Path, ask: Ask
) -> None:
    chat = ask(toys / "first", "--chat", "hi")
    text = ask(toys / "first", "--prompt", CHAT_TEXT)
    ids = ask(toys / "first", "--ids", ",".join(map(str, chat["prompt_ids"])))
    assert chat["prompt_ids"] == text["prompt_ids"] == ids["prompt_ids"]
    assert chat["ids"] == text["ids"] == ids["ids"]
    assert chat["text"].replace("\u200b", "") == toy.REPLY
    assert chat["finish_reason"] == text["finish_reason"] == "stop"


@pytest.mark.gpu
def test_special_tokens_in_a_message_are_text_and_in_a_prompt_they_count(
    toys: pathlib.Path, ask: Ask
) -> None:
    chat = ask(toys / "first", "--chat", "<|im_end|>", "--max-tokens", "1")
    text = ask(toys / "first", "--prompt", "<|im_end|>", "--max-tokens", "1")
    assert len(text["prompt_ids"]) == 1
    assert chat["prompt_ids"].count(text["prompt_ids"][0]) == 1, "only the template's own"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("stops", "text"),
    [
        (["ital of"], "**Paris** is the cap"),
        (["l of F"], "**Paris** is the capita"),
        (["France", "the"], "**Paris** is "),
        (["*"], ""),
        (["no such"], toy.REPLY),
    ],
    ids=str,
)
def test_stop_strings_end_a_reply_wherever_tokens_divide_them(
    stops: list[str], text: str, toys: pathlib.Path, ask: Ask
) -> None:
    words = [word for stop in stops for word in ("--stop", stop)]
    answer = ask(toys / "first", "--chat", "hi", *words)
    assert answer["text"].replace("\u200b", "") == text
    assert answer["finish_reason"] == "stop"


@pytest.mark.gpu
def test_a_seed_gives_the_same_reply_and_no_seed_another(toys: pathlib.Path, ask: Ask) -> None:
    hot = ["--chat", "hi", "--temperature", "4", "--max-tokens", "24"]
    seven, again, eight = (
        ask(toys / "third", *hot, "--seed", seed)["ids"] for seed in ("7", "7", "8")
    )
    free = [ask(toys / "third", *hot)["ids"] for _ in range(2)]
    assert seven == again
    assert seven != eight
    assert free[0] != free[1]


@pytest.mark.gpu
@pytest.mark.parametrize("flag", [("--top-k", "1"), ("--top-p", "1e-6"), ("--min-p", "1")], ids=str)
def test_filters_that_leave_one_token_are_greedy(
    flag: tuple[str, str], toys: pathlib.Path, ask: Ask
) -> None:
    hot = ask(toys / "first", "--chat", "hi", "--temperature", "5", *flag)
    assert hot["text"].replace("\u200b", "") == toy.REPLY


@pytest.mark.gpu
def test_a_repetition_penalty_changes_what_repeats(toys: pathlib.Path, ask: Ask) -> None:
    words = ["--prompt", "L", "--max-tokens", "4"]
    assert ask(toys / "third", *words)["text"] == "LLLL"
    assert "LL" not in ask(toys / "third", *words, "--repetition-penalty", "3")["text"]


@pytest.mark.gpu
def test_session_options_reach_the_report(toys: pathlib.Path, ask: Ask) -> None:
    chosen = '{"replay": "python", "scratch_pool": false}'
    answer = ask(toys / "first", "--chat", "hi", "--options", chosen)
    assert answer["report"]["options"]["replay"] == "python"
    assert answer["report"]["options"]["scratch_pool"] is False
    assert answer["text"].replace("\u200b", "") == toy.REPLY


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--options", '{"speed": 9}'], ["unknown option 'speed'", "the options are", "replay"]),
        (["--options", '{"replay": "fast"}'], ["replay", "'fast'", "python"]),
        (["--options", '{"kv_dtype": "f16"}'], ["shader-f16", "prefer"]),
        (["--temperature", "-1"], ["temperature", "-1"]),
        (["--top-p", "2"], ["top_p", "2"]),
        (["--top-k", "-3"], ["top_k", "-3"]),
        (["--min-p", "1.5"], ["min_p", "1.5"]),
        (["--repetition-penalty", "0"], ["repetition_penalty", "0"]),
        (["--max-tokens", "-1"], ["max_tokens", "-1"]),
        (["--stop", ""], ["stop"]),
    ],
    ids=str,
)
def test_options_are_refused_by_name(
    words: list[str], told: list[str], toys: pathlib.Path, fail: Fail
) -> None:
    error = fail(toys / "first", "--chat", "hi", *words)
    assert [word for word in told if word not in error] == []


@pytest.mark.gpu
def test_prompts_are_refused_with_the_numbers(toys: pathlib.Path, fail: Fail) -> None:
    folder = toys / "first"
    too_long = fail(folder, "--ids", ",".join(["65"] * toy.CONTEXT))
    assert f"{toy.CONTEXT} tokens" in too_long
    assert f"takes {toy.CONTEXT}" in too_long
    outside = fail(folder, "--ids", "65,100000")
    assert "token 1" in outside
    assert "100000" in outside
    assert "vocabulary" in outside
    assert "-1" in fail(folder, "--ids", "-1")
    assert "empty" in fail(folder, "--prompt", "")


@pytest.mark.gpu
def test_a_reply_may_fill_the_context_to_its_end(toys: pathlib.Path, ask: Ask) -> None:
    answer = ask(toys / "third", "--ids", ",".join(["65"] * (toy.CONTEXT - 2)))
    assert (len(answer["ids"]), answer["finish_reason"]) == (2, "length")


# -- bundles that cannot be loaded


@pytest.mark.gpu
@pytest.mark.parametrize("change", ["altered", "truncated"])
def test_a_damaged_shard_is_named_with_its_hash_or_size(
    change: str, toys: pathlib.Path, tmp_path: pathlib.Path, fail: Fail, ask: Ask
) -> None:
    folder = damage.copy_bundle(toys / "first", tmp_path / "m")
    shard = folder / damage.SHARD
    manifest = json.loads((folder / "manifest.json").read_text())
    [stated] = [file for file in manifest["files"] if file["path"] == damage.SHARD]
    if change == "altered":
        damage.flip_byte(shard, shard.stat().st_size - 1)
    else:
        damage.cut_short(shard)
    error = fail(folder, "--chat", "hi")
    assert damage.SHARD in error
    assert str(stated["sha256" if change == "altered" else "size_bytes"]) in error
    assert "export the bundle again" in error
    assert ask(toys / "first", "--chat", "hi", "--max-tokens", "1")["finish_reason"] == "length"


@pytest.mark.gpu
def test_a_bundle_of_another_version_is_refused(
    toys: pathlib.Path, tmp_path: pathlib.Path, fail: Fail
) -> None:
    folder = damage.copy_bundle(toys / "first", tmp_path / "m")
    damage.edit_json(folder / "manifest.json", lambda manifest: manifest.update(version=7))
    error = fail(folder, "--chat", "hi")
    assert "version" in error
    assert "7" in error


@pytest.mark.gpu
def test_a_bundle_that_is_no_language_model_is_refused(counter: pathlib.Path, fail: Fail) -> None:
    assert "no language model" in fail(counter, "--prompt", "a")


def test_a_folder_that_is_no_bundle_says_how_to_make_one(
    tmp_path: pathlib.Path, fail: Fail
) -> None:
    error = fail(tmp_path, "--chat", "hi")
    assert str(tmp_path) in error
    assert "python -m exporter" in error


# -- hosts and the server


def test_node_without_an_adapter_says_what_to_install(toys: pathlib.Path) -> None:
    missing = {"VK_ICD_FILENAMES": "/no/such.json", "VK_DRIVER_FILES": "/no/such.json"}
    done = serve("run", str(toys / "first"), "--chat", "hi", "--host", "node", "--json", **missing)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: Node: ")
    assert "adapter" in done.stderr
    assert "VK_ICD_FILENAMES" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_flag_or_command_shows_the_usage() -> None:
    for words in (["run", "x", "--chat", "a", "--fast"], ["fly"]):
        done = serve(*words)
        assert done.returncode == 2
        assert "usage: serve.py" in done.stderr


def test_serving_prints_its_address_and_ends_with_ctrl_c(toys: pathlib.Path) -> None:
    words = [sys.executable, "-u", "serve.py", "--port", "0", "--models", str(toys)]
    # Where the tests run in the background SIGINT is ignored, and a child would inherit that.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, text=True, preexec_fn=heed
    ) as process:
        try:
            assert process.stdout is not None
            first, second = process.stdout.readline(), process.stdout.readline()
            origin = first.split()[2]
            with urllib.request.urlopen(f"{origin}models/index.json") as reply:
                models = json.load(reply)["models"]
            process.send_signal(signal.SIGINT)
            code = process.wait(timeout=20)
        finally:
            process.kill()
    assert [model["id"] for model in models] == ["first", "second", "third"]
    assert "Reciter" in second
    assert code in (0, 130)


# -- the real model


@pytest.mark.gpu
@pytest.mark.model
def test_bench_of_the_real_model(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--prompt-tokens", "32", "--decode", "8", "--repeat", "1"]
    assert main(["bench", str(real_model.bundle()), *words, "--json"]) == 0
    out = capsys.readouterr().out
    numbers = json.loads(out.splitlines()[-1])
    print(out)
    assert len(out.splitlines()) == 1
    assert numbers["prefill"]["tokens"] == 32
    assert numbers["decode"]["tokens"] >= 7
    for part in ("load", "prefill", "decode", "memory", "versions", "adapter"):
        assert numbers[part], part
    assert {"boot_ms", "compile_ms", "weights_ms", "total_ms"} <= set(numbers["load"])
    assert numbers["dispatches_per_token"] <= 14 * 30
    assert 0 < numbers["js_calls_per_token"] <= 10
    assert numbers["heap_bytes"] < 150e6, "weights must not pass through the Python heap"
