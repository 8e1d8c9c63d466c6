"""Rewrites a Hugging Face tokenizer.json so that the browser's library reads it as Rust's does.

Input:  the data of a tokenizer.json. Output: an equal tokenizer made of the parts that both read
alike.
Way of the data: checkpoint folder -> **portable_tokenizer** -> bundle -> web/tokenizer.js.

`@huggingface/tokenizers` 0.2 (JavaScript) takes some parts for less than Rust does, and says
nothing:
    Digits, Whitespace, WhitespaceSplit   ASCII digits and JavaScript's spaces instead of Unicode's
    ByteLevel with its own pattern        JavaScript's spaces
    Punctuation                           a run of punctuation is one piece
    Metaspace with `split`                does not split
    Split with `invert`                   drops what lies between
Those become `Split`s by a pattern, which it translates faithfully. What cannot be carried over is
refused here, not met in a browser.

    data = portable(json.loads(Path("tokenizer.json").read_text()))
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from exporter.models.gguf_tokenizer import GPT2, ONE_DIGIT
from runtime_py.errors import ExportError

Json = dict[str, Any]
PUNCTUATION = r"[!-/:-@\[-`{-~\p{P}]"
NORMALIZERS = {
    *("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Precompiled", "Prepend"),
    *("Replace", "Strip", "StripAccents"),
}
DECODERS = {"ByteLevel", "Metaspace", "Replace", "ByteFallback", "Fuse", "Strip", "BPEDecoder"}
POST_PROCESSORS = {"TemplateProcessing", "ByteLevel"}


def portable(data: Mapping[str, Any]) -> Json:
    """Return the rewritten tokenizer; raises `ExportError` naming the part that has no equal."""
    model = data.get("model") or {}
    if model.get("type") not in ("BPE", None) or not isinstance(model.get("vocab"), dict):
        raise _refused(f"its model is {model.get('type')!r}, only BPE can be carried over")
    if model.get("continuing_subword_prefix"):
        raise _refused("its BPE has a continuing_subword_prefix")
    for token in data.get("added_tokens") or ():
        if token.get("single_word"):
            raise _refused(f"its added token {token['content']!r} matches single words only")
    _check_parts(data.get("normalizer"), "normalizers", NORMALIZERS)
    _check_parts(data.get("decoder"), "decoders", DECODERS)
    _check_parts(data.get("post_processor"), "processors", POST_PROCESSORS)
    return {
        **data,
        "truncation": None,
        "padding": None,
        "added_tokens": list(data.get("added_tokens") or ()),
        "normalizer": data.get("normalizer"),
        "pre_tokenizer": _pre_tokenizer(data.get("pre_tokenizer")),
        "post_processor": data.get("post_processor"),
        "decoder": data.get("decoder"),
        "model": {**model, "type": "BPE", "dropout": None},
    }


def _pre_tokenizer(part: Json | None) -> Json | None:
    """Return an equal pre-tokenizer: a sequence, flat, of `Split`, `ByteLevel` and `Metaspace`."""
    return None if part is None else {"type": "Sequence", "pretokenizers": _steps(part)}


def _steps(part: Json) -> list[Json]:
    kind = part.get("type")
    if kind == "Sequence":
        return [step for item in part["pretokenizers"] for step in _steps(item)]
    if kind == "Digits":
        return [_split(ONE_DIGIT if part.get("individual_digits") else ONE_DIGIT + "+")]
    if kind == "Whitespace":
        return [_split(r"\w+|[^\w\s]+", "Removed", invert=True)]
    if kind == "WhitespaceSplit":
        return [_split(r"\s+", "Removed")]
    if kind == "Punctuation":
        return [_punctuation(part)]
    if kind == "Metaspace":
        return _metaspace(part)
    if kind == "ByteLevel":
        return _byte_level(part)
    if kind == "Split":
        return [_checked_split(part)]
    raise _refused(f"its pre-tokenizer {kind!r} is not known")


def _split(pattern: str, behavior: str = "Isolated", invert: bool = False) -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def _punctuation(part: Json) -> Json:
    behavior = part.get("behavior", "Isolated")
    if behavior not in ("Isolated", "Contiguous"):
        raise _refused(f"its Punctuation is {behavior!r}")
    return _split(PUNCTUATION + ("+" if behavior == "Contiguous" else ""))


def _metaspace(part: Json) -> list[Json]:
    """Return the part without `split`, and the split itself: every mark opens a piece."""
    mark = re.escape(part.get("replacement", "▁"))
    whole = {**part, "split": False}
    return [whole, _split(f"{mark}[^{mark}]*|[^{mark}]+")] if part.get("split", True) else [whole]


def _byte_level(part: Json) -> list[Json]:
    if part.get("add_prefix_space"):
        raise _refused("its ByteLevel adds a space before every text")
    bare = {**part, "add_prefix_space": False, "use_regex": False}
    return [_split(GPT2), bare] if part.get("use_regex", True) else [bare]


def _checked_split(part: Json) -> Json:
    behavior, invert = part.get("behavior"), bool(part.get("invert"))
    if behavior == "Isolated":
        return {**part, "invert": False}  # what matches and what does not are both kept, as pieces
    if behavior == "Removed":
        return {**part, "invert": invert}
    raise _refused(f"its Split is {behavior!r}")


def _check_parts(part: Json | None, nested: str, known: set[str]) -> None:
    for item in (part or {}).get(nested, [part]):
        if item is not None and item.get("type") not in known:
            raise _refused(f"its {nested.rstrip('s')} {item.get('type')!r} is not known")


def _refused(reason: str) -> ExportError:
    return ExportError(
        f"tokenizer.json cannot be carried over: {reason}",
        hint="ask for support, naming the model",
    )
