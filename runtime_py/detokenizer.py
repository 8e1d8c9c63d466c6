"""Token ids to text, one id at a time, so that a page can show text as it comes.

Input:  ids in order. Output: pieces of text whose concatenation is the one-shot decoding, whenever
it stops.
Way of the data: sampling -> **detokenizer** -> stops -> the page.

A UTF-8 sequence is never split and nothing is said twice: what may still become another character
is held back. A byte-level vocabulary goes through an incremental UTF-8 decoder, at constant cost an
id. Any other is decoded again over a short window.

    detokenizer = Detokenizer(tokenizer)
    "".join(map(detokenizer.push, ids)) + detokenizer.finish()
"""

from __future__ import annotations

import codecs

from runtime_py.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"
PATIENCE = 8  # ids held back before a window is looked at less and less often


class Detokenizer:
    """The text of one reply. Special tokens are left out unless `skip_special` is False."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._window = _Window(tokenizer)

    def push(self, token_id: int) -> str:
        """Return the text that `token_id` completes, maybe none."""
        if self._skip_special and self._tokenizer.is_special(token_id):
            return ""
        if self._tokenizer.is_byte_level:
            return self._decoder.decode(self._tokenizer.token_bytes(token_id))
        return self._window.push(token_id)

    def finish(self) -> str:
        """Return what was held back: an unfinished sequence is one U+FFFD."""
        if self._tokenizer.is_byte_level:
            return self._decoder.decode(b"", final=True)
        return self._window.flush()


class _Window:
    """Decodes `context + pending` and gives out what goes beyond the text of `context`.

    `context` holds the ids given out last, since a decoder may treat the first id of a text
    differently.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._context: list[int] = []
        self._context_text = ""
        self._pending: list[int] = []
        self._look_at = 1

    def push(self, token_id: int) -> str:
        self._pending.append(token_id)
        if len(self._pending) < self._look_at:
            return ""
        text = self._tokenizer.decode(self._context + self._pending)
        if text.endswith(REPLACEMENT):
            self._look_at = len(self._pending) * 2 if len(self._pending) >= PATIENCE else 1
            return ""
        return self._give_out(text)

    def flush(self) -> str:
        return (
            self._give_out(self._tokenizer.decode(self._context + self._pending))
            if self._pending
            else ""
        )

    def _give_out(self, text: str) -> str:
        delta = text[len(self._context_text) :]
        self._context, self._pending, self._look_at = self._pending, [], 1
        self._context_text = self._tokenizer.decode(self._context)
        return delta
