"""The tokenizer library of the browser, behind the `Backend` protocol.

Input:  the text of tokenizer.json. Output: a `Backend` whose every call returns plain Python data.
Way of the data: web/tokenizer.js -> **js_tokenizer** -> `tokenizer`. Imported only under Pyodide,
by `engine`.

A JS object lives as long as Python holds it: the array of ids goes when a call returns, the
tokenizer on `close`.

    tokenizer = Tokenizer(JsBackend(text))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime_py.errors import TokenizerError


class JsBackend:
    """Wraps what `create` of web/tokenizer.js returns; holds it until `close`."""

    def __init__(self, text: str) -> None:
        import tabfire_tokenizers
        from pyodide.ffi import JsException

        try:
            self._handle: Any = tabfire_tokenizers.create(text)
        except JsException as error:
            raise TokenizerError(
                f"tokenizer.json cannot be read: {error}", hint="export the model again"
            ) from error
        self._encode: Any = self._handle.encode
        self._id_to_token: Any = self._handle.idToToken

    def encode(self, text: str, first: bool) -> list[int]:
        """Return the ids of `text`, in which no special token is looked for."""
        return [int(i) for i in self._encode(text, first).to_py().tolist()]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`."""
        return str(self._handle.decode(",".join(map(str, ids))))

    def id_to_token(self, token_id: int) -> str | None:
        """Return the token as the vocabulary spells it, None for an id without one."""
        token = self._id_to_token(token_id)
        return token if isinstance(token, str) else None

    def outline(self) -> str:
        """Return tokenizer.json without its vocabulary, with `size`, as JSON."""
        return str(self._handle.outline())

    def close(self) -> None:
        """Let go of the tokenizer; the backend cannot be used any more."""
        self._handle = self._encode = self._id_to_token = None
