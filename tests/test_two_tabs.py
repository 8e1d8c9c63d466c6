"""Two tabs of one origin, which share what is kept: both answer, and what they leave is whole.

Input:  two pages of one browser context, bundles that recite. Output: their answers, and every kept
file held against the sha256 in its name.
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from exporter.hosts.server import Server
from tests import damage, toy

pytestmark = pytest.mark.gpu
TABS_MS = 120_000
PARIS = "**Paris** is the"
# Starts a load in the page and leaves its result where `ended` finds it.
BEGIN = """(name) => {
  window.result = (async () => {
    const { Engine } = await import("/engine.js");
    const engine = await Engine.load(`/models/${name}/`);
    try {
      let text = "";
      for await (const piece of engine.generate([{ role: "user", content: "hello" }], { max_tokens: 3 })) text += piece.text;
      const { pipelines, pipelines_ahead: ahead } = await engine.report();
      return { text, warm: pipelines === ahead };
    } finally { engine.close(); }
  })().catch((error) => ({ text: `${error.code}: ${error.message}` }));
}"""
ENDED = "() => window.result"
# Every kept file by the sha256 in its name: whether its bytes have that hash. Waits until the last write is over.
VERIFY = """async ([manifests, files]) => {
  const { Store, sha256 } = await import("/store.js");
  const store = await Store.open();
  const count = async (kind) => (await store.names(kind)).length;
  const isOver = async () => (await count("manifest/")) === manifests && (await count("sha256/")) === files;
  for (let i = 0; i < 50 && !(await isOver()); i++) await new Promise((resolve) => setTimeout(resolve, 100));
  const found = {};
  for (const name of await store.names("sha256/")) {
    found[name.slice(7)] = (await sha256(await store.bytes(name))) === name.slice(7);
  }
  return found;
}"""
ALTER = """async (altered) => {
  const { Store } = await import("/store.js");
  const store = await Store.open();
  for (const name of await store.names("sha256/")) {
    const bytes = new Uint8Array(await store.bytes(name));
    bytes[bytes.length >> 1] ^= 255;
    if (altered === null || altered.includes(name.slice(7))) await store.put(name, bytes);
  }
}"""
CLEAR = "async () => (await import('/engine.js')).Engine.clearCache()"
# A load of which only the downloads run, until `window.end` is called: what it keeps lies there meanwhile.
SLOW = """async (name) => {
  const { beginDownloads, Downloads, endDownloads } = await import("/downloads.js");
  const { Store, listFiles } = await import("/store.js");
  const store = Store.open();
  const url = `${location.origin}/models/${name}`;
  const downloads = beginDownloads(new Downloads(url, { store }));
  const listed = listFiles(await downloads.read("manifest.json"));
  for (const { path, ...file } of listed.filter(({ path }) => !path.endsWith(".bin"))) await downloads.read(path);
  for (const file of listed.filter(({ path }) => path.endsWith(".bin"))) {
    await (await downloads.shard({ ...file, url: `${url}/${file.path}` })).bytes;
  }
  window.end = () => endDownloads(downloads, true);
}"""


@dataclass(frozen=True)
class Tabs:
    """Two pages of one context, and the folder of the models that their server has."""

    pages: tuple[Page, Page]
    models: pathlib.Path

    def load(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return what the tabs say that load and ask these models at the same time."""
        for page, name in zip(self.pages, names, strict=True):
            page.evaluate(BEGIN, name)
        return [page.evaluate(ENDED) for page in self.pages]

    def kept(self, manifests: int = 1, files: int = 4) -> dict[str, bool]:
        """Return whether each kept file has its hash, once so many manifests and files are kept, or
        after five seconds.
        """
        found: dict[str, bool] = self.pages[0].evaluate(VERIFY, [manifests, files])
        return found

    def listed(self, *names: str) -> set[str]:
        """Return the sha256 of every file that a load of these models keeps."""
        files = []
        for name in names:
            damage.edit_json(
                self.models / name / "manifest.json", lambda found: files.extend(found["files"])
            )
        return {file["sha256"] for file in files if not file["path"].startswith("golden/")}


@pytest.fixture
def tabs(browser: Browser, tmp_path: pathlib.Path) -> Iterator[Tabs]:
    toy.write_reciter(tmp_path / "one", "Endless", endless=True)
    toy.write_reciter(tmp_path / "two", "Second")
    context = browser.new_context()
    with Server(models=tmp_path) as server, contextlib.closing(context):
        pages = (context.new_page(), context.new_page())
        for page in pages:
            page.set_default_timeout(TABS_MS)
            page.on("console", lambda message: print("console:", message.text))
            page.goto(f"{server.origin}/empty")
        yield Tabs(pages, tmp_path)


def texts(answers: Sequence[dict[str, Any]]) -> list[str]:
    return [answer["text"] for answer in answers]


def test_two_tabs_that_load_one_model_at_once_both_answer(tabs: Tabs) -> None:
    assert texts(tabs.load(["one", "one"])) == ["LLL", "LLL"]
    whole = dict.fromkeys(tabs.listed("one"), True)
    assert tabs.kept() == whole

    warm = tabs.load(["one", "one"])
    assert (texts(warm), [tab["warm"] for tab in warm]) == (["LLL", "LLL"], [True, True])
    assert tabs.kept() == whole

    tabs.pages[0].evaluate(ALTER, None)
    assert set(tabs.kept().values()) == {False}, "the check of what is kept can fail"
    assert texts(tabs.load(["one", "one"])) == ["LLL", "LLL"]
    assert tabs.kept() == whole

    for path in (tabs.models / "one").iterdir():  # from here on nothing but the kept copies is left
        if path.name != "manifest.json":
            path.unlink() if path.is_file() else shutil.rmtree(path)
    assert texts(tabs.load(["one", "one"])) == ["LLL", "LLL"]


def test_a_load_that_ends_leaves_the_files_of_one_that_goes_on(tabs: Tabs) -> None:
    first, second = tabs.pages
    first.evaluate(SLOW, "one")
    second.evaluate(BEGIN, "two")
    assert second.evaluate(ENDED)["text"] == PARIS
    assert tabs.kept(1, 5) == dict.fromkeys(tabs.listed("one", "two"), True)
    first.evaluate("() => window.end()")
    assert tabs.kept(2, 5) == dict.fromkeys(tabs.listed("one", "two"), True)


def test_a_load_alone_drops_what_no_manifest_lists_any_more(tabs: Tabs) -> None:
    first = tabs.pages[0]
    first.evaluate(BEGIN, "one")
    assert first.evaluate(ENDED)["text"] == "LLL"
    before = tabs.kept()
    shutil.rmtree(tabs.models / "one")
    toy.write_reciter(tabs.models / "one", "Revised")
    first.evaluate(BEGIN, "one")
    assert first.evaluate(ENDED)["text"] == PARIS
    after = tabs.kept()
    assert after == dict.fromkeys(tabs.listed("one"), True)
    assert len(set(before) - set(after)) == 1


def test_a_tab_that_frees_everything_leaves_another_its_load(tabs: Tabs) -> None:
    first, second = tabs.pages
    assert texts(tabs.load(["one", "one"])) == ["LLL", "LLL"]
    first.evaluate(BEGIN, "one")
    second.evaluate(CLEAR)
    assert first.evaluate(ENDED)["text"] == "LLL"
    assert texts(tabs.load(["one", "two"])) == ["LLL", PARIS]
    assert tabs.kept(2, 5) == dict.fromkeys(tabs.listed("one", "two"), True)
