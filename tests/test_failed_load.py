"""Loads that fail and devices that go away: a typed error, nothing left, the next load answers.

All in one worker, through the host's `call`: what a page would go through without being reloaded.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from exporter.headless import Model, open_model
from exporter.hosts import handler
from exporter.hosts.chromium import ChromiumHost
from exporter.hosts.host import get_host
from exporter.run import run
from runtime_py.errors import (
    BadBundleError,
    ContextFullError,
    DeviceLostError,
    InputError,
    IntegrityError,
    InternalError,
    ShaderError,
    TabfireError,
)
from tests import damage
from tests.toy import CONTEXT

pytestmark = pytest.mark.gpu

X = np.arange(8, dtype=np.float32).reshape(1, 2, 4)
W = np.array([1, 2, 3, 4], np.float32)
Damage = Callable[[pathlib.Path], object]


def edit_graph(change: Callable[[dict[str, Any]], object]) -> Damage:
    """Return a damage that alters graph.json and states its new hash, as a bad exporter would."""

    def apply(folder: pathlib.Path) -> None:
        damage.edit_json(folder / "graph.json", change)
        damage.state_hashes(folder)

    return apply


def edit_manifest(change: Callable[[dict[str, Any]], object]) -> Damage:
    """Return a damage that alters manifest.json."""
    return lambda folder: damage.edit_json(folder / "manifest.json", change)


def make_cycle(graph: dict[str, Any]) -> None:
    """Let node `add` read what node `count` makes of its output."""
    by_name = {node["name"]: node for node in graph["nodes"]}
    by_name["add"]["inputs"] = ["x", "sum"]
    by_name["count"]["inputs"] = ["acc", "y"]


DAMAGES: dict[str, tuple[Damage, type[TabfireError], str]] = {
    "altered shard": (
        lambda folder: damage.flip_byte(folder / damage.SHARD, 1),
        IntegrityError,
        rf"{damage.SHARD} has sha256 [0-9a-f]{{64}}, its manifest says [0-9a-f]{{64}}",
    ),
    "truncated shard": (
        lambda folder: damage.cut_short(folder / damage.SHARD),
        IntegrityError,
        rf"{damage.SHARD} is truncated: \d+ bytes, its manifest says \d+",
    ),
    "missing shard": (
        lambda folder: (folder / damage.SHARD).unlink(),
        BadBundleError,
        rf"{damage.SHARD}: HTTP status 404",
    ),
    "altered graph": (
        lambda folder: damage.edit_json(folder / "graph.json", lambda graph: graph.clear()),
        IntegrityError,
        r"graph.json",
    ),
    "missing manifest": (
        lambda folder: (folder / "manifest.json").unlink(),
        BadBundleError,
        r"manifest.json: HTTP status 404",
    ),
    "manifest is no JSON": (
        lambda folder: (folder / "manifest.json").write_text("<html>"),
        BadBundleError,
        r"manifest.json",
    ),
    "unknown version": (
        edit_manifest(lambda manifest: manifest.update(version=99)),
        BadBundleError,
        r"version.*99",
    ),
    "cycle": (edit_graph(make_cycle), BadBundleError, r"'add' reads 'sum' .* a cycle"),
    "unknown op": (
        edit_graph(lambda graph: graph["nodes"][0].update(op="fly")),
        TabfireError,
        r"fly",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_failed_load_leaves_nothing_and_the_mended_bundle_loads(
    name: str, counter: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The same URL, in the same worker: nothing of the bad files may be kept."""
    apply, kind, message = DAMAGES[name]
    machine = get_host("chromium")
    folder = damage.copy_bundle(counter, tmp_path / "m")
    request = {"url": machine.mount(folder), "kind": "session"}
    apply(folder)
    before = machine.call("stats")[0]
    with pytest.raises(kind, match=message):
        machine.call("load", request)
    after = machine.call("stats")[0]
    assert after["loaded"] == before["loaded"]
    assert devices_left(after) == devices_left(before), "the failed load's device was not freed"
    damage.copy_bundle(counter, tmp_path / "good")
    for path in (tmp_path / "good").iterdir():
        path.replace(folder / path.name)
    [result] = run(folder, [{"inputs": {"x": X}, "symbols": {"S": 2}}])
    np.testing.assert_array_equal(result["y"], X + W)


def devices_left(stats: dict[str, Any]) -> int:
    """Return how many devices Python asked for and has not destroyed."""
    counts = stats["counts"]
    return int(counts["calls"].get("deviceFor", 0)) - int(counts["created"].get("destroy", 0))


