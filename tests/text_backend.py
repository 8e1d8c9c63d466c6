"""The `tokenizers` package behind `runtime_py.tokenizer.Backend`, and small tokenizers to test
with.

Input:  the data of a tokenizer.json. Output: a `Backend` that finds no special token in a text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

from runtime_py.tokenizer import Tokenizer, byte_alphabet

SPELLING = {byte: char for char, byte in byte_alphabet().items()}
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


class PackageBackend:
    """A tokenizer.json, read by Rust."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self._full = tokenizers.Tokenizer.from_str(json.dumps(data))
        self._full.encode_special_tokens = True
        rest = json.dumps(data).replace('"prepend_scheme": "first"', '"prepend_scheme": "never"')
        self._rest = tokenizers.Tokenizer.from_str(rest)
        self._rest.encode_special_tokens = True
        self.calls = 0

    def encode(self, text: str, first: bool) -> list[int]:
        self.calls += 1
        tokenizer = self._full if first else self._rest
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        self.calls += 1
        return str(self._full.decode(list(ids), skip_special_tokens=False))

    def id_to_token(self, token_id: int) -> str | None:
        token = self._full.id_to_token(token_id)
        return None if token is None else str(token)

    def outline(self) -> str:
        vocab = self._full.get_vocab(with_added_tokens=True)
        model = {"type": self._data["model"]["type"]}
        return json.dumps({**self._data, "model": model, "size": max(vocab.values()) + 1})


def bpe_data(
    merges: Sequence[str] = (),
    specials: Sequence[str | Mapping[str, Any]] = (),
    added: Sequence[str | Mapping[str, Any]] = (),
    **model: Any,
) -> dict[str, Any]:
    """Return a byte-level BPE over the 256 bytes, `merges` ("a b"), then special and added
    tokens.
    """
    tokens = [SPELLING[byte] for byte in range(256)]
    tokens += [merge.replace(" ", "", 1) for merge in merges]
    described = [(token, True) for token in specials] + [(token, False) for token in added]
    added_tokens = []
    for i, (token, special) in enumerate(described, len(tokens)):
        given = {"content": token} if isinstance(token, str) else dict(token)
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        added_tokens.append({"id": i, **flags, "special": special, **given})
    vocab = {token: i for i, token in enumerate(tokens)}
    vocab.update(model.pop("vocab", {}))
    split = {
        "type": "Split",
        "pattern": {"Regex": GPT2_PATTERN},
        "behavior": "Isolated",
        "invert": False,
    }
    bytes_ = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes_]},
        "post_processor": model.pop("post_processor", None),
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "unk_token": None,
            "vocab": vocab,
            "merges": list(merges),
            **model,
        },
    }


def byte_tokenizer(*specials: str, **more: Any) -> Tokenizer:
    """Return a tokenizer whose ids 0..255 are the bytes; special tokens follow."""
    return Tokenizer(PackageBackend(bpe_data(specials=specials, **more)))


def bos_template(name: str, token_id: int) -> dict[str, Any]:
    """Return the post-processor that puts one token before a text."""
    token = {"SpecialToken": {"id": name, "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [token, text],
        "pair": [token, text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [token_id], "tokens": [name]}},
    }


def sentencepiece_data() -> dict[str, Any]:
    """Return a small Llama-2-like tokenizer: "▁" for spaces, bytes as <0x..>, not byte-level."""
    words = ["▁", "a", "b", "▁a", "ab", "▁ab", "é"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    flags = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], **flags} for i in range(3)],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Metaspace",
            "replacement": "▁",
            "prepend_scheme": "first",
            "split": False,
        },
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "byte_fallback": True,
            "fuse_unk": True,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": ["▁ a", "a b", "▁a b"],
        },
    }
