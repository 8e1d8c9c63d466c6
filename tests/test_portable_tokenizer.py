"""A tokenizer.json as Rust reads the original must be what Node reads of its portable form."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.models.portable_tokenizer import portable
from runtime_py.errors import ExportError
from tests.test_tokenizer_js import TEXTS, node, random_texts
from tests.text_backend import SPELLING, PackageBackend, bpe_data, sentencepiece_data

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
PATTERN = {"Regex": r"\s+|[a-z]+"}
PARTS: dict[str, dict[str, Any]] = {
    "one_digit": {"type": "Digits", "individual_digits": True},
    "digits": {"type": "Digits", "individual_digits": False},
    "punctuation": {"type": "Punctuation", "behavior": "Isolated"},
    "punctuation_runs": {"type": "Punctuation", "behavior": "Contiguous"},
    "whitespace": {"type": "Whitespace"},
    "whitespace_split": {"type": "WhitespaceSplit"},
    "own_pattern": {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    },
    "isolated": {"type": "Split", "pattern": PATTERN, "behavior": "Isolated", "invert": False},
    "isolated_inverted": {
        "type": "Split",
        "pattern": PATTERN,
        "behavior": "Isolated",
        "invert": True,
    },
    "removed": {"type": "Split", "pattern": PATTERN, "behavior": "Removed", "invert": False},
    "removed_inverted": {
        "type": "Split",
        "pattern": PATTERN,
        "behavior": "Removed",
        "invert": True,
    },
    "string": {
        "type": "Split",
        "pattern": {"String": "a."},
        "behavior": "Isolated",
        "invert": False,
    },
}
# Merges over every border that a rule could put or miss, spelled as text: here between "１" and "２"
# (bytes 91 and EF), "!" and U+0085 (21 and C2), "!" and U+FEFF (21 and EF).
BORDERS = [
    b"1 2",
    b"a .",
    b". .",
    b". a",
    b"3 +",
    b"! !",
    b"\x91 \xef",
    b"! \xc2",
    b"! \xef",
    b"\n \n",
]
MERGES = [" ".join(SPELLING[part[0]] for part in border.split(b" ")) for border in BORDERS]
EXTRA = ["12 3+3 ..a !! ", "!\u0085! !\ufeff!", "１２a. a.a", "(a)-[b]_c «d» $e ^f", "a  b"]
# What the library reads differently in the original; the rest is rewritten for one common form.
DIFFER = {
    "one_digit",
    "punctuation",
    "whitespace",
    "whitespace_split",
    "own_pattern",
    "isolated_inverted",
}


@pytest.mark.parametrize("name", PARTS)
def test_every_part_splits_in_node_as_the_original_in_rust(name: str) -> None:
    steps = [PARTS[name]] if name == "own_pattern" else [PARTS[name], BYTES]
    data = {
        **bpe_data(merges=MERGES),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
    }
    texts = [*TEXTS, *EXTRA, *random_texts(60)]
    rust = [PackageBackend(data).encode(text, True) for text in texts]
    assert node(tokenizer=portable(data), texts=texts)["ids"] == rust
    assert [PackageBackend(portable(data)).encode(text, True) for text in texts] == rust


@pytest.mark.parametrize("name", sorted(DIFFER))
def test_the_original_would_be_read_differently(name: str) -> None:
    steps = [PARTS[name]] if name == "own_pattern" else [PARTS[name], BYTES]
    data = {
        **bpe_data(merges=MERGES),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
    }
    rust = [PackageBackend(data).encode(text, True) for text in EXTRA]
    assert node(tokenizer=data, texts=EXTRA)["ids"] != rust


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("scheme", ["first", "always", "never"])
def test_metaspace(scheme: str, split: bool) -> None:
    data = sentencepiece_data()
    data["pre_tokenizer"] |= {"prepend_scheme": scheme, "split": split}
    data["model"]["vocab"] |= {"a▁": 400, "▁▁": 401}
    data["model"]["merges"] += ["a ▁", "▁ ▁"]
    texts = ["a b", "ab  a ", " a", "", "é  a"]
    result = node(tokenizer=portable(data), texts=texts)
    backend = PackageBackend(data)
    assert result["ids"] == [backend.encode(text, True) for text in texts]
    assert result["later"] == [backend.encode(text, False) for text in texts]


def test_truncation_and_padding_are_dropped() -> None:
    data = {**bpe_data(), "truncation": {"max_length": 2}, "padding": {"strategy": "BatchLongest"}}
    assert (portable(data)["truncation"], portable(data)["padding"]) == (None, None)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": {"type": "Unigram", "vocab": []}}, "'Unigram'"),
    ({"model": {"type": "BPE", "vocab": {}, "continuing_subword_prefix": "##"}}, "prefix"),
    ({"normalizer": {"type": "Nmt"}}, "normalizer 'Nmt'"),
    ({"decoder": {"type": "Sequence", "decoders": [{"type": "CTC"}]}}, "decoder 'CTC'"),
    ({"post_processor": {"type": "BertProcessing"}}, "processor 'BertProcessing'"),
    ({"pre_tokenizer": {"type": "UnicodeScripts"}}, "'UnicodeScripts'"),
    ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}}, "adds a space"),
    ({"pre_tokenizer": {"type": "Punctuation", "behavior": "Removed"}}, "'Removed'"),
    (
        {"pre_tokenizer": {"type": "Split", "pattern": {}, "behavior": "MergedWithNext"}},
        "MergedWithNext",
    ),
    ({"added_tokens": [{"content": "x", "id": 0, "single_word": True}]}, "single words"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_what_has_no_equal_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ExportError, match=message):
        portable({**bpe_data(), **changes})