def test_a_lost_device_is_an_error_and_loading_again_answers(toys: pathlib.Path) -> None:
    """Also while a reply is under way; the new load asks for a new adapter, as an adapter makes one
    device only."""
    host = get_host("chromium")
    request = {"url": host.mount(toys / "third")}
    handle = {"handle": host.call("load", request)[0]["handle"]}
    heard = 0

    def lose(event: dict[str, Any]) -> None:
        nonlocal heard
        heard += 1
        if heard == 3:
            host.notify("lose_devices")

    with pytest.raises(DeviceLostError, match="lost") as caught:
        host.call("generate", {**handle, "prompt": "L"}, on_event=lose)
    assert "load the model again" in caught.value.hint
    for method, params in (("logits", {"ids": [1]}), ("generate", {"prompt": "L"}), ("reset", {})):
        with pytest.raises(DeviceLostError):
            host.call(method, {**handle, **params})
    host.call("close", handle)
    again = {"handle": host.call("load", request)[0]["handle"]}
    answer, _ = host.call("generate", {**again, "prompt": "L", "options": {"max_tokens": 3}})
    host.call("close", again)
    assert answer["text"] == "LLL"
    assert host.call("stats")[0]["loaded"] == 0


def test_a_shader_that_does_not_compile_is_shown_with_line_source_and_key(
    host: ChromiumHost, counter: pathlib.Path, toys: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = damage.spoil_archive(
        "wgsl/binary.wgsl", "fn main(", "fn main() { let oops = nothing; }\nfn unused("
    )
    monkeypatch.setattr(handler, "build_archive", lambda: archive)
    with pytest.raises(ShaderError) as caught:
        host.call("load", {"url": host.mount(counter), "kind": "session"})
    message = caught.value.message
    found = re.search(r"(\d+):(\d+) error: .*nothing", message)
    assert found, message
    line, column = int(found[1]), int(found[2])
    [shown] = [row for row in message.splitlines() if row.startswith(f"{line:4} ")]
    assert shown[5 + column - 1 :].startswith("nothing")
    assert "binary" in message.splitlines()[0]
    assert host.call("stats")[0]["loaded"] == 0
    loaded, _ = host.call("load", {"url": host.mount(toys / "third")})
    asked = {"handle": loaded["handle"], "prompt": "L", "options": {"max_tokens": 2}}
    assert host.call("generate", asked)[0]["text"] == "LL"


@pytest.fixture
def model(toys: pathlib.Path) -> Iterator[Model]:
    """The reciter, whose logits after token i are row i of its table."""
    with open_model(toys / "first") as model:
        yield model


def rows(model: Model, ids: list[int], input_pos: int) -> Any:
    """Return the logits after each of `ids`."""
    asked = {**model_handle(model), "ids": ids, "input_pos": input_pos}
    return model.host.call("logits", asked)[1]["logits"]


def model_handle(model: Model) -> dict[str, int]:
    return {"handle": model.info["handle"]}


def test_overlapping_calls_take_turns(model: Model) -> None:
    """Each call stands on the one before it: the last is refused unless the others came first."""
    alone = rows(model, [1, 2, 3, 4, 5, 6], 0)
    model.host.notify("logits", {**model_handle(model), "ids": [1, 2, 3], "input_pos": 0})
    model.host.notify("logits", {**model_handle(model), "ids": [4], "input_pos": 3})
    model.host.notify("logits", {**model_handle(model), "ids": [5], "input_pos": 4})
    np.testing.assert_array_equal(rows(model, [6], 5), alone[5:])
    with pytest.raises(InputError, match="the cache holds 6 tokens"):
        rows(model, [1], 7)


def test_a_refused_call_does_not_disturb_the_next(model: Model) -> None:
    good = rows(model, [1, 2, 3], 0)
    for ids in ([], [10**6], [-1], [1.5]):
        with pytest.raises(InputError):
            rows(model, ids, 0)  # type: ignore[arg-type]
    np.testing.assert_array_equal(rows(model, [1, 2, 3], 0), good)


def test_a_step_past_the_context_is_refused(model: Model) -> None:
    """By the engine, which goes on where it was, and by the session below; with both numbers."""
    alone = rows(model, [1, 2, 3, 4], 0)
    with pytest.raises(ContextFullError, match=f"2 tokens at {CONTEXT - 1} .* {CONTEXT}"):
        rows(model, [1, 2], CONTEXT - 1)
    np.testing.assert_array_equal(rows(model, [4], 3), alone[3:])
    symbols = {"S": 2, "input_pos": CONTEXT - 1, "L": 1}
    tokens = {"tokens": np.array([[1, 2]], np.int32)}
    with pytest.raises(InputError, match=f"= {CONTEXT + 1} exceeds {CONTEXT}"):
        model.host.call("run", {**model_handle(model), "symbols": symbols}, tokens)
    np.testing.assert_array_equal(rows(model, [1, 2, 3, 4], 0), alone)


def test_what_the_device_says_of_a_buffer_ends_the_load_that_made_it(
    host: ChromiumHost, counter: pathlib.Path
) -> None:
    """It is heard late, when nothing else is left to do, but it is heard, and by that load alone."""
    request = {"url": host.mount(counter), "kind": "session"}
    host.call("spoil_buffer")
    with pytest.raises(InternalError, match="creating the weight and state buffers: "):
        host.call("load", request)
    assert host.call("stats")[0]["loaded"] == 0
    host.call("load", request)
    assert host.call("stats")[0]["loaded"] == 1
