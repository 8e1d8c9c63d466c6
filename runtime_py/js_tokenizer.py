"""The tokenizer library of the browser, behind the `Backend` protocol.

Input:  the text of tokenizer.json. Output: a `Backend` whose every call returns plain Python data.
Way of the data: web/tokenizer.js -> **js_tokenizer** -> `tokenizer`. Imported only under Pyodide, by `engine`.

A call's only proxy, the array of ids, is destroyed before the call returns.

    tokenizer = Tokenizer(JsBackend(text))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime_py.errors import TokenizerError


class JsBackend:
    """Wraps what `create` of web/tokenizer.js returns; owns that proxy until `close`."""

    def __init__(self, text: str) -> None:
        import tabfire_tokenizers
        from pyodide.ffi import JsException

        try:
            self._handle: Any = tabfire_tokenizers.create(text)
        except JsException as error:
            raise TokenizerError(
                f"tokenizer.json cannot be read: {error}", hint="export the model again"
            ) from error
        self._encode = self._handle.encode
        self._id_to_token = self._handle.idToToken

    def encode(self, text: str, first: bool) -> list[int]:
        """Return the ids of `text`, in which no special token is looked for."""
        array = self._encode(text, first)
        try:
            return [int(i) for i in array.to_py().tolist()]
        finally:
            array.destroy()

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
        """Give the proxies back; the backend cannot be used any more."""
        for proxy in (self._encode, self._id_to_token, self._handle):
            proxy.destroy()
