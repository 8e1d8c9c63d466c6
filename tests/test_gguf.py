"""The GGUF importer: exact blocks, row order, tied heads, and files that lie about their sizes.

Input:  GGUF files written here. Output: none.
Way of the data: `models.gguf` and `models.gguf_header` against the gguf package and the oracle.
"""

from __future__ import annotations

import struct
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind
from tokenizers import Tokenizer

from exporter.models import load_checkpoint
from exporter.models.gguf import load_gguf
from exporter.models.gguf_header import check_header
from exporter.quantize import QuantEmbedding, QuantLinear
from runtime_py.errors import ExportError, OptionError
from tests import tolerances
from tests.checkpoints import TINY, WIDE_HEADS, Sizes, make_weights, oracle_logits, write_gguf
from tests.smollm2 import gguf_path

IDS = [3, 17, 200, 4, 4, 91, 259]
MIXED = {
    "q_proj.weight": Kind.Q4_1,
    "k_proj.weight": Kind.Q4_0,
    "v_proj.weight": Kind.Q8_0,
    "o_proj.weight": Kind.Q4_0,
    "gate_proj.weight": Kind.Q4_1,
    "up_proj.weight": Kind.Q4_0,
    "down_proj.weight": Kind.F16,
    "embed_tokens.weight": Kind.Q8_0,
}
VARIANTS: dict[str, tuple[Sizes, str, dict[str, Kind]]] = {
    "llama-f32": (TINY, "llama", {}),
    "llama-mixed": (TINY, "llama", MIXED),
    "llama-wide-heads": (WIDE_HEADS, "llama", MIXED),
    "llama-untied": (replace(TINY, tied=False), "llama", {**MIXED, "lm_head.weight": Kind.Q4_0}),
    "qwen2": (replace(TINY, qkv_bias=True), "qwen2", MIXED),
    "qwen3": (replace(WIDE_HEADS, qk_norm=True), "qwen3", {}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_equal_the_oracle(name: str, tmp_path: Path) -> None:
    sizes, arch, kinds = VARIANTS[name]
    seen = write_gguf(tmp_path / "m.gguf", sizes, make_weights(sizes, 0), kinds, arch)
    model = load_gguf(tmp_path / "m.gguf", max_context=32).model
    found = model.logits(IDS).double()
    torch.testing.assert_close(found, oracle_logits(sizes, seen, IDS), **tolerances.ORACLE_F64)


@pytest.mark.model
def test_the_real_file_continues_as_an_independent_run_does() -> None:
    """SmolLM2-135M-Instruct, "The capital of France is", greedily, against a known float32 run."""
    checkpoint = load_gguf(gguf_path(), max_context=64)
    tokenizer = Tokenizer.from_str(checkpoint.tokenizer)
    prompt = tokenizer.encode("The capital of France is", add_special_tokens=False).ids
    found = tokenizer.decode(checkpoint.model.greedy(prompt, 29))
    assert found == " Paris.\n\nThe answer is: 2018-01-22 12:12:53."
    assert checkpoint.generation["eos_token_id"] == [2]
    assert checkpoint.model.head is None


def test_the_oracle_would_notice_one_changed_weight(tmp_path: Path) -> None:
    seen = write_gguf(tmp_path / "m.gguf", TINY, make_weights(TINY, 0))
    model = load_gguf(tmp_path / "m.gguf", max_context=32).model
    seen["model.layers.1.self_attn.k_proj.weight"][3, 5] += 1.0
    assert (model.logits(IDS).double() - oracle_logits(TINY, seen, IDS)).abs().max() > 0.01


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q8_0], ids=lambda k: k.name)
def test_blocks_are_carried_over_bit_by_bit(kind: Kind, tmp_path: Path) -> None:
    kinds = {"_proj.weight": kind, "embed_tokens.weight": kind}
    seen = write_gguf(tmp_path / "m.gguf", TINY, make_weights(TINY, 1), kinds)
    model = load_gguf(tmp_path / "m.gguf", max_context=32).model
    for place, name in (
        ("attention.q", "self_attn.q_proj"),
        ("attention.out", "self_attn.o_proj"),
        ("mlp.down", "mlp.down_proj"),
    ):
        found = model.get_submodule(f"layers.0.{place}")
        assert isinstance(found, QuantLinear)
        assert found.scales.dtype == torch.float16
        assert torch.equal(found.dense(), seen[f"model.layers.0.{name}.weight"])
    assert isinstance(model.embedding, QuantEmbedding)
    assert torch.equal(model.embedding.dense(), seen["model.embed_tokens.weight"])


