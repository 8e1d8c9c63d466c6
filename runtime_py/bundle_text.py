"""What a bundle says about text: its tokenizer, its chat template.

Input:  an opened bundle, the way to a tokenizer backend of this host.
Output: a `Tokenizer` and a `ChatTemplate`, None where the bundle has none.
Way of the data: `bundle` -> bundle_text -> `engine`, while the pipelines of a load compile.

    text = await BundleText.read(bundle, backend_of)
    text.tokenizer.encode("Hello")
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from runtime_py.chat import ChatTemplate
from runtime_py.schema import Manifest
from runtime_py.tokenizer import Backend, Tokenizer


class Source(Protocol):
    """What is asked of a `bundle.Bundle`."""

    @property
    def manifest(self) -> Manifest: ...

    def read_text(self, path: str) -> Awaitable[str]:
        """Return a text file of the bundle."""


@dataclass(frozen=True)
class BundleText:
    """Whoever reads it closes it."""

    tokenizer: Tokenizer | None = None
    template: ChatTemplate | None = None

    @staticmethod
    async def read(bundle: Source, backend_of: Callable[[str], Awaitable[Backend]]) -> BundleText:
        """Return what the manifest names; `backend_of` takes the path of its tokenizer. Raises
        `TokenizerError`, `TemplateError`, and what `Bundle.read_text` does.
        """
        text = bundle.manifest.text
        if not text.get("tokenizer"):
            return BundleText()
        tokens = _special_tokens(text)
        backend = await backend_of(text["tokenizer"])
        try:
            bos = tokens.get("bos_token", "") if text.get("add_bos") else ""
            tokenizer, template = Tokenizer(backend, bos), None
            if text.get("chat_template"):
                source = await bundle.read_text(text["chat_template"])
                template = ChatTemplate(source, tokens, tokenizer.specials)
        except BaseException:
            _close(backend)
            raise
        return BundleText(tokenizer, template)

    def close(self) -> None:
        """Let go of the tokenizer."""
        if self.tokenizer is not None:
            _close(self.tokenizer.backend)


def _close(backend: Backend) -> None:
    close = getattr(backend, "close", None)  # a backend in CPython holds nothing
    if close is not None:
        close()


def _special_tokens(text: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens that a manifest names, by their role."""
    return {name: token for name, token in (text.get("special_tokens") or {}).items() if token}
