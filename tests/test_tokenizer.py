"""Text to ids and back: special tokens only where they belong, text piece by piece."""

from __future__ import annotations

import json
import random
import time

import pytest

from runtime_py.detokenizer import Detokenizer
from runtime_py.errors import InputError, TokenizerError
from runtime_py.stops import StopStrings, stop_token_ids
from runtime_py.tokenizer import Tokenizer, byte_alphabet
from tests.text_backend import (
    PackageBackend,
    bos_template,
    bpe_data,
    byte_tokenizer,
    sentencepiece_data,
)

TEXTS = ["hello", "in 2024", " a  b\n\n", "世界 😊", "", "\x00\xff", "x" * 100, "<|im_", "é"]


def spelled(ids: list[int]) -> list[int | str]:
    return [chr(i) if i < 256 else i for i in ids]


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_the_round_trip(text: str) -> None:
    tokenizer = byte_tokenizer("<|im_start|>")
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_byte_alphabet_is_one_to_one() -> None:
    alphabet = byte_alphabet()
    assert sorted(alphabet.values()) == list(range(256))
    assert (alphabet["!"], alphabet["Ġ"], alphabet["Ċ"], alphabet["ÿ"]) == (33, 32, 10, 255)


def test_special_tokens_are_found_in_text() -> None:
    tokenizer = byte_tokenizer("<|im_start|>", "<|im_end|>")
    assert spelled(tokenizer.encode("<|im_start|>hi<|im_end|>")) == [256, "h", "i", 257]


def test_a_guarded_special_token_is_text_and_the_guard_is_dropped() -> None:
    tokenizer = byte_tokenizer("<|im_start|>")
    text = "<|im_start|>a<\ufdd0|im_start|>b"
    ids = tokenizer.encode(text, guard="\ufdd0")
    assert ids[0] == 256
    assert 256 not in ids[1:]
    assert tokenizer.decode(ids) == "<|im_start|>a<|im_start|>b"


def test_merges_cross_the_border_of_sections_that_are_one_text() -> None:
    tokenizer = byte_tokenizer("<s>", merges=["a b"])
    assert tokenizer.encode("<s>a\ufdd0b", guard="\ufdd0") == [257, 256]
    assert tokenizer.encode("a<s>b") == [97, 257, 98]


def test_case_29_added_tokens() -> None:
    swallow = {"content": "<|user|>", "rstrip": True}
    tokenizer = Tokenizer(
        PackageBackend(bpe_data(specials=[swallow, "<a", "<a>"], added=["<think>", "</think>"]))
    )
    user, short, long, think, unthink = range(256, 261)
    assert spelled(tokenizer.encode("<think>x</think>")) == [think, "x", unthink]
    assert spelled(tokenizer.encode("<|user|>  \n Hello"))[:2] == [user, "H"]
    assert tokenizer.encode("<a>") == [long]
    assert spelled(tokenizer.encode("<ab")) == [short, "b"]


def test_lstrip_takes_the_spaces_before() -> None:
    tokenizer = Tokenizer(
        PackageBackend(bpe_data(specials=[{"content": "<mask>", "lstrip": True}]))
    )
    assert spelled(tokenizer.encode("a  <mask> b")) == ["a", 256, " ", "b"]


def test_case_34e_a_framed_text_has_exactly_one_bos() -> None:
    tokenizer = byte_tokenizer("<bos>", post_processor=bos_template("<bos>", 256))
    assert spelled(tokenizer.encode("hi", frame=True)) == [256, "h", "i"]
    assert spelled(tokenizer.encode("<bos>hi", frame=True)) == [256, "h", "i"]
    assert spelled(tokenizer.encode("hi")) == ["h", "i"]
    told = Tokenizer(PackageBackend(bpe_data(specials=["<bos>"])), bos="<bos>")
    assert spelled(told.encode("hi", frame=True)) == [256, "h", "i"]


def test_sentencepiece_like_text_gets_one_leading_space_mark() -> None:
    tokenizer = Tokenizer(PackageBackend(sentencepiece_data()))
    start = tokenizer.specials["<s>"].id
    opening, later = tokenizer.encode("ab"), tokenizer.encode("<s>ab")
    assert (tokenizer.decode(opening), later[0]) == ("ab", start)
    assert len(opening) == 1
    assert later[1:] != opening, "after a special token no space is put in"


@pytest.mark.parametrize("text", ["\ud83d\ude0a", "a\ud800b", "\udfff"])
def test_lone_surrogates_do_not_fail(text: str) -> None:
    tokenizer = byte_tokenizer()
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert tokenizer.decode(tokenizer.encode(text)) == expected


def test_text_of_another_type_is_refused() -> None:
    with pytest.raises(InputError):
        byte_tokenizer().encode(b"hi")  # type: ignore[arg-type]


def test_an_unreadable_outline_is_refused() -> None:
    class Broken(PackageBackend):
        def outline(self) -> str:
            return json.dumps([1])

    with pytest.raises(TokenizerError):
        Tokenizer(Broken(bpe_data()))


def test_unknown_ids_decode_to_nothing() -> None:
    tokenizer = byte_tokenizer()
    assert tokenizer.decode([104, 99999, 105]) == "hi"


