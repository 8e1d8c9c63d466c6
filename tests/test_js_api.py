"""web/engine.js as a page uses it: streams, early ends, aborts, errors, two origins."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from exporter.hosts.server import Server

pytestmark = pytest.mark.gpu
HEAD = "async (arg) => { const {Engine, TabfireError} = await import('/engine.js'); "
ENGINE = "const engine = window.engine ??= await Engine.load('/models/third/'); "
CATCH = "catch (e) { return {api: e instanceof TabfireError, code: e.code, message: e.message, hint: e.hint} }"


@pytest.fixture(scope="module")
def page(browser: Browser, toys: pathlib.Path) -> Iterator[Page]:
    """An empty page of a server with the toy models; `third` says "L" without end."""
    with Server(models=toys) as server:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{server.origin}/empty")
        yield page
        context.close()


def js(page: Page, body: str, arg: Any = None, *, engine: bool = True) -> Any:
    """Return what `body` returns in the page; `engine` is loaded once for all tests."""
    return page.evaluate(HEAD + (ENGINE if engine else "") + body + "}", arg)


def test_pieces_add_up_to_the_summary(page: Page) -> None:
    pieces = js(
        page,
        "const pieces = []; for await (const piece of engine.generate('L', {max_tokens: 5}))"
        " pieces.push(piece); return pieces;",
    )
    assert [piece["text"] for piece in pieces] == ["L"] * 5 + [""]
    assert pieces[-1]["summary"]["text"] == "LLLLL"
    assert pieces[-1]["summary"]["finish_reason"] == "length"


def test_leaving_the_loop_stops_and_the_next_request_runs(page: Page) -> None:
    count = js(
        page,
        "for await (const piece of engine.generate('L')) break;"
        "let text = ''; for await (const piece of engine.generate('L', {max_tokens: 4}))"
        " text += piece.text; return text.length;",
    )
    assert count == 4


def test_abort_when_idle_is_harmless_and_in_a_stream_ends_it(page: Page) -> None:
    reason = js(
        page,
        "engine.abort(); let n = 0, last; for await (const piece of engine.generate('L')) {"
        " last = piece; if (++n === 3) engine.abort(); } return last.summary.finish_reason;",
    )
    assert reason == "abort"


def test_a_signal_stops_and_one_that_came_first_rejects(page: Page) -> None:
    reason, code = js(
        page,
        "const c = new AbortController(); let n = 0, last;"
        "for await (const piece of engine.generate('L', {signal: c.signal})) {"
        " last = piece; if (++n === 3) c.abort(); }"
        "try { await engine.generate('L', {signal: c.signal}).next(); } catch (e) {"
        " return [last.summary.finish_reason, e.code]; }",
    )
    assert (reason, code) == ("abort", "aborted")


def test_two_generations_at_once_take_turns(page: Page) -> None:
    texts = js(
        page,
        "const all = async (n) => { let t = ''; for await (const p of"
        " engine.generate('L', {max_tokens: n})) t += p.text; return t; };"
        "return Promise.all([all(6), all(3)]);",
    )
    assert texts == ["LLLLLL", "LLL"]


def test_a_stream_left_unread_does_not_hold_up_the_next(page: Page) -> None:
    count = js(
        page,
        "window.left = engine.generate('L'); await window.left.next();"
        "let text = ''; for await (const piece of engine.generate('L', {max_tokens: 4}))"
        " text += piece.text; return text.length;",
    )
    assert count == 4


def test_logits_and_report(page: Page) -> None:
    shape, length, programs = js(
        page,
        "const {shape, data} = await engine.logits([1, 2]); const report = await engine.report();"
        "return [shape, data.length, report.programs.length];",
    )
    assert shape[0] == 2
    assert length == shape[0] * shape[1]
    assert programs >= 1


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("engine.generate('').next()", "input"),
        ("engine.generate([999999]).next()", "input"),
        ("engine.generate('L', {speed: 9}).next()", "option"),
        ("engine.generate(Array(3000).fill(76)).next()", "context_full"),
        ("engine.logits([])", "input"),
    ],
)
def test_errors_are_typed_and_the_engine_lives_on(page: Page, call: str, code: str) -> None:
    error = js(page, f"try {{ await {call}; }} {CATCH}")
    assert (error["api"], error["code"]) == (True, code)
    assert js(page, "return (await engine.generate('L', {max_tokens: 1}).next()).value.text") == "L"


@pytest.mark.parametrize(
    ("load", "code"),
    [
        ("Engine.load('/models/none/')", "bad_bundle"),
        ("Engine.load('/models/third/', {options: {speed: 9}})", "option"),
        ("Engine.load('/models/third/', {signal: AbortSignal.abort()})", "aborted"),
        ("Engine.load('/models/third/', {signal: AbortSignal.timeout(50)})", "aborted"),
        ("Engine.load('/models/third/', {worker: '/none.js'})", "worker"),
    ],
)
def test_a_load_that_fails_rejects_with_a_code(page: Page, load: str, code: str) -> None:
    error = js(page, f"try {{ await {load}; }} {CATCH}", engine=False)
    assert (error["api"], error["code"]) == (True, code)


def test_a_worker_of_another_origin_names_the_headers(page: Page) -> None:
    with Server() as other:
        url = f"{other.origin}/worker.js"
        body = f"try {{ await Engine.load('/models/third/', {{worker: arg}}); }} {CATCH}"
        error = js(page, body, url, engine=False)
    assert error["code"] == "worker"
    assert "worker-src" in error["hint"]
    assert "Access-Control-Allow-Origin" in error["hint"]


def test_debug_lines_go_to_the_console_and_not_into_the_stream(page: Page) -> None:
    lines: list[str] = []
    page.on("console", lambda message: lines.append(message.text))
    text = js(
        page,
        "const one = await Engine.load('/models/third/', {options: {debug: 2}}); let text = '';"
        "for await (const piece of one.generate('L', {max_tokens: 3})) text += piece.text;"
        "one.close(); return text;",
        engine=False,
    )
    assert text == "LLL"
    told = "\n".join(lines)
    assert told.count("step S=1 ") == 3
    assert told.count("ms in all") == 3
    assert "memory:" in told


def test_close_rejects_what_runs_and_what_comes_later(page: Page) -> None:
    codes = js(
        page,
        "const one = await Engine.load('/models/third/'); const codes = [];"
        "try { for await (const piece of one.generate('L')) one.close(); }"
        " catch (e) { codes.push(e.code); }"
        "try { await one.report(); } catch (e) { codes.push(e.code); } return codes;",
        engine=False,
    )
    assert codes == ["aborted", "aborted"]
