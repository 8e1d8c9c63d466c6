"""The demo page, clicked as a person would: loading, an answer, stop, errors, a narrow screen.

Screenshots are left in .cache/screenshots for a look.
"""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from exporter.hosts.server import Server
from tests import toy

pytestmark = pytest.mark.gpu
SHOTS = pathlib.Path(__file__).parent.parent / ".cache/screenshots"
READY_MS = 60_000


def watch(page: Page) -> list[str]:
    """Return a list that fills with what goes wrong in `page`."""
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    return problems


def check(problems: list[str]) -> None:
    """Fail if anything went wrong but a request for a file that a test left out."""
    assert [text for text in problems if "Failed to load resource" not in text] == []


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh page; any error in it fails the test."""
    context = browser.new_context(viewport={"width": 1100, "height": 760})
    page = context.new_page()
    problems = watch(page)
    yield page
    context.close()
    check(problems)


@pytest.fixture(scope="module")
def loaded(browser: Browser, toys: pathlib.Path) -> Iterator[Page]:
    """A page that has loaded the first model; starting Python once is enough for many tests."""
    with Server(models=toys) as server:
        context = browser.new_context(viewport={"width": 1100, "height": 760})
        page = context.new_page()
        problems = watch(page)
        page.goto(server.origin)
        expect(page.locator("#stages li").first).to_be_visible()
        shoot(page, "loading")
        expect(page.locator("#prompt")).to_be_enabled(timeout=READY_MS)
        yield page
        context.close()
        check(problems)


@pytest.fixture
def chat(loaded: Page) -> Page:
    """The loaded page with an empty conversation."""
    loaded.get_by_role("button", name="New chat").click()
    expect(loaded.locator("article")).to_have_count(0)
    return loaded


def shoot(page: Page, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")


def open_ready(page: Page, server: Server, query: str = "") -> None:
    page.goto(f"{server.origin}/{query}")
    expect(page.locator("#prompt")).to_be_enabled(timeout=READY_MS)


def ask(page: Page, text: str) -> None:
    page.locator("#prompt").fill(text)
    page.locator("#send").click()


def test_a_question_is_answered(chat: Page) -> None:
    page = chat
    expect(page.locator("#prompt")).to_be_focused()
    shoot(page, "welcome")
    ask(page, "What is the capital of France?")
    answer = page.locator("article.assistant .body")
    expect(answer).to_contain_text("ends .")
    expect(answer.locator("strong")).to_have_text("Paris")
    expect(answer.locator("pre code")).to_contain_text("print")
    expect(page.locator("#speed")).to_contain_text("tokens/s")
    shoot(page, "answer")


def test_html_in_an_answer_is_only_text(chat: Page) -> None:
    page = chat
    ask(page, "hello")
    answer = page.locator("article.assistant .body")
    expect(answer).to_contain_text("<img src=x onerror=alert(1)>")
    expect(answer.locator("img, script")).to_have_count(0)
    assert page.evaluate("window.hacked") is None


def test_keys_and_a_second_turn(chat: Page) -> None:
    page = chat
    page.locator("#prompt").press_sequentially("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    page.keyboard.press("Enter")
    expect(page.locator("article.user .body")).to_have_text("one\ntwo")
    expect(page.locator("#send")).to_be_visible()
    page.keyboard.type("three")
    page.keyboard.press("Enter")
    expect(page.locator("article.assistant")).to_have_count(2)
    expect(page.locator("article.assistant .body").nth(1)).to_contain_text("ends .")


def test_details_show_adapter_and_routes(chat: Page) -> None:
    page = chat
    ask(page, "hello")
    expect(page.locator("#send")).to_be_visible()
    page.get_by_role("button", name="Details").click()
    details = page.locator("#details")
    expect(details).to_contain_text("Adapter")
    details.locator("summary").first.click()
    expect(details).to_contain_text("index_select")
    shoot(page, "details")


def test_a_step_is_profiled_with_a_chart_and_a_table(page: Page, server: Server) -> None:
    """The chart library comes with the first click; the numbers' sizes are a matter of the model."""
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    open_ready(page, server)
    page.get_by_role("button", name="Details").click()
    page.get_by_role("button", name="Profile a step").click()
    rows = page.locator("#details .numbers tbody tr")
    expect(rows).not_to_have_count(0)
    kernels = rows.locator("th").all_inner_texts()
    assert "index_select" in kernels
    assert any(name.startswith("sample_") for name in kernels)
    expect(page.get_by_role("img", name="Bar chart of GPU time by kernel")).to_be_visible()
    libraries = [url for url in fetched if "chart" in url]
    assert len(libraries) == 1
    assert libraries[0].endswith("chart.umd.min.js")
    ask(page, "hello")
    expect(page.locator("article.assistant .body")).to_contain_text("ends .")
    expect(rows).to_have_count(len(kernels))  # an answer redraws the details, not the profile