def test_added_tokens_are_not_read_as_bytes() -> None:
    tokenizer = byte_tokenizer("Ġé")  # the letters themselves, not the bytes 20 E9
    assert tokenizer.decode([256]) == "Ġé"
    assert tokenizer.decode([256, 104], skip_special=True) == "h"


# Detokenising ---------------------------------------------------------------------------------


def deltas(tokenizer: Tokenizer, ids: list[int], skip_special: bool = False) -> list[str]:
    detokenizer = Detokenizer(tokenizer, skip_special)
    return [*map(detokenizer.push, ids), detokenizer.finish()]


SMILE, WORLD = list("😊".encode()), list("世".encode())
CASE_30 = {
    "emoji_cut": (SMILE[:2], ["", "", "\ufffd"]),
    "emoji": (SMILE, ["", "", "", "😊", ""]),
    "cjk_then_half_then_ascii": (WORLD + WORLD[:2] + [65], ["", "", "世", "", "", "\ufffdA", ""]),
    "lone_ff": ([0xFF], ["\ufffd", ""]),
    "space_after_half": ([*SMILE[:3], 32, 104], ["", "", "", "\ufffd ", "h", ""]),
    "bad_then_good": ([0xF0, 0x9F, 0xFF, 65], ["", "", "\ufffd\ufffd", "A", ""]),
}


@pytest.mark.parametrize("name", CASE_30)
def test_case_30_no_sequence_is_split_or_said_twice(name: str) -> None:
    ids, expected = CASE_30[name]
    assert deltas(byte_tokenizer(), ids) == expected


@pytest.mark.parametrize("seed", range(20))
def test_case_30_deltas_add_up_to_the_one_shot_text_at_every_prefix(seed: int) -> None:
    rng = random.Random(seed)
    tokenizer = byte_tokenizer("<|end|>")
    ids = [rng.choice([*SMILE, *WORLD, 65, 32, 0xFF, 0xE4, 256]) for _ in range(40)]
    for end in range(len(ids) + 1):
        assert "".join(deltas(tokenizer, ids[:end])) == tokenizer.decode(ids[:end])
        skipped = "".join(deltas(tokenizer, ids[:end], skip_special=True))
        assert skipped == tokenizer.decode(ids[:end], skip_special=True)


@pytest.mark.parametrize("text", ["ab ab é a", "世界 ab", "a  b", "😊 é"])
def test_other_vocabularies_stream_too(text: str) -> None:
    tokenizer = Tokenizer(PackageBackend(sentencepiece_data()))
    assert not tokenizer.is_byte_level
    ids = tokenizer.encode(text)
    pieces = deltas(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids) == text
    assert "\ufffd" not in "".join(pieces)


def test_garbage_in_other_vocabularies_costs_little() -> None:
    backend = PackageBackend(sentencepiece_data())
    tokenizer = Tokenizer(backend)
    ids = [3 + 0xFF] * 500
    backend.calls = 0
    assert "".join(deltas(tokenizer, ids)) == "\ufffd" * 500
    assert backend.calls < 40


def test_detokenising_costs_the_same_for_every_token() -> None:
    tokenizer = byte_tokenizer()
    detokenizer = Detokenizer(tokenizer)

    def batch_s() -> float:
        start = time.perf_counter()
        for _ in range(5000):
            detokenizer.push(97)
        return time.perf_counter() - start

    first = min(batch_s() for _ in range(3))
    for _ in range(10):
        batch_s()
    assert min(batch_s() for _ in range(3)) < 4 * first  # a growing cost would be 5 times and more


# Ends -------------------------------------------------------------------------------------------


def feed(stops: tuple[str, ...], pieces: list[str]) -> tuple[list[str], bool]:
    matcher = StopStrings(stops)
    shown = []
    for piece in pieces:
        text, stopped = matcher.push(piece)
        shown.append(text)
        if stopped:
            return shown, True
    return [*shown, matcher.finish()], False


@pytest.mark.parametrize(
    ("stops", "pieces", "shown", "stopped"),
    [
        (("END",), ["abEND"], ["ab"], True),
        (("END",), ["abE", "N", "Dc"], ["ab", "", ""], True),
        (("END",), ["abE", "N", "X"], ["ab", "", "ENX", ""], False),
        (("END",), ["EN", "END"], ["", "EN"], True),
        (("aab",), ["aaa", "b"], ["a", ""], True),
        (("END",), ["abEN"], ["ab", "EN"], False),
        (("xyz", "yq"), ["xy", "q"], ["", "x"], True),
        ((), ["END"], ["END", ""], False),
        (("\n\n",), ["a\n", "\nb"], ["a", ""], True),
        (("😊",), ["a😊b"], ["a"], True),
    ],
)
def test_stop_strings(
    stops: tuple[str, ...], pieces: list[str], shown: list[str], stopped: bool
) -> None:
    assert feed(stops, pieces) == (shown, stopped)


def test_case_33_end_tokens_are_united() -> None:
    specials = {"<eos>": 5, "<|im_end|>": 9, "<|user|>": 10}
    text = {"special_tokens": {"eos_token": "<eos>"}}
    generation = {"eos_token_id": [7, 8]}
    assert stop_token_ids(text, generation, specials) == {5, 7, 8, 9}
    assert stop_token_ids({"eos_token_ids": [1, 2]}, {"eos_token_id": 3}, {}) == {1, 2, 3}
    assert stop_token_ids({}, {"eos_token_id": None}, {}) == frozenset()
