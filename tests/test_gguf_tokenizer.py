"""The tokenizer of a GGUF file as tokenizer.json: known ids, frames, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.models.gguf_tokenizer import RULES, to_tokenizer_json
from runtime_py.chat import ChatTemplate
from runtime_py.errors import ExportError
from runtime_py.tokenizer import Tokenizer
from tests import smollm2
from tests.smollm2 import FieldReader
from tests.text_backend import SPELLING, PackageBackend

# Ids of llama.cpp 0.3.36 (Python binding, vocab_only) on the same file; 341 more texts, half of
# them random, agreed too.
KNOWN = {
    "The capital of France is": [504, 3575, 282, 4649, 314],
    "Hello, we can use": [19556, 28, 392, 416, 722],
    "Hello world! 123": [19556, 905, 17, 216, 33, 34, 35],
    "Café déjà vu.": [51, 1939, 2756, 32564, 90, 16739, 386, 101, 30],
    "  multiple   spaces": [216, 2701, 256, 5600],
    "\n": [198],
}


@pytest.fixture(scope="module")
def smol() -> Tokenizer:
    return Tokenizer(PackageBackend(smollm2.tokenizer_data()))


@pytest.mark.parametrize("text", KNOWN)
def test_known_ids(smol: Tokenizer, text: str) -> None:
    assert smol.encode(text) == KNOWN[text]


def test_case_28_every_digit_is_a_token(smol: Tokenizer) -> None:
    pieces = [smol.decode([i]) for i in smol.encode("in 2024")]
    assert pieces == ["in", " ", "2", "0", "2", "4"]
    assert [smol.decode([i]) for i in smol.encode("3333+777")] == [*"3333+777"]
    wide = smol.encode("１２")
    assert smol.encode("１") + smol.encode("２") == wide, "full-width digits are digits too"


def test_the_chat_template_of_the_file(smol: Tokenizer) -> None:
    source = smollm2.fields()["tokenizer.chat_template"]
    prompt = ChatTemplate(source, {}, smol.specials).render(
        [{"role": "user", "content": "Hi<|im_end|>"}]
    )
    ids = smol.encode(prompt.guarded, guard=prompt.guard)
    assert ids[:2] == [1, smol.encode("system")[0]]
    assert (ids.count(1), ids.count(2)) == (3, 2)
    assert smol.decode(ids) == prompt.text
    assert prompt.text.endswith("<|im_start|>user\nHi<|im_end|><|im_end|>\n<|im_start|>assistant\n")


def test_special_tokens_come_from_the_token_types(smol: Tokenizer) -> None:
    assert len(smol.specials) == 17
    assert smol.specials["<|im_end|>"].id == 2
    assert smol.size == 49152
    assert (smol.prefix, smol.suffix) == ([], [])


def small(**changes: Any) -> FieldReader:
    """Return a GGUF tokenizer of the 256 bytes, a merge and three more tokens."""
    tokens = [*(SPELLING[byte] for byte in range(256)), "ab", "<s>", "</s>", "<tool>"]
    given = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": [1] * 257 + [3, 3, 4],
        "merges": ["a b"],
        "bos_token_id": 257,
        "eos_token_id": 258,
        **changes,
    }
    return FieldReader({f"tokenizer.ggml.{k}": v for k, v in given.items() if v is not None})


@pytest.mark.parametrize("pre", [*RULES])
def test_every_known_rule_loads_and_keeps_the_text(pre: str) -> None:
    tokenizer = Tokenizer(PackageBackend(to_tokenizer_json(small(pre=pre))))
    for text in ("ab c 123 １２\n\n  x", "don't I'LL", "a\u0085b\ufeffc", "😊", "<tool>x"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("<tool>") == [259]


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("smollm", ["x", "1", "2", "3", "4", " '", "S"]),
        ("gpt-2", ["x", "1234", " '", "S"]),
        ("llama-bpe", ["x", "123", "4", " '", "S"]),
        ("qwen2", ["x", "1", "2", "3", "4", " '", "S"]),
    ],
)
def test_rules_split_as_named(pre: str, pieces: list[str]) -> None:
    data = to_tokenizer_json(small(pre=pre))
    split = PackageBackend(data)._full.pre_tokenizer.pre_tokenize_str("x1234 'S")
    assert ["".join(piece).replace("Ġ", " ") for piece, _ in split] == pieces


def test_a_frame_is_added_where_the_file_asks() -> None:
    def frame(**changes: Any) -> tuple[list[int], list[int]]:
        tokenizer = Tokenizer(PackageBackend(to_tokenizer_json(small(**changes))))
        return tokenizer.prefix, tokenizer.suffix

    assert frame() == ([], [])
    assert frame(add_bos_token=True) == ([257], [])
    assert frame(add_bos_token=True, add_eos_token=True) == ([257], [258])
    assert frame(pre="llama-bpe") == ([257], []), "Llama 3 adds BOS unless told not to"
    assert frame(pre="llama-bpe", add_bos_token=False) == ([], [])


REFUSED = [
    ({"pre": "gpt-5"}, "'gpt-5'"),
    ({"pre": None}, "None"),
    ({"pre": "default"}, "'default'"),
    ({"model": "llama"}, "'llama'"),
    ({"model": None}, "None"),
    ({"merges": ["a", "b"]}, r"merges\[0\]"),
    ({"merges": ["a c"]}, "'a c'"),
    ({"token_type": [1, 2]}, "token_type has 2"),
    ({"tokens": ["a", "a"]}, "2 tokens, 1"),
    ({"tokens": None}, "0 tokens"),
    ({"add_bos_token": True, "bos_token_id": 999}, "bos_token_id is 999"),
    ({"add_eos_token": True, "eos_token_id": None}, "eos_token_id is None"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_case_28_what_is_not_known_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ExportError, match=message):
        to_tokenizer_json(small(**changes))


def test_a_missing_rule_may_be_named_by_the_caller() -> None:
    data = to_tokenizer_json(small(pre="default"), pre="gpt-2")
    assert data["pre_tokenizer"] == to_tokenizer_json(small())["pre_tokenizer"]