def test_texts_and_ids(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", TINY, make_weights(TINY, 0))
    checkpoint = load_checkpoint(tmp_path / "m.gguf", max_context=2048)
    assert checkpoint.name == "m"  # the file, not general.name
    assert checkpoint.model.config.max_context == TINY.context
    assert checkpoint.generation == {"eos_token_id": [1, 2], "bos_token_id": 0}
    assert checkpoint.special_tokens == {"bos_token": "<|bos|>", "eos_token": "<|end|>"}
    assert checkpoint.add_bos is False
    assert set(checkpoint.text_files()) == {"tokenizer.json", "chat_template.jinja"}


def test_bos_is_added_where_the_tokenizer_adds_it(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", TINY, make_weights(TINY, 0), pre="llama-bpe")
    assert load_gguf(tmp_path / "m.gguf", max_context=32).add_bos is True


def test_a_head_stored_twice_is_still_tied(tmp_path: Path) -> None:
    weights = make_weights(TINY, 0)
    twice = {**weights, "lm_head.weight": weights["model.embed_tokens.weight"].clone()}
    write_gguf(tmp_path / "m.gguf", TINY, twice)
    model = load_gguf(tmp_path / "m.gguf", max_context=32).model
    assert model.head is None


def test_rope_factors_divide_the_frequencies(tmp_path: Path) -> None:
    factors = np.linspace(1, 32, TINY.head_dim // 2, dtype=np.float32)
    extra = {"rope_freqs.weight": factors}
    write_gguf(tmp_path / "m.gguf", TINY, make_weights(TINY, 0), extra=extra)
    write_gguf(tmp_path / "plain.gguf", TINY, make_weights(TINY, 0))
    scaled = load_gguf(tmp_path / "m.gguf", max_context=32).model.inv_freq
    plain = load_gguf(tmp_path / "plain.gguf", max_context=32).model.inv_freq
    assert torch.equal(scaled, plain / torch.from_numpy(factors))


@pytest.mark.parametrize(
    "name", ["blk.0.attn_q.bias", "blk.1.attn_sinks.weight", "blk.2.ffn_up.weight"]
)
def test_a_tensor_without_a_place_fails_the_import(name: str, tmp_path: Path) -> None:
    """The first of these turns the biases on, and then the others are missing: an error as well."""
    extra = {name: np.ones(TINY.heads * TINY.head_dim, dtype=np.float32)}
    write_gguf(tmp_path / "m.gguf", TINY, make_weights(TINY, 0), extra=extra)
    with pytest.raises(ExportError, match=r"attn_k\.bias" if name.endswith("bias") else name):
        load_gguf(tmp_path / "m.gguf", max_context=32)


def test_another_quantisation_is_refused_by_name(tmp_path: Path) -> None:
    kinds = {"layers.1.mlp.up_proj.weight": Kind.Q5_0}
    write_gguf(tmp_path / "m.gguf", TINY, make_weights(TINY, 0), kinds)
    with pytest.raises(ExportError, match=r"blk\.1\.ffn_up\.weight is of type Q5_0"):
        load_gguf(tmp_path / "m.gguf", max_context=32)


def test_a_nan_scale_is_refused_by_name(tmp_path: Path) -> None:
    weights = make_weights(TINY, 0)
    weights["model.layers.0.mlp.gate_proj.weight"][2, 5] = torch.nan
    with np.errstate(invalid="ignore"):
        write_gguf(tmp_path / "m.gguf", TINY, weights, {"gate_proj.weight": Kind.Q8_0})
    with pytest.raises(ExportError, match=r"blk\.0\.ffn_gate\.weight: scales hold NaN"):
        load_gguf(tmp_path / "m.gguf", max_context=32)


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", TINY, make_weights(TINY, 0), arch="gemma")
    with pytest.raises(ExportError, match="architecture 'gemma'"):
        load_gguf(tmp_path / "m.gguf", max_context=32)


def test_a_gguf_is_not_quantised_again(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", TINY, make_weights(TINY, 0))
    with pytest.raises(OptionError, match="float checkpoints"):
        load_checkpoint(tmp_path / "m.gguf", max_context=32, quantize="q4gsw")


def header(
    *tensors: bytes, fields: tuple[bytes, ...] = (), counts: tuple[int, int] | None = None
) -> bytes:
    states = counts or (len(tensors), len(fields))
    return b"GGUF" + struct.pack("<IQQ", 3, *states) + b"".join(fields) + b"".join(tensors)


def field(key: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value


def tensor(dims: list[int], *, n_dims: int | None = None, kind: int = 0, offset: int = 0) -> bytes:
    shape = struct.pack(f"<I{len(dims)}Q", len(dims) if n_dims is None else n_dims, *dims)
    return struct.pack("<Q", 1) + b"t" + shape + struct.pack("<IQ", kind, offset)


U32, U64, STRING, ARRAY = 4, 10, 8, 9
ALIGN = "general.alignment"
LIES: dict[str, tuple[bytes, str]] = {
    "dims-huge": (header(tensor([1], n_dims=2**31)), "2147483648 dimensions"),
    "product-wraps": (header(tensor([2**32, 2**32])), "larger than the whole file"),
    "dim-zero": (header(tensor([4, 0])), "a dimension is zero"),
    "no-dims": (header(tensor([])) + b"\0" * 32, "0 dimensions"),
    "align-zero": (
        header(tensor([1]), fields=(field(ALIGN, U32, struct.pack("<I", 0)),)),
        "alignment 0",
    ),
    "align-three": (
        header(tensor([1]), fields=(field(ALIGN, U32, struct.pack("<I", 3)),)),
        "power of two",
    ),
    "align-type": (
        header(tensor([1]), fields=(field(ALIGN, U64, struct.pack("<Q", 32)),)),
        "value type 10",
    ),
    "tensors-huge": (header(counts=(2**60, 0)), "tensors but has"),
    "fields-huge": (header(counts=(0, 2**60)), "fields and"),
    "string-huge": (
        header(fields=(field("k", STRING, struct.pack("<Q", 2**62)),)),
        "ends inside its header",
    ),
    "array-huge": (
        header(fields=(field("k", ARRAY, struct.pack("<IQ", STRING, 2**61)),)),
        "more than the file",
    ),
    "scalars-huge": (
        header(fields=(field("k", ARRAY, struct.pack("<IQ", U64, 2**61)),)),
        "ends inside",
    ),
    "nested": (
        header(fields=(field("k", ARRAY, struct.pack("<IQIQIQ", 9, 1, 9, 1, 9, 1)),)),
        "unknown value type 9",
    ),
    "value-type": (header(fields=(field("k", 77, b"\0" * 8),)), "value type 77"),
    "tensor-type": (header(tensor([32], kind=999)), "unknown type 999"),
    "half-block": (header(tensor([31], kind=2)), "whole blocks of 32"),
    "misaligned": (header(tensor([1], offset=4)), "off its alignment"),
    "past-the-end": (header(tensor([1], offset=2**40)), "ends before tensor 't'"),
    "offset-wraps": (header(tensor([1], offset=2**64 - 32)), "ends before tensor 't'"),
    "twice": (header(tensor([1]), tensor([1])) + b"\0" * 64, "tensor 't' twice"),
    "cut": (header(tensor([1, 1]))[:-3], "ends inside its header"),
    "magic": (b"GGML" + b"\0" * 40, "does not start"),
    "version": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50331648"),
    "empty": (b"", "cannot be read as GGUF"),
}


@pytest.mark.parametrize("name", LIES)
def test_headers_that_lie_are_refused_at_once(name: str, tmp_path: Path) -> None:
    content, match = LIES[name]
    assert len(content) < 200
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    started = time.perf_counter()
    with pytest.raises(ExportError, match=match):
        load_gguf(path, max_context=32)
    assert time.perf_counter() - started < 0.1


@pytest.mark.parametrize(("size", "start"), [(96, 96), (97, 128)])
def test_a_header_that_ends_on_the_alignment_is_not_padded(
    size: int, start: int, tmp_path: Path
) -> None:
    bare = len(header(tensor([1]), fields=(field("", U32, b"\0" * 4),)))
    text = header(tensor([1]), fields=(field("k" * (size - bare), U32, b"\0" * 4),))
    assert len(text) == size
    path = tmp_path / "aligned.gguf"
    path.write_bytes(text + b"\0" * (start - size) + struct.pack("<f", 7.5))
    check_header(path)
    reader = gguf.GGUFReader(path)
    assert reader.data_offset == start
    assert reader.tensors[0].data.tolist() == [7.5]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ExportError, match="ends before tensor"):
        check_header(path)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"heads": 0}, "head_count"),
        ({"kv_heads": 3}, "cannot share"),
        ({"head_dim": 14}, r"attn_q\.weight has shape \[64, 64\]"),
        ({"layers": 3}, r"no tensor blk\.2"),
        ({"mlp": 64}, r"ffn_gate\.weight has shape"),
    ],
    ids=str,
)
def test_metadata_that_contradicts_the_tensors(
    change: dict[str, Any], match: str, tmp_path: Path
) -> None:
    write_gguf(tmp_path / "m.gguf", replace(TINY, **change), make_weights(TINY, 0), arch="qwen2")
    with pytest.raises(ExportError, match=match):
        load_gguf(tmp_path / "m.gguf", max_context=32)
