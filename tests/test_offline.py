"""The page without a network: it opens, loads its model and answers; an edited file shows once the server is back."""

from __future__ import annotations

import pathlib
import shutil
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from exporter.hosts import handler
from exporter.hosts.server import WEB, Server
from tests import damage, toy

pytestmark = pytest.mark.gpu
READY_MS = 60_000
KEPT = """async () => {
  const all = {};
  for (const name of await caches.keys()) all[name] = (await (await caches.open(name)).keys()).map(({url}) => url);
  return all;
}"""
ALTER = """async () => {
  const cache = await caches.open("tabfire-store-1");
  let altered = 0;
  for (const request of await cache.keys()) {
    if (!request.url.includes("/sha256/")) continue;
    const bytes = new Uint8Array(await (await cache.match(request)).arrayBuffer());
    bytes[bytes.length >> 1] ^= 255;
    await cache.put(request, new Response(bytes));
    altered++;
  }
  return altered;
}"""
LOAD = """async (options) => {
  const { Engine } = await import("/engine.js");
  try {
    const engine = await Engine.load("/models/m/", options);
    let text = "";
    for await (const piece of engine.generate("L", { max_tokens: 3 })) text += piece.text;
    const { pipelines, pipelines_ahead: ahead, timings, phases } = await engine.report();
    const { from_snapshot: snapshot } = await engine.stats();
    if (options.wait) await window.until(options.wait);
    engine.close();
    return { text, pipelines, ahead, snapshot, render_ms: timings.render_ms, phases };
  } catch (error) { return { text: error.code ?? String(error) }; }
}"""
# Waits for an entry of the store, for as long as the test lets it.
UNTIL = """window.until = async (name) => {
  for (let i = 0; i < 300; i++) {
    const keys = await (await caches.open("tabfire-store-1")).keys();
    if (keys.some(({url}) => url.includes(name))) return;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error(`there is no ${name}`);
}"""


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy of web/ whose files may be edited; node_modules is a link."""
    folder = tmp_path_factory.mktemp("web") / "web"
    shutil.copytree(WEB, folder, ignore=shutil.ignore_patterns("node_modules"))
    (folder / "node_modules").symlink_to(WEB / "node_modules")
    return folder


def answer(page: Page) -> None:
    """Ask a question of the loaded page and wait for the answer."""
    expect(page.locator("#prompt")).to_be_enabled(timeout=READY_MS)
    page.locator("#prompt").fill("hello")
    page.locator("#send").click()
    expect(page.locator("article.assistant .body")).to_contain_text("Paris")


def test_the_page_opens_and_answers_without_a_server(
    browser: Browser, tmp_path: pathlib.Path, web: pathlib.Path
) -> None:
    toy.write_reciter(tmp_path / "m", "Reciter")
    context = browser.new_context()
    page = context.new_page()
    page.set_default_navigation_timeout(READY_MS)
    page.on("pageerror", lambda error: print("error in the page:", error))
    page.on("console", lambda message: print("console:", message.text))
    with Server(models=tmp_path, web=web) as server:
        page.goto(server.origin)
        answer(page)
        expect(page.locator("html[data-offline=ready]")).to_be_attached(timeout=READY_MS)
        port = server.server_port
    with pytest.raises(Exception, match="ERR_CONNECTION_REFUSED"):  # it is gone indeed
        browser.new_context().new_page().goto(f"http://127.0.0.1:{port}/")
    page.reload()
    answer(page)

    (web / "style.css").write_text("body { color: rgb(1, 2, 3) }\n")
    with Server(port, models=tmp_path, web=web):
        page.reload()
        expect(page.locator("body")).to_have_css("color", "rgb(1, 2, 3)")
    page.reload()  # and that is the copy for the next time
    expect(page.locator("body")).to_have_css("color", "rgb(1, 2, 3)")
    context.close()


def test_what_is_kept_is_used_replaced_where_altered_and_freed(
    browser: Browser, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.write_reciter(tmp_path / "m", "Endless", endless=True)
    context = browser.new_context()
    page = context.new_page()
    page.on("console", lambda message: print("console:", message.text))

    def kept(kind: str) -> list[str]:
        urls: dict[str, list[str]] = page.evaluate(KEPT)
        return [url for url in urls.get("tabfire-store-1", []) if f"/{kind}/" in url]

    def load(**options: Any) -> Any:
        return page.evaluate(LOAD, options)

    with Server(models=tmp_path) as server:
        page.goto(f"{server.origin}/empty")
        page.evaluate(f"() => {{ {UNTIL} }}")
        assert load(cache=False)["text"] == "LLL"
        assert kept("sha256") == kept("kernels") == []

        cold = load(wait="/snapshot/")  # which is made once nothing was asked for a while
        assert (cold["text"], cold["snapshot"], cold["ahead"]) == ("LLL", False, 0)
        assert len(kept("sha256")) == 4  # graph, tokenizer, chat template, one shard

        assert page.evaluate(ALTER) == 4
        warm = load()
        assert (warm["text"], warm["snapshot"]) == ("LLL", True)
        assert warm["ahead"] == warm["pipelines"] == cold["pipelines"] > 0

        page.evaluate(ALTER.replace("/sha256/", "/snapshot/"))
        assert (load()["snapshot"], kept("snapshot")) == (False, [])

        spoiled = damage.spoil_archive(
            "runtime_py/__init__.py", "__version__", "edited = __version__"
        )
        monkeypatch.setattr(handler, "build_archive", lambda: spoiled)
        edited = load()  # another runtime: no text, pipeline or memory of the old one counts
        assert (edited["text"], edited["snapshot"], edited["ahead"]) == ("LLL", False, 0)
        assert len(kept("kernels")) == 1

        page.evaluate("(async () => (await import('/engine.js')).Engine.clearCache())()")
        assert page.evaluate(KEPT) == {}
    context.close()
