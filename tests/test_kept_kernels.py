"""Kernels whose WGSL an earlier load kept: what `debug` and errors show of them, and that an altered copy counts for nothing.

Input:  a bundle that recites, loaded twice in a page; between the loads the kept notes are changed.
Output: the lines of the second load, its answer, its error.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from exporter.hosts.server import Server
from tests import toy

pytestmark = pytest.mark.gpu
LOAD = """async (options) => {
  const { Engine } = await import("/engine.js");
  let engine;
  try {
    engine = await Engine.load("/models/m/", options);
    let text = "";
    for await (const piece of engine.generate("L", { max_tokens: 3 })) text += piece.text;
    const { pipelines, pipelines_ahead: ahead, timings, programs } = await engine.report();
    const keys = programs.flatMap(({ dispatches }) => dispatches.map(({ key }) => key));
    return { text, pipelines, ahead, render_ms: timings.render_ms, keys };
  } catch (error) { return { code: error.code, message: String(error.message) }; }
  finally { engine?.close(); }
}"""
# Changes the kept notes: replaces a text in each kernel, and states the hash of the result if `sealed`.
CHANGE = """async ([from, to, sealed]) => {
  const { Store } = await import("/store.js");
  const store = await Store.open();
  for (let i = 0; i < 100 && !(await store.names("kernels/")).length; i++) {
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const [name] = await store.names("kernels/");
  const kept = new Uint8Array(await store.bytes(name));
  const notes = JSON.parse(new TextDecoder().decode(await store.sealed(name)));
  let changed = 0;
  for (const kernel of notes.kernels) {
    if (kernel.text.includes(from)) changed++;
    kernel.text = kernel.text.replaceAll(from, to);
  }
  const text = new TextEncoder().encode(JSON.stringify(notes));
  if (sealed) await store.putSealed(name, text);
  else await store.put(name, new Blob([kept.slice(0, 32), text]));
  return changed;
}"""


@pytest.fixture
def page(browser: Browser, tmp_path: pathlib.Path) -> Iterator[Page]:
    """A page whose origin keeps the notes of one load of `m`."""
    toy.write_reciter(tmp_path / "m", "Endless", endless=True)
    context = browser.new_context()
    with Server(models=tmp_path) as server, contextlib.closing(context):
        page = context.new_page()
        page.goto(f"{server.origin}/empty")
        assert page.evaluate(LOAD, {})["text"] == "LLL"
        yield page


def load(page: Page, **options: Any) -> tuple[dict[str, Any], str]:
    """Return what a load with these options gave, and what it wrote to the console."""
    lines: list[str] = []
    page.on("console", lambda message: lines.append(message.text))
    return page.evaluate(LOAD, {"options": options}), "\n".join(lines)


def change(page: Page, old: str, new: str, *, seal: bool) -> int:
    """Return in how many kept kernels `old` became `new`."""
    changed: int = page.evaluate(CHANGE, [old, new, seal])
    return changed


def test_debug_shows_the_source_that_was_kept(page: Page) -> None:
    """The mark is in no template, so what is shown is what an earlier load kept, not rendered anew."""
    plain, told = load(page)
    assert (plain["text"], plain["ahead"]) == ("LLL", plain["pipelines"])
    assert "kernel " not in told
    assert change(page, "@compute", "// kept\n@compute", seal=True) > 2
    warm, told = load(page, debug=4)
    assert warm["text"] == "LLL"
    assert 0 < warm["ahead"] == warm["pipelines"]
    for name in set(warm["keys"]):
        shown = told.split(f"kernel {name}:\n", 1)[1].split("\nkernel ", 1)[0]
        assert "// kept\n@compute" in shown, name
        assert shown.count("fn main(") == 1, name
    for words in ("graph: ", "memory: ", "plan for S=1..1", "step S=1 ", "ms in all"):
        assert words in told, words


def test_a_kept_kernel_that_does_not_compile_is_an_error_with_its_source(page: Page) -> None:
    assert change(page, "fn main(", "fn main(oops, ", seal=True) > 2
    failed, _ = load(page)
    assert failed["code"] == "shader"
    assert re.search(r"kernel \w+\(.*\) does not compile:\n\d+:\d+ error: ", failed["message"])
    assert re.search(r"\n +\d+ fn main\(oops, ", failed["message"])


def test_notes_that_were_altered_count_for_nothing(page: Page) -> None:
    odd = ("let v = x[", "let v = f32(i % 2u) * x[")  # forgets that an L, an even id, follows all
    assert change(page, *odd, seal=False) == 1
    anew, _ = load(page)
    assert (anew["text"], anew["ahead"]) == ("LLL", 0)
    assert anew["render_ms"] > 0
    # The control: had the seal been right, the same text would have run.
    assert change(page, *odd, seal=True) == 1
    assert load(page)[0]["text"] != "LLL"
