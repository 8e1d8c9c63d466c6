"""Text to token ids and back, over whichever library reads tokenizer.json on this host.

Input:  a `Backend` (web/tokenizer.js in a browser, the `tokenizers` package in tests), text or ids.
Output: ids or text.
Way of the data: chat -> **tokenizer** -> engine -> `detokenizer` -> text.

A special token is an id that no text may turn into by chance. So the backend never looks for them:
`encode` finds them in the text itself and hands over what lies between. Where a guard character
splits a special token's name (see `chat`), the name is ordinary text. A section between two special
tokens is encoded whole, so merges over the border of template and message come out as in one plain
call.

    ids = tokenizer.encode("<|im_start|>user\nhi<|im_end|>")      # [1, 4093, 198, ...]
    tokenizer.decode(ids)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from runtime_py.errors import InputError, TokenizerError


class Backend(Protocol):
    """What a host's tokenizer library must do. None of its calls parses or adds special tokens."""

    def encode(self, text: str, first: bool) -> list[int]:
        """Return the ids of `text`; `first` says that the text opens the prompt."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids` (used only if the vocabulary is not byte-level)."""

    def id_to_token(self, token_id: int) -> str | None:
        """Return the token as the vocabulary spells it, None for an id without one."""

    def outline(self) -> str:
        """Return tokenizer.json without its vocabulary, and `size` (largest id + 1), as JSON."""


@dataclass(frozen=True)
class AddedToken:
    """A token that stands beside the learned vocabulary; a special one only ever comes from a
    template.
    """

    content: str
    id: int
    special: bool
    lstrip: bool = False
    rstrip: bool = False


class Tokenizer:
    """Encodes and decodes for one model; `bos` is put before a framed text even if the file does
    not say so.
    """

    def __init__(self, backend: Backend, bos: str = "") -> None:
        self.backend = backend
        outline = _parse(backend.outline())
        self.size = int(outline["size"])
        self.added = {token.id: token for token in _added_tokens(outline)}
        self.specials = {token.content: token for token in self.added.values() if token.special}
        self.is_byte_level = _is_byte_level(outline.get("decoder"))
        self.prefix, self.suffix = self._frame(outline.get("post_processor"))
        names = sorted(self.specials, key=len, reverse=True)
        if not self.prefix and bos in self.specials:
            self.prefix = [self.specials[bos].id]
        self._pattern = re.compile("|".join(map(re.escape, names))) if names else None
        self._bytes: dict[int, bytes] = {}

    def encode(self, text: str, *, frame: bool = False, guard: str = "") -> list[int]:
        """Return the ids of `text`, in which special tokens count unless `guard` splits them.

        `guard` is removed from what is encoded. `frame` adds what tokenizer.json puts around a text
        (usually a BOS), once: a text that opens with it already gets no second one.
        """
        if not isinstance(text, str):
            raise InputError(f"text must be a string, got {type(text).__name__}")
        ids: list[int] = []
        for i, (section, special) in enumerate(self._sections(_well_formed(text))):
            if special is not None:
                ids.append(special.id)
            elif section := section.replace(guard, "") if guard else section:
                ids.extend(self.backend.encode(section, i == 0))
        if frame:
            ids = _joined(self.prefix, ids, self.suffix)
        return ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        """Return the text of `ids`; bytes that are not UTF-8 become U+FFFD."""
        if skip_special:
            ids = [i for i in ids if not self.is_special(i)]
        if not self.is_byte_level:
            return self.backend.decode(ids) if ids else ""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def is_special(self, token_id: int) -> bool:
        """Return whether the id stands for a special token."""
        token = self.added.get(token_id)
        return token is not None and token.special

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes that an id of a byte-level vocabulary stands for; none for an unknown
        id.
        """
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._spell(token_id)
        return known

    def _spell(self, token_id: int) -> bytes:
        if token_id in self.added:
            return self.added[token_id].content.encode()
        token = self.backend.id_to_token(token_id)
        if token is None:
            return b""
        try:
            return bytes(BYTE_OF[char] for char in token)
        except KeyError:
            return token.encode()

    def _sections(self, text: str) -> Iterator[tuple[str, AddedToken | None]]:
        """Yield the text between special tokens, and the special tokens, in order."""
        start, strip_next = 0, False
        for match in self._pattern.finditer(text) if self._pattern else ():
            token = self.specials[match.group()]
            yield _stripped(text[start : match.start()], strip_next, token.lstrip), None
            yield match.group(), token
            start, strip_next = match.end(), token.rstrip
        yield _stripped(text[start:], strip_next, False), None

    def _frame(self, processor: Any) -> tuple[list[int], list[int]]:
        """Return the ids that a `TemplateProcessing` puts before and after a text."""
        before: list[int] = []
        after: list[int] = []
        for part in (processor or {}).get("processors", [processor]):
            if (part or {}).get("type") != "TemplateProcessing":
                continue
            target = before
            for item in part["single"]:
                if "Sequence" in item:
                    target = after
                else:
                    target.extend(part["special_tokens"][item["SpecialToken"]["id"]]["ids"])
        return before, after


def byte_alphabet() -> dict[str, int]:
    """Return the 256 characters by which byte-level vocabularies spell bytes, and their bytes.

    The printable characters of Latin-1 spell themselves; the other bytes, in order, take the
    characters from U+0100 on (Radford et al. 2019, GPT-2, `bytes_to_unicode`).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + i): byte for i, byte in enumerate(others)})
    return alphabet


BYTE_OF = byte_alphabet()


def _parse(text: str) -> dict[str, Any]:
    outline = json.loads(text)
    if not isinstance(outline, dict) or not isinstance(outline.get("size"), int):
        raise TokenizerError("tokenizer.json holds no tokenizer", hint="export the model again")
    return outline


def _added_tokens(outline: Mapping[str, Any]) -> Iterator[AddedToken]:
    for token in outline.get("added_tokens") or ():
        yield AddedToken(
            content=token["content"],
            id=token["id"],
            special=bool(token.get("special")),
            lstrip=bool(token.get("lstrip")),
            rstrip=bool(token.get("rstrip")),
        )


def _is_byte_level(decoder: Any) -> bool:
    if not isinstance(decoder, dict):
        return False
    parts = decoder.get("decoders", [decoder])
    return len(parts) == 1 and parts[0].get("type") == "ByteLevel"


def _well_formed(text: str) -> str:
    """Return `text` with surrogate pairs joined and lone ones replaced, as a browser would encode
    it.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _stripped(section: str, left: bool, right: bool) -> str:
    section = section.lstrip() if left else section
    return section.rstrip() if right else section


def _joined(prefix: list[int], ids: list[int], suffix: list[int]) -> list[int]:
    has_prefix = ids[: len(prefix)] == prefix
    has_suffix = not suffix or ids[-len(suffix) :] == suffix
    return ([] if has_prefix else prefix) + ids + ([] if has_suffix else suffix)