def test_stop_ends_an_answer_and_the_next_one_starts(page: Page, server: Server) -> None:
    open_ready(page, server, "?model=third")
    page.locator("#settings summary").click()
    page.locator("#max-tokens").fill("1900")  # long enough to be stopped by hand
    ask(page, "hello")
    expect(page.locator("article.assistant .body")).to_contain_text("LLLLL")
    expect(page.locator("#send")).to_be_hidden()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".remark")).to_have_text("Stopped.")
    ask(page, "again")
    expect(page.locator("article.assistant .body").nth(1)).to_contain_text("LLLLL")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".remark")).to_have_count(2)


def test_longest_answer_is_told(chat: Page) -> None:
    page = chat
    page.locator("#settings summary").click()
    page.locator("#max-tokens").fill("3")
    shoot(page, "settings")
    ask(page, "hello")
    expect(page.locator(".remark")).to_contain_text("Cut off")
    page.locator("#max-tokens").fill("512")


def test_another_model_can_be_picked(page: Page, server: Server) -> None:
    open_ready(page, server, "?model=second")
    expect(page.locator("#welcome-model")).to_have_text("Second")
    page.locator("#model").select_option(index=0)
    expect(page.locator("#prompt")).to_be_disabled()
    expect(page.locator("#prompt")).to_be_enabled(timeout=READY_MS)
    expect(page.locator("#welcome-model")).to_have_text("Reciter")


def test_a_failed_load_leaves_the_page_usable(page: Page, tmp_path: pathlib.Path) -> None:
    toy.write_reciter(tmp_path / "bad", "Bad")
    toy.write_reciter(tmp_path / "good", "Good")
    shard = tmp_path / "bad/weights-00001.bin"
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    with Server(models=tmp_path) as server:
        page.goto(server.origin)
        expect(page.locator("#error")).to_be_visible(timeout=READY_MS)
        expect(page.locator("#error-message")).to_contain_text("weights-00001.bin has sha256")
        expect(page.locator("#error-code")).to_have_text("integrity")
        shoot(page, "error")
        page.locator("#model").select_option("good")
        expect(page.locator("#prompt")).to_be_enabled(timeout=READY_MS)
        expect(page.locator("#error")).to_be_hidden()
        ask(page, "hello")
        expect(page.locator("article.assistant .body")).to_contain_text("Paris")


def test_loading_can_be_cancelled(page: Page, server: Server) -> None:
    page.goto(server.origin)
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#error-code")).to_have_text("aborted")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#prompt")).to_be_enabled(timeout=READY_MS)


def test_no_models_says_how_to_make_one(page: Page, tmp_path: pathlib.Path) -> None:
    with Server(models=tmp_path) as server:
        page.goto(server.origin)
        expect(page.locator("#error-hint")).to_contain_text("python -m exporter")


def test_without_webgpu_the_flags_are_told(page: Page, server: Server) -> None:
    page.set_viewport_size({"width": 390, "height": 760})
    page.add_init_script("Object.defineProperty(navigator, 'gpu', {value: undefined})")
    page.goto(server.origin)
    expect(page.locator("#error-code")).to_have_text("webgpu_missing")
    expect(page.locator("#error-hint")).to_contain_text("--enable-unsafe-webgpu")
    shoot(page, "no-webgpu")


def test_a_weak_network_is_no_harm(page: Page, server: Server) -> None:
    """Two tabs at once, and packed JSON: both load, and progress never passes its total."""
    other = page.context.new_page()
    other.goto(server.origin)
    open_ready(page, server)
    expect(other.locator("#prompt")).to_be_enabled(timeout=READY_MS)
    for tab in (page, other):
        ask(tab, "hello")
        expect(tab.locator("article.assistant .body")).to_contain_text("Paris")
    bars = page.locator("#stages progress")
    shares = [bars.nth(i).evaluate("bar => bar.value / bar.max") for i in range(bars.count())]
    assert shares
    assert max(shares) <= 1


@pytest.fixture(autouse=True, scope="module")
def _fresh_screenshots() -> None:
    shutil.rmtree(SHOTS, ignore_errors=True)
