"""Reads the tokenizer of a GGUF file and writes it as a Hugging Face tokenizer.json.

Input:  the metadata `tokenizer.ggml.*` of a GGUF file. Output: the data of tokenizer.json.
Way of the data: GGUF -> **gguf_tokenizer** -> bundle -> runtime_py/tokenizer.py.

GGUF stores vocabulary, merges and token types, but only the *name* of the rule that splits text
before merging (`tokenizer.ggml.pre`). A wrong rule fails nowhere and spoils every prompt, so an
unknown name is refused. Source of names and rules: `llama-vocab.cpp` of ggml-org/llama.cpp, and the
tokenizer.json of the models named.

    data = to_tokenizer_json(gguf.GGUFReader("SmolLM2-135M-Instruct.Q4_1.gguf"))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from gguf.constants import TokenType

from runtime_py.errors import ExportError

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TIKTOKEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ONE_DIGIT = r"\p{N}"


class Metadata(Protocol):
    """What is asked of a `gguf.GGUFReader`."""

    def get_field(self, key: str, /) -> Any:
        """Return the field, None if the file has none; its `contents()` are plain Python data."""


@dataclass(frozen=True)
class Rule:
    """How text is split before merging: `patterns` in turn, each match a piece of its own."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    normalizer: str | None = None
    adds_bos: bool = False


SMOLLM = Rule((ONE_DIGIT, GPT2))
LLAMA3 = Rule((TIKTOKEN % "{1,3}",), ignore_merges=True, adds_bos=True)
QWEN2 = Rule((TIKTOKEN % "",), normalizer="NFC")
RULES = {
    "smollm": SMOLLM,
    "starcoder": SMOLLM,
    "gpt-2": Rule((GPT2,)),
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "qwen2": QWEN2,
}


def to_tokenizer_json(reader: Metadata, pre: str | None = None) -> dict[str, Any]:
    """Return the file's tokenizer; `pre` names the splitting rule where the file does not.

    Raises `ExportError` for another model than byte-level BPE ("gpt2"), for an unknown or missing
    splitting rule, and for a vocabulary that does not fit its merges.
    """
    rule = _rule(reader, pre)
    tokens: list[str] = _field(reader, "tokens", [])
    vocab = {token: i for i, token in enumerate(tokens)}
    if not tokens or len(vocab) != len(tokens):
        raise ExportError(
            f"tokenizer.ggml.tokens has {len(tokens)} tokens, {len(vocab)} of them different"
        )
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(reader, tokens),
        "normalizer": {"type": rule.normalizer} if rule.normalizer else None,
        "pre_tokenizer": _pre_tokenizer(rule),
        "post_processor": _post_processor(reader, tokens, rule),
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": rule.ignore_merges,
            "vocab": vocab,
            "merges": _merges(reader, vocab),
        },
    }


def _field(reader: Metadata, name: str, default: Any = None) -> Any:
    field = reader.get_field(f"tokenizer.ggml.{name}")
    return default if field is None else field.contents()


def _rule(reader: Metadata, pre: str | None) -> Rule:
    model = _field(reader, "model")
    if model != "gpt2":
        raise ExportError(
            f"tokenizer.ggml.model is {model!r}; only byte-level BPE ('gpt2') can be read",
            hint="export from the Hugging Face folder, which has a tokenizer.json",
        )
    name = pre or _field(reader, "pre")
    if name not in RULES:
        raise ExportError(
            f"the pre-tokenizer {name!r} (tokenizer.ggml.pre) is not known",
            hint="known are "
            + ", ".join(sorted(RULES))
            + "; or export from the Hugging Face folder",
        )
    return RULES[name]


def _added_tokens(reader: Metadata, tokens: list[str]) -> list[dict[str, Any]]:
    """Return the control tokens (special) and the user's own (found in any text, not special)."""
    types: list[int] = _field(reader, "token_type", [])
    if types and len(types) != len(tokens):
        raise ExportError(
            f"tokenizer.ggml.token_type has {len(types)} entries for {len(tokens)} tokens"
        )
    kept = {int(TokenType.CONTROL): True, int(TokenType.USER_DEFINED): False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": i, "content": tokens[i], **flags, "special": kept[kind]}
        for i, kind in enumerate(types)
        if kind in kept
    ]


def _pre_tokenizer(rule: Rule) -> dict[str, Any]:
    """Return the rule as explicit splits.

    The formats' own `Digits` and the pattern inside `ByteLevel` are left unused: the JavaScript
    library reads them as ASCII digits and JavaScript's spaces, Rust's as all of Unicode.
    """
    steps: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in rule.patterns
    ]
    steps.append(
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    )
    return {"type": "Sequence", "pretokenizers": steps}


def _post_processor(reader: Metadata, tokens: list[str], rule: Rule) -> dict[str, Any] | None:
    """Return a template that adds BOS and EOS around a text where the file or its rule asks."""
    before = _frame_token(reader, tokens, "bos", rule.adds_bos)
    after = _frame_token(reader, tokens, "eos", False)
    if not before and not after:
        return None
    text = [{"Sequence": {"id": "A", "type_id": 0}}]
    second = [{"Sequence": {"id": "B", "type_id": 1}}]
    frame = [{"SpecialToken": {"id": name, "type_id": 0}} for name, _ in before]
    close = [{"SpecialToken": {"id": name, "type_id": 0}} for name, _ in after]
    return {
        "type": "TemplateProcessing",
        "single": frame + text + close,
        "pair": frame + text + close + second,
        "special_tokens": {
            name: {"id": name, "ids": [i], "tokens": [name]} for name, i in before + after
        },
    }


def _frame_token(
    reader: Metadata, tokens: list[str], which: str, default: bool
) -> list[tuple[str, int]]:
    wanted = _field(reader, f"add_{which}_token", default)
    token_id = _field(reader, f"{which}_token_id")
    if not wanted:
        return []
    if not isinstance(token_id, int) or not 0 <= token_id < len(tokens):
        raise ExportError(
            f"tokenizer.ggml.{which}_token_id is {token_id!r}, but the file asks to add that token"
        )
    return [(tokens[token_id], token_id)]


def _merges(reader: Metadata, vocab: dict[str, int]) -> list[list[str]]:
    """Return the merges as pairs; every part and every result must be a token."""
    pairs = []
    for i, merge in enumerate(_field(reader, "merges", [])):
        left, _, right = merge.partition(" ")
        if left not in vocab or right not in vocab or left + right not in vocab:
            raise ExportError(
                f"tokenizer.ggml.merges[{i}] is {merge!r}, which the vocabulary cannot spell"
            )
        pairs.append([left, right])
    return pairs
