"""Docs that are generated do not drift, and what docs name exists."""

from __future__ import annotations

import pathlib
import re

import pytest

from exporter.ops_page import document

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_ops_page_is_what_the_registry_gives() -> None:
    assert (ROOT / "docs/OPS.md").read_text(encoding="utf-8") == document()


@pytest.mark.parametrize("page", DOCS, ids=lambda p: p.name)
def test_links_to_files_lead_somewhere(page: pathlib.Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", DOCS, ids=lambda p: p.name)
def test_nothing_was_left_to_fill_in(page: pathlib.Path) -> None:
    assert "@@" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", DOCS, ids=lambda p: p.name)
def test_named_files_exist(page: pathlib.Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(
        r"`((?:runtime_py|exporter|wgsl|web|tests|docs|bench)/[\w./-]+\.\w+)`", text
    ):
        assert (ROOT / name).exists(), name
