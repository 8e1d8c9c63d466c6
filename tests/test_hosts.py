"""Hosts: finding a browser, driving the worker, arrays and errors on the way, crashes and timeouts."""

from __future__ import annotations

import os
import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from exporter.hosts import arrays, get_host
from exporter.hosts.browser import find_browser
from exporter.hosts.chromium import ChromiumHost, browser_flags
from exporter.hosts.host import error_from
from exporter.hosts.node import NodeHost
from exporter.run import run
from runtime_py import errors
from runtime_py.errors import BadBundleError, HostError, InputError, OptionError

X = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
W = np.array([1, 2, 3, 4], np.float32)


# -- without a browser


def executable(path: pathlib.Path) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_named_browser_wins(tmp_path: pathlib.Path) -> None:
    mine, other = executable(tmp_path / "mine"), executable(tmp_path / "bin/chromium")
    env = {"TABFIRE_CHROME": str(mine), "PATH": str(other.parent)}
    assert find_browser(env, "linux") == mine


def test_a_wrong_name_is_an_error_and_no_reason_to_take_another(tmp_path: pathlib.Path) -> None:
    executable(tmp_path / "chromium")
    with pytest.raises(HostError, match="no executable"):
        find_browser({"TABFIRE_CHROME": "/no/such", "PATH": str(tmp_path)}, "linux")


def test_canary_before_chrome_before_chromium(tmp_path: pathlib.Path) -> None:
    names = ["google-chrome-canary", "google-chrome", "chromium"]
    for name in names:
        executable(tmp_path / name)
    for name in names:
        assert find_browser({"PATH": str(tmp_path)}, "linux").name == name
        (tmp_path / name).unlink()


