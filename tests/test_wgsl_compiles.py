"""The compiler's opinion of every template variant: no errors in any golden text (bank case 34g)."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page

from exporter.hosts.server import Server

pytestmark = pytest.mark.gpu
GOLDEN = sorted((pathlib.Path(__file__).parent / "golden_wgsl").glob("*.wgsl"))
COMPILE = """async (texts) => {
  const adapter = await navigator.gpu.requestAdapter();
  const wanted = ["subgroups", "shader-f16"].filter((name) => adapter.features.has(name));
  const device = await adapter.requestDevice({ requiredFeatures: wanted });
  const faults = await Promise.all(texts.map(async (code) => {
    device.pushErrorScope("validation");
    const module = device.createShaderModule({ code });
    const scope = device.popErrorScope();
    const info = await module.getCompilationInfo();
    const said = info.messages.filter((m) => m.type === "error");
    const lines = said.map((m) => `${m.lineNum}:${m.linePos} ${m.message}`);
    const error = await scope;
    return lines.length ? lines.join("; ") : error ? error.message : "";
  }));
  device.destroy();
  return { features: wanted, faults };
}"""


@pytest.fixture
def page(browser: Browser, server: Server) -> Page:
    page = browser.new_page()
    page.goto(server.origin)
    return page


def test_every_golden_text_compiles(
    page: Page, record_property: Callable[[str, object], None]
) -> None:
    features = page.evaluate(COMPILE, [])["features"]
    texts = {path.stem: path.read_text(encoding="utf-8") for path in GOLDEN}
    half = {name for name, text in texts.items() if "enable f16;" in text}
    chosen = {n: t for n, t in texts.items() if n not in half or "shader-f16" in features}
    if len(chosen) < len(texts):
        print(f"\n{len(texts) - len(chosen)} f16 texts not compiled: no shader-f16 on this host")
    faults = page.evaluate(COMPILE, list(chosen.values()))["faults"]
    record_property("compiled", len(chosen))
    assert {n: f for n, f in zip(chosen, faults, strict=True) if f} == {}
    assert len(chosen) > 50


def test_the_compiler_is_really_asked(page: Page) -> None:
    bad = "@compute @workgroup_size(1) fn main() { let x: i32 = 1.5f; }"
    early_return = """
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
    if (y[i] == 0u) { return; }
    workgroupBarrier();
}"""
    faults = page.evaluate(COMPILE, [bad, early_return])["faults"]
    assert "i32" in faults[0]
    assert "uniform" in faults[1]
