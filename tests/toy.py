"""Two bundles small enough to be made in a test: a step with state, and a language model that recites.

Input:  a folder to write to. Output: bundles that go through the same loader, planner and engine as
any other.
The language model is a table: after token i comes the token whose logit is largest in row i. Its
reply to every message is `REPLY`, whose words are one token each.
"""

from __future__ import annotations

import itertools
import json
import pathlib

import torch

from exporter.bundle import write_bundle
from runtime_py.schema import Buffer, Constant, Constraint, Graph, Node, Port, Symbol, Value
from runtime_py.symbols import Op

REPLY = (
    "**Paris** is the capital of France .\n\n"
    "```\nprint ( 'hi' )\n```\n\n"
    "<img src=x onerror=alert(1)> <script>window.hacked=1</script> ends ."
)
CONTEXT = 2048
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|im_end|>{% endfor %}<|assistant|>"
)
SPECIALS = ("<|im_end|>", "<|assistant|>", "<|user|>", "<|system|>")


def write_counter(folder: pathlib.Path) -> pathlib.Path:
    """Write a bundle with y = x + w, x [1, S, 4], and a state acc += w; return `folder`."""
    values = [
        Value("x", "f32", (1, "S", 4)),
        Value("y", "f32", (1, "S", 4)),
        *(Value(name, "f32", (4,)) for name in ("w", "acc", "sum")),
    ]
    graph = Graph(
        symbols=(Symbol("S", 1, 8),),
        constraints=(),
        values={value.name: value for value in values},
        constants={"w": Constant("w", ())},
        buffers={"acc": Buffer("acc", None)},
        nodes=(
            Node("add", "add", ("x", "w"), ("y",)),
            Node("count", "add", ("acc", "w"), ("sum",)),
            Node("keep", "copy", ("sum", "acc"), (), mutates=("acc",)),
        ),
        inputs=(Port("x", "x"),),
        outputs=(Port("y", "y"),),
        specializations=({"S": (1, 1)},),
    )
    write_bundle(folder, graph, {"w": torch.tensor([1.0, 2.0, 3.0, 4.0])})
    return folder


def write_reciter(
    folder: pathlib.Path, name: str = "Reciter", *, endless: bool = False
) -> pathlib.Path:
    """Write the language model, one that says "L" without end if `endless`; return `folder`."""
    words = _words()
    tokens = [*_byte_names(), *SPECIALS, *words]
    first = len(tokens) - len(words)
    stop = tokens.index("<|im_end|>")
    table = torch.zeros(len(tokens), len(tokens))
    table[:, stop] = 1.0
    chain = [tokens.index("<|assistant|>"), *range(first, len(tokens)), stop]
    if endless:
        chain = []
        table[:, ord("L")] = 2.0
    for token, following in itertools.pairwise(chain):
        table[token, following] = 9.0
    write_bundle(
        folder,
        _table_graph(len(tokens)),
        {"table": table},
        text_files={
            "tokenizer.json": json.dumps(_tokenizer(words)),
            "chat_template.jinja": TEMPLATE,
        },
        text={
            "tokenizer": "tokenizer.json",
            "chat_template": "chat_template.jinja",
            "special_tokens": {"eos_token": "<|im_end|>"},
        },
        model_card={"name": name},
    )
    return folder


def _words() -> list[str]:
    """Return the pieces of `REPLY`, each different from all others, so that a table can chain them."""
    pieces: list[str] = []
    for word in REPLY.replace(" ", "\0 ").split("\0"):
        piece = word
        while piece in pieces:
            piece += "\u200b"
        pieces.append(piece)
    return pieces


def _table_graph(size: int) -> Graph:
    values = [
        Value("tokens", "i32", (1, "S")),
        Value("ids", "i32", ("S",)),
        Value("table", "f32", (size, size)),
        Value("all", "f32", ("S", size)),
        Value("rows", "i32", ("L",)),
        Value("last", "f32", ("L", size)),
        Value("logits", "f32", (1, "L", size)),
    ]
    return Graph(
        symbols=(Symbol("S", 1, 64), Symbol("input_pos", 0, CONTEXT - 1), Symbol("L", 1, 64)),
        constraints=(
            Constraint(Op("+", "S", "input_pos"), CONTEXT),
            Constraint(Op("-", "L", "S"), 0),
        ),
        values={value.name: value for value in values},
        constants={"table": Constant("table", ())},
        buffers={},
        nodes=(
            Node("flat", "view", ("tokens",), ("ids",)),
            Node("look_up", "index_select", ("table", "ids"), ("all",), {"dim": 0}),
            Node("count", "arange", (), ("rows",), {"start": Op("-", "S", "L"), "step": 1}),
            Node("cut", "index_select", ("all", "rows"), ("last",), {"dim": 0}),
            Node("shape", "view", ("last",), ("logits",)),
        ),
        inputs=(Port("tokens", "tokens"),),
        outputs=(Port("logits", "logits"),),
        specializations=({"S": (1, 1), "L": (1, 1)},),
    )


def _byte_names() -> list[str]:
    """Return the 256 characters by which byte-level BPE spells bytes (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    odd = [byte for byte in range(256) if byte not in plain]
    names = {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(odd)}
    return [names[byte] for byte in range(256)]


def _tokenizer(words: list[str]) -> dict[str, object]:
    """Return tokenizer.json: single bytes, the special tokens, and every word as an added token."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    added = [(token, True) for token in SPECIALS] + [(word, False) for word in words]
    return {
        "version": "1.0",
        "added_tokens": [
            {
                "id": 256 + i,
                "content": token,
                "special": special,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for i, (token, special) in enumerate(added)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level | {"trim_offsets": True},
        "post_processor": None,
        "decoder": byte_level | {"trim_offsets": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "vocab": {name: byte for byte, name in enumerate(_byte_names())},
            "merges": [],
        },
    }
