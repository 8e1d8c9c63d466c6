"""The JavaScript tokenizer library in Node against Rust's, on the same tokenizer.json.

Both see files without special tokens in their texts; tests/test_tokenizer.py covers what Python
adds. Node and web/node_modules are required: without them these tests fail.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import random
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from exporter.models.gguf_tokenizer import RULES, to_tokenizer_json
from tests import smollm2
from tests.smollm2 import FieldReader
from tests.text_backend import PackageBackend, bpe_data, sentencepiece_data
from tests.tolerances import MAX_LOOKUP_RATIO_PER_DOUBLING, MAX_TIME_RATIO_PER_DOUBLING

HERE = pathlib.Path(__file__).parent
TEXTS = [
    "The capital of France is",
    "in 2024, 3333+777 １２ ½ ² ٣ Ⅷ",
    "don't I'LL we'Ve",
    "  a   b\n\n\n c\t\td \r\n\r\n",
    "😀 👩‍👩‍👧 🇫🇷 世界你好 日本語 Привет عربى",
    "a\u0085b \ufeffBOM a\u00a0b \u2028x \u200b\u200d",
    "def f(x):\n    return x**2  # 1.5e-10\n",
    "é e\u0301 ﬁ İstanbul ß 𝔘𝔫𝔦",
    "th\x04e \x00\x7f\x1d \U00050000",
    "<|im_start|>user<|im_end|>",
    "constructor __proto__ toString end",
    "",
]


def random_texts(count: int) -> list[str]:
    rng = random.Random(5)
    ranges = [
        (9, 14),
        (32, 0x250),
        (0x370, 0x500),
        (0x4E00, 0x4E40),
        (0x1F600, 0x1F640),
        (0x2000, 0x2070),
    ]
    pool = [chr(code) for low, high in ranges for code in range(low, high)] + list(
        "\u0085\ufeff\u3000\uff11"
    )
    return [
        "".join(
            rng.choice(pool) if rng.random() < 0.5 else rng.choice(" aeiotn\n 12'")
            for _ in range(40)
        )
        for _ in range(count)
    ]


def node(**job: Any) -> dict[str, Any]:
    """Run tests/node_tokenizer.mjs on `job`."""
    program = shutil.which("node")
    assert program, "Node is required: install Node 20 or later"
    done = subprocess.run(
        [program, str(HERE / "node_tokenizer.mjs")],
        input=json.dumps(job).encode(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def check_equal(data: dict[str, Any], texts: Sequence[str]) -> None:
    backend, result = (
        PackageBackend(data),
        node(tokenizer=data, texts=texts, lookup=[0, 255, 10**6]),
    )
    for text, first, later in zip(texts, result["ids"], result["later"], strict=True):
        assert first == backend.encode(text, True), repr(text)
        assert later == backend.encode(text, False), repr(text)
    assert result["tokens"] == [backend.id_to_token(i) for i in (0, 255, 10**6)]
    assert result["size"] == json.loads(backend.outline())["size"]
    assert not result["has_vocab"]


def test_smollm2_encodes_as_in_rust() -> None:
    check_equal(smollm2.tokenizer_data(), TEXTS + random_texts(150))


@pytest.mark.parametrize("pre", sorted(set(RULES) - {"smollm"}))
def test_every_rule_splits_as_in_rust(pre: str) -> None:
    fields = {**smollm2.fields(), "tokenizer.ggml.pre": pre}
    check_equal(to_tokenizer_json(FieldReader(fields)), TEXTS + random_texts(40))


def test_other_vocabularies_encode_as_in_rust() -> None:
    check_equal(sentencepiece_data(), ["ab", "a b ab", " a", "é 世", ""])


def test_other_vocabularies_decode_as_in_rust() -> None:
    data = sentencepiece_data()
    backend = PackageBackend(data)
    lists = [backend.encode(text, True) for text in ("ab", "a b ab", "é 世 😊")]
    lists += [[1, *lists[0], 2], [3 + 0xE4, 3 + 0xB8], []]
    assert node(tokenizer=data, decode=lists)["decoded"][:4] == [
        backend.decode(ids) for ids in lists[:4]
    ]
    assert node(tokenizer=data, decode=lists)["decoded"][4:] == ["\ufffd", ""]


def test_case_27_a_whole_piece_in_the_vocabulary_wins_before_merges() -> None:
    viet = "ĠViá»ĩt"
    merges = ["Ġ V", "ĠV i", "á »", "á» ĩ"]
    for ignore, count in ((True, 1), (False, 3)):
        data = bpe_data(merges=merges, ignore_merges=ignore, vocab={viet: 260})
        ids = node(tokenizer=data, texts=[" Việt"])["ids"][0]
        assert ids == PackageBackend(data).encode(" Việt", True)
        assert len(ids) == count
        assert (ids == [260]) is ignore


def test_case_29_added_tokens_that_are_not_special() -> None:
    data = bpe_data(
        added=["<think>", "</think>", {"content": "<|user|>", "rstrip": True}, "<a", "<a>"],
        specials=["<s>"],
    )
    texts = ["<think>x</think>", "<|user|>  Hello", "<a>", "<ab", "<a<a>", "<s>"]
    check_equal(data, texts)
    ids = node(tokenizer=data, texts=texts)["ids"]
    assert ids[0] == [257, ord("x"), 258]
    assert ids[1][0] == 259
    assert ids[1][1] == ord("H")
    assert ids[2] == [261]
    assert ids[5] == [*b"<s>"], "a special token in a text is text"


def test_case_31_the_heap_merges_as_the_plain_algorithm_does() -> None:
    merges = ["a a", "aa a", "a b", "aa aa", "b a", "ab ab", "b b"]
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
    rng = random.Random(3)
    texts = ["".join(rng.choice("aab") for _ in range(rng.randint(1, 30))) for _ in range(200)]
    data = bpe_data(merges=merges)
    vocab = data["model"]["vocab"]
    assert node(tokenizer=data, texts=texts)["ids"] == [
        [vocab[t] for t in naive(text, ranks)] for text in texts
    ]


def naive(text: str, ranks: dict[Any, int]) -> list[str]:
    """Merge the pair of least rank, the leftmost first, until there is none."""
    parts = list(text)
    while True:
        pairs = [(ranks.get(pair, 10**9), i) for i, pair in enumerate(itertools.pairwise(parts))]
        rank, i = min(pairs, default=(10**9, 0))
        if rank == 10**9:
            return parts
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def test_case_31_one_long_piece_costs_in_proportion() -> None:
    counts, units = [4096, 8192, 16384], ["x", "_", "世", "\n"]
    result = node(tokenizer=smollm2.tokenizer_data(), repeats=[[unit, counts] for unit in units])
    for unit, costs in zip(units, result["costs"], strict=True):
        small, _, large = costs
        assert large["lookups"] < MAX_LOOKUP_RATIO_PER_DOUBLING**2 * small["lookups"], (unit, costs)
        assert large["ms"] < MAX_TIME_RATIO_PER_DOUBLING**2 * small["ms"], (unit, costs)
        assert large["ms"] < 3000, (unit, costs)
