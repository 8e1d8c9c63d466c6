"""The tokenizer library of the browser, behind the `Backend` protocol.

Input:  a bundle's URL and its entry for tokenizer.json, whose text never enters the Python heap.
Output: a `Backend` whose every call returns plain Python data.
Way of the data: web/tokenizer.js -> **js_tokenizer** -> `tokenizer`. Imported only under Pyodide,
by `engine`.

A JS object lives as long as Python holds it: the array of ids goes when a call returns, the
tokenizer on `close`.

    tokenizer = Tokenizer(await JsBackend.load("/models/smollm2", entry))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime_py.device_facts import typed
from runtime_py.errors import TokenizerError
from runtime_py.schema import File


class JsBackend:
    """Wraps what `create` of web/tokenizer.js returns; holds it until `close`."""

    def __init__(self, handle: Any) -> None:
        self._handle: Any = handle
        self._encode: Any = self._handle.encode
        self._id_to_token: Any = self._handle.idToToken

    @staticmethod
    async def load(url: str, entry: File) -> JsBackend:
        """Return the tokenizer in a file of the bundle at `url`: perhaps one that was made while
        Python started. Raises `IntegrityError`, `BadBundleError` or `TokenizerError`.
        """
        import tabfire_tokenizers
        from pyodide.ffi import JsException

        base = url.rstrip("/")
        try:
            return JsBackend(
                await tabfire_tokenizers.load(base, entry.path, entry.size_bytes, entry.sha256)
            )
        except JsException as error:
            if error.name == "TabfireFault":
                raise typed(error) from error
            raise TokenizerError(
                f"tokenizer.json cannot be read: {error}", hint="export the model again"
            ) from error

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
