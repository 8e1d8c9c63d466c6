"""`verify` and the command line: verdicts, exit codes, up-to-date checks; no host is started.

Input:  golden steps and answers made up here; a tiny checkpoint. Output: none.
Way of the data: `exporter.verify`, `exporter.cli` and `exporter.stamp`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from exporter import cli
from exporter.bundle import read_manifest, write_bundle
from exporter.golden import GoldenStep
from exporter.models import load_checkpoint
from exporter.stamp import is_current, make_stamp
from exporter.verify import Verdict, compare, verify
from tests.checkpoints import TINY, make_weights, write_huggingface
from tests.test_bundle import graph_of

WANT = torch.tensor([0.0, 1.0, -1000.0])


def step(reset: bool = False, name: str = "s") -> GoldenStep:
    return GoldenStep({"x": torch.tensor([1])}, {"S": 1}, {"y": WANT}, reset, 1e-3, 1e-3, name)


@pytest.mark.parametrize(
    ("found", "passed"),
    [
        ([0.0, 1.0, -1000.0], True),
        ([0.0009, 1.0009, -1000.9], True),
        ([0.0011, 1.0, -1000.0], False),
        ([0.0, 1.0, -1001.1], False),
        ([math.nan, 1.0, -1000.0], False),
        ([0.0, 1.0, -math.inf], False),
        ([0.0, 1.0], False),
        (None, False),
    ],
    ids=str,
)
def test_verdicts(found: list[float] | None, passed: bool) -> None:
    answer = None if found is None else np.array(found, dtype=np.float32)
    assert compare(step(), "y", answer, WANT).passed is passed


def test_a_tolerance_of_zero_takes_exact_answers_only() -> None:
    exact = GoldenStep({}, {}, {"y": WANT}, False, 0.0, 0.0)
    assert compare(exact, "y", WANT.numpy(), WANT).passed
    assert not compare(exact, "y", np.nextafter(WANT.numpy(), 2), WANT).passed


def bundle_with(folder: Path, steps: Sequence[GoldenStep]) -> Path:
    write_bundle(folder, graph_of(), {}, golden=steps)
    return folder


def test_steps_share_a_session_up_to_a_reset(tmp_path: Path) -> None:
    calls: list[int] = []

    def run(folder: Path, steps: list[dict[str, Any]], *, host: str) -> list[dict[str, Any]]:
        assert host == "node"
        calls.append(len(steps))
        return [{"y": WANT.numpy() + (0.5 if len(calls) == 2 else 0.0)} for _ in steps]

    folder = bundle_with(tmp_path / "m", [step(True), step(), step(True), step(), step()])
    verdicts = list(verify(folder, host="node", run=run))
    assert calls == [2, 3]
    assert [v.passed for v in verdicts] == [True, True, False, False, False]
    assert "MISS" in str(verdicts[-1])
    assert "worst error 0.5" in str(verdicts[-1])


@pytest.mark.parametrize(("ratio", "code"), [(0.5, 0), (1.5, 1), (math.inf, 1)])
def test_exit_code_of_verify(
    ratio: float, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "exporter.verify.verify", lambda *_, **__: [Verdict("s", "y", {}, 1.0, ratio)]
    )
    assert cli.main(["verify", str(tmp_path)]) == code


def test_errors_are_told_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert "hint: " in told
    assert cli.main(["llama", str(tmp_path / "no.gguf"), "-o", str(tmp_path / "m")]) == 2
    assert "does not exist" in capsys.readouterr().err
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    assert cli.main(["llama", str(tmp_path / "bad.gguf"), "-o", str(tmp_path / "m")]) == 2
    assert "ends inside its header" in capsys.readouterr().err
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["llama", "x"],
        ["llama", "x", "-o", "y", "--max-context", "0"],
        ["verify", "x", "--host", "moon"],
        ["fly"],
        [],
    ],
    ids=str,
)
def test_bad_arguments_exit_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(words)
    assert exit_info.value.code == 2
    assert "usage: python -m exporter" in capsys.readouterr().err


def test_stamp_follows_model_and_arguments(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("1")
    stamp = make_stamp(model, {"max_context": 8})
    assert make_stamp(model, {"max_context": 8}) == stamp
    assert make_stamp(model, {"max_context": 9}) != stamp
    write_bundle(
        tmp_path / "m", graph_of(w=("f32", (1,))), {"w": torch.ones(1)}, exporter={"stamp": stamp}
    )
    assert is_current(tmp_path / "m", stamp)
    (model / "config.json").write_text("2")
    assert not is_current(tmp_path / "m", make_stamp(model, {"max_context": 8}))
    (tmp_path / "m" / "weights-00001.bin").write_bytes(b"")
    assert not is_current(tmp_path / "m", stamp)
    assert not is_current(tmp_path / "nothing", stamp)


def test_golden_steps_fit_the_model(tmp_path: Path) -> None:
    write_huggingface(tmp_path, TINY, make_weights(TINY, 0))
    for context, prefill, counts in (
        (32, 8, [5, 1, 1, 7, 3]),
        (32, 2, [2, 1, 1, 2, 2]),
        (6, 6, [5, 1]),
    ):
        steps = cli.golden_steps(load_checkpoint(tmp_path, max_context=context), prefill)
        assert [s["symbols"]["S"] for s in steps] == counts
        assert [s["symbols"]["input_pos"] for s in steps] == np.cumsum([0, *counts])[:-1].tolist()
        assert [s["reset"] for s in steps] == [True] + [False] * (len(steps) - 1)
        assert all(
            s["symbols"]["L"] <= s["symbols"]["S"] == s["inputs"]["tokens"].shape[1] for s in steps
        )


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.parametrize(("context", "prefill"), [(8, 3)])
def test_a_checkpoint_becomes_a_bundle(context: int, prefill: int, tmp_path: Path) -> None:
    """The least sizes there are; what the bundle answers is tested where a host is."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    sizes = replace(TINY, layers=1)
    write_huggingface(folder, sizes, make_weights(sizes, 0))
    words = ["llama", str(folder), "-o", str(tmp_path / "m")]
    words += ["--max-context", str(context), "--max-prefill", str(prefill)]
    assert cli.main(words) == 0
    first = read_manifest(tmp_path / "m")
    assert {"graph.json", "tokenizer.json", "golden/steps.json", "weights-00001.bin"} <= set(
        first.files
    )
    assert first.model["max_context"] == context
    before = (tmp_path / "m" / "manifest.json").stat().st_mtime_ns
    assert cli.main([*words, "--if-stale"]) == 0
    assert (tmp_path / "m" / "manifest.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(("flag", "value"), [("--max-context", "7"), ("--max-prefill", "2")])
def test_sizes_that_cannot_stay_symbolic_are_refused(
    flag: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_huggingface(tmp_path, TINY, make_weights(TINY, 0))
    assert cli.main(["llama", str(tmp_path), "-o", str(tmp_path / "m"), flag, value]) == 2
    assert f"{flag} is {value}" in capsys.readouterr().err
