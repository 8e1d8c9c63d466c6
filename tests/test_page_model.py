"""The demo page with the real model: a click, streamed tokens, the details, a screenshot to look at."""

from __future__ import annotations

import pathlib

import pytest
from playwright.sync_api import Browser, expect

from exporter.hosts.server import Server
from tests.test_page import ask, check, shoot, watch

pytestmark = [pytest.mark.gpu, pytest.mark.model]
MODELS = pathlib.Path(__file__).parent.parent / "models"
READY_MS = 180_000
# How many pixels of a canvas are not transparent.
DRAWN = """canvas => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
    .data.filter((value, i) => i % 4 === 3 && value > 0).length"""


def test_smollm2_answers_a_click(browser: Browser) -> None:
    with Server(models=MODELS) as server:
        context = browser.new_context(viewport={"width": 1100, "height": 760})
        page = context.new_page()
        problems = watch(page)
        page.goto(server.origin)
        expect(page.locator("#stages li").first).to_be_visible()
        expect(page.locator("#prompt")).to_be_enabled(timeout=READY_MS)
        ask(page, "What is the capital of France?")
        answer = page.locator("article.assistant .body")
        expect(answer).to_contain_text("Paris", timeout=READY_MS)
        shoot(page, "smollm2")
        expect(page.locator("#speed")).to_contain_text("tokens/s", timeout=READY_MS)
        page.get_by_role("button", name="Details").click()
        expect(page.locator("#details tr", has_text="vendor").locator("td")).not_to_be_empty()
        shoot(page, "smollm2-details")
        page.get_by_role("button", name="Profile a step").click()
        rows = page.locator("#details .numbers tbody tr")
        expect(rows).not_to_have_count(0, timeout=READY_MS)
        page.locator("#details .profile").scroll_into_view_if_needed()
        shoot(page, "smollm2-profile")
        names = rows.locator("th").all_inner_texts()
        cells = [row.locator("td").all_inner_texts() for row in rows.all()]
        times = {name: int(us) for name, (_, us, _) in zip(names, cells, strict=True)}
        assert max(us for name, us in times.items() if name.startswith("linear_")) > 0
        assert times["attention_split"] > 0
        bars = page.locator("#details .chart canvas")
        assert bars.evaluate(DRAWN) > 0
        context.close()
        check(problems)