def test_playwrights_own_is_the_last_resort(tmp_path: pathlib.Path) -> None:
    chrome = executable(tmp_path / "chromium-1200/chrome-linux/chrome")
    env = {"PATH": "", "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path)}
    assert find_browser(env, "linux") == chrome


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_no_browser_lists_what_was_tried(tmp_path: pathlib.Path, platform: str) -> None:
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PROGRAMFILES": str(tmp_path)}
    with pytest.raises(HostError, match="no browser found") as caught:
        find_browser(env, platform)
    assert "hrome" in caught.value.message
    assert "TABFIRE_CHROME" in caught.value.hint


def test_flags_follow_the_environment() -> None:
    software = browser_flags({"TABFIRE_ADAPTER": "swiftshader"}, "linux", root=True)
    assert "--use-webgpu-adapter=swiftshader" in software
    assert "--no-sandbox" in software
    gpu = browser_flags(
        {"TABFIRE_ADAPTER": "gpu", "TABFIRE_CHROME_FLAGS": "--a --b='c d'"}, "linux", root=False
    )
    assert "--use-angle=vulkan" in gpu
    assert "--no-sandbox" not in gpu
    assert gpu[-2:] == ["--a", "--b=c d"]
    with pytest.raises(OptionError, match="TABFIRE_ADAPTER"):
        browser_flags({"TABFIRE_ADAPTER": "best"}, "linux")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint32"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5)])
def test_arrays_round_trip(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    described, blobs = arrays.pack({"a": array})
    back = arrays.unpack(described, {"a": bytearray(blobs["a"])})["a"]
    assert back.dtype == array.dtype
    assert back.shape == shape
    np.testing.assert_array_equal(back, array)


def test_integers_are_narrowed_or_refused() -> None:
    described, blobs = arrays.pack({"pos": np.int64(5), "mask": np.array([True, False])})
    assert described == {
        "pos": {"dtype": "i32", "shape": []},
        "mask": {"dtype": "u32", "shape": [2]},
    }
    assert bytes(blobs["pos"]) == b"\5\0\0\0"
    with pytest.raises(InputError, match="int32"):
        arrays.pack({"pos": np.int64(2**31)})
    with pytest.raises(InputError, match="float64"):
        arrays.pack({"x": np.zeros(1)})


def test_every_error_keeps_its_class_message_and_hint() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    for kind in (k for k in kinds if issubclass(k, errors.TabfireError)):
        error = error_from(kind("what", hint="do").to_dict())
        assert (type(error), error.message, error.hint) == (kind, "what", "do")
    assert type(error_from({"code": "new", "message": "m"})) is errors.InternalError


def test_unknown_host_and_missing_bundle(tmp_path: pathlib.Path) -> None:
    with pytest.raises(OptionError, match="unknown host"):
        get_host("safari")
    with pytest.raises(BadBundleError, match="no manifest"):
        run(tmp_path, [])


# -- in a browser


@pytest.fixture
def host() -> Iterator[ChromiumHost]:
    """A browser of this test's own, to be broken."""
    host = ChromiumHost()
    yield host
    host.close()


@pytest.mark.gpu
def test_hello_names_the_adapter() -> None:
    hello, _ = get_host("chromium").call("hello")
    assert hello["adapter"]["limits"]["maxBufferSize"] >= 2**28
    assert hello["pyodide"] == "314.0.7"


@pytest.mark.gpu
@pytest.mark.parametrize("reset", [False, True])
def test_run_gives_outputs_and_state_of_every_step(counter: pathlib.Path, reset: bool) -> None:
    step = {"inputs": {"x": X}, "symbols": {"S": 3}, "state": True}
    last = {"inputs": {"x": X[:, :1]}, "symbols": {"S": 1}, "state": True}
    results = run(counter, [step, last, last], reset=reset)
    np.testing.assert_array_equal(results[0]["y"], X + W)
    np.testing.assert_array_equal(results[2]["y"], X[:, :1] + W)
    for steps, result in enumerate(results, 1):
        np.testing.assert_array_equal(result["state"]["acc"], W * (1 if reset else steps))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"inputs": {"x": X}, "symbols": {"S": 2}}, r"this step needs f32 \[1, 2, 4\]"),
        ({"inputs": {"x": X.astype(np.int32)}, "symbols": {"S": 3}}, "is i32"),
        ({"inputs": {"x": X}, "symbols": {}}, "S"),
        ({"inputs": {"x": X}, "symbols": {"S": 9}}, "S.* 9"),
        ({"inputs": {}, "symbols": {"S": 3}}, "inputs"),
        ({"inputs": {"x": X, "z": X}, "symbols": {"S": 3}}, "inputs"),
        ({"input": {"x": X}}, "no field"),
    ],
)
def test_a_bad_step_is_refused_and_the_next_one_runs(
    counter: pathlib.Path, step: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run(counter, [step])
    good = run(counter, [{"inputs": {"x": X}, "symbols": {"S": 3}}])
    np.testing.assert_array_equal(good[0]["y"], X + W)


@pytest.mark.gpu
def test_unknown_method_handle_and_option(counter: pathlib.Path) -> None:
    machine = get_host("chromium")
    with pytest.raises(InputError, match="unknown method"):
        machine.call("fly")
    with pytest.raises(InputError, match="handle 99"):
        machine.call("report", {"handle": 99})
    with pytest.raises(OptionError, match="speed"):
        run(counter, [], options={"speed": 9})
    machine.call("close", {"handle": 99})
    machine.call("abort", {"handle": 99})


@pytest.mark.gpu
def test_nothing_stays_loaded(counter: pathlib.Path) -> None:
    run(counter, [])
    assert get_host("chromium").call("stats")[0]["loaded"] == 0


@pytest.mark.gpu
def test_state_is_restored(counter: pathlib.Path) -> None:
    machine = get_host("chromium")
    load = {"url": machine.mount(counter), "kind": "session"}
    handle = {"handle": machine.call("load", load)[0]["handle"]}
    with machine.loaded(handle["handle"]):
        saved = {"acc": np.array([9, 8, 7, 6], np.float32)}
        machine.call("restore", handle, saved)
        machine.call("run", {**handle, "symbols": {"S": 3}}, {"x": X})
        state = machine.call("state", handle)[1]
    np.testing.assert_array_equal(state["acc"], saved["acc"] + W)


@pytest.mark.gpu
def test_generate_streams_and_logits_come_as_an_array(toys: pathlib.Path) -> None:
    machine = get_host("chromium")
    loaded, _ = machine.call("load", {"url": machine.mount(toys / "first")})
    handle = {"handle": loaded["handle"]}
    texts: list[str] = []
    with machine.loaded(loaded["handle"]):
        request = {**handle, "prompt": [{"role": "user", "content": "hi"}]}
        whole, _ = machine.call("generate", request, on_event=lambda e: texts.append(e["text"]))
        logits = machine.call("logits", {**handle, "ids": [1, 2, 3]})[1]["logits"]
    assert whole["finish_reason"] == "stop"
    assert "Paris" in whole["text"]
    assert "".join(texts) == whole["text"]
    assert len(whole["token_ms"]) == len(whole["ids"]) - 1
    assert logits.shape[0] == 3


@pytest.mark.gpu
def test_abort_gets_through_to_a_running_generation(toys: pathlib.Path) -> None:
    machine = get_host("chromium")
    loaded, _ = machine.call("load", {"url": machine.mount(toys / "third")})
    handle = {"handle": loaded["handle"]}
    heard = 0

    def hear(event: dict[str, Any]) -> None:
        nonlocal heard
        heard += 1
        if heard == 5:
            machine.notify("abort", handle)

    with machine.loaded(loaded["handle"]):
        request = {**handle, "prompt": "L"}
        cut, _ = machine.call("generate", request, on_event=hear)
        request["options"] = {"max_tokens": 3}
        after, _ = machine.call("generate", request)
    assert cut["finish_reason"] == "abort"
    assert 5 <= len(cut["ids"]) < 1000
    assert after["text"] == "LLL"


@pytest.mark.gpu
def test_a_killed_browser_is_an_error_and_the_next_call_starts_a_new_one(
    host: ChromiumHost, toys: pathlib.Path
) -> None:
    loaded, _ = host.call("load", {"url": host.mount(toys / "third")})
    heard: list[dict[str, Any]] = []

    def hear(event: dict[str, Any]) -> None:
        heard.append(event)
        if len(heard) == 1:  # of a reply that would fill the context
            assert host._process is not None
            os.killpg(host._process.pid, signal.SIGKILL)

    with pytest.raises(HostError, match="ended with code") as caught:
        host.call("generate", {"handle": loaded["handle"], "prompt": "L"}, on_event=hear)
    assert "next call" in caught.value.hint
    assert host.call("stats")[0]["loaded"] == 0


@pytest.mark.gpu
def test_a_timeout_is_an_error_and_the_next_call_starts_a_new_one(host: ChromiumHost) -> None:
    with pytest.raises(HostError, match=r"within 0\.5 s"):
        host.call("hello", timeout_s=0.5)
    assert not host.running
    assert host.call("stats")[0]["loaded"] == 0


def test_a_browser_that_ends_at_once_shows_what_it_said(
    host: ChromiumHost, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = executable(tmp_path / "fake")
    fake.write_text("#!/bin/sh\necho cannot open display >&2\nexit 3\n")
    monkeypatch.setenv("TABFIRE_CHROME", str(fake))
    with pytest.raises(HostError, match="code 3") as caught:
        host.call("hello", timeout_s=20)
    assert "cannot open display" in caught.value.message


# -- in Node


def test_node_without_an_adapter_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VK_ICD_FILENAMES", "/no/such/icd.json")
    monkeypatch.setenv("VK_DRIVER_FILES", "/no/such/icd.json")
    host = NodeHost()
    try:
        assert host.call("stats")[0]["loaded"] == 0
        with pytest.raises(HostError, match="adapter") as caught:
            host.call("hello")
    finally:
        host.close()
    assert "VK_ICD_FILENAMES" in caught.value.hint


def test_node_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(HostError, match="no `node`"):
        NodeHost().call("stats")
