"""What tests share: a server, a browser to click in, and small bundles.

A host that is missing fails the tests that need it, with the reason; nothing is skipped silently.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from exporter.hosts.browser import find_browser
from exporter.hosts.chromium import ChromiumHost, browser_flags
from exporter.hosts.server import Server
from tests import toy

# Modules whose tests run torch.export, start Node or a whole command: seconds each, no GPU needed.
TOOL_MODULES = [
    "capture",
    "cli",
    "emit",
    "fuse",
    "fuse_small",
    "gguf_tokenizer",
    "hosts",
    "pipeline",
    "portable_tokenizer",
    "replay_modes",
    "tokenizer_js",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test-fast` leaves out beside the GPU tests."""
    for item in items:
        if item.path.stem.removeprefix("test_") in TOOL_MODULES:
            item.add_marker(pytest.mark.tools)


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A models folder with language models that recite: `first`, `second`, and `third` without end."""
    folder = tmp_path_factory.mktemp("toys")
    toy.write_reciter(folder / "first", "Reciter")
    toy.write_reciter(folder / "second", "Second")
    toy.write_reciter(folder / "third", "Endless", endless=True)
    return folder


@pytest.fixture(scope="session")
def counter(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A bundle with y = x + w and a state that counts."""
    return toy.write_counter(tmp_path_factory.mktemp("bundles") / "counter")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless browser for pages, with WebGPU.

    Only for a module: as long as it is open an event loop runs in this thread, and no other can.
    """
    flags = [flag for flag in browser_flags() if not flag.startswith("--headless")]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=flags)
        yield browser
        browser.close()


@pytest.fixture
def host() -> Iterator[ChromiumHost]:
    """A browser of this test's own, which gets another runtime."""
    host = ChromiumHost()
    yield host
    host.close()


@pytest.fixture
def server(toys: pathlib.Path) -> Iterator[Server]:
    """A server with the toy models."""
    with Server(models=toys, gzip=True) as server:
        yield server
