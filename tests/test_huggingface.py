"""The Hugging Face importer: four model types, texts, tied heads, and folders with faults.

Input:  checkpoint folders written here. Output: none.
Way of the data: `models.huggingface` against the oracle, which reads the same tensors.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from exporter.models import load_checkpoint
from exporter.models.llama import RopeScaling
from exporter.quantize import QuantEmbedding, QuantLinear
from runtime_py.errors import ExportError, TokenizerError
from tests import tolerances
from tests.checkpoints import (
    TINY,
    WIDE_HEADS,
    Sizes,
    make_weights,
    oracle_logits,
    write_huggingface,
)

IDS = [3, 17, 200, 4, 4, 91, 259]
UNTIED = replace(TINY, tied=False)
VARIANTS: dict[str, tuple[Sizes, dict[str, Any]]] = {
    "llama": (TINY, {}),
    "llama-untied": (UNTIED, {}),
    "llama-wide-heads": (WIDE_HEADS, {}),
    "mistral": (UNTIED, {"model_type": "mistral", "sliding_window": None}),
    "qwen2": (replace(TINY, qkv_bias=True), {"sliding_window": 4, "use_sliding_window": False}),
    "qwen3": (replace(WIDE_HEADS, qk_norm=True), {}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_equal_the_oracle(name: str, tmp_path: Path) -> None:
    sizes, extra = VARIANTS[name]
    weights = make_weights(sizes, 0)
    write_huggingface(tmp_path, sizes, weights, **extra)
    model = load_checkpoint(tmp_path, max_context=32).model
    found = model.logits(IDS).double()
    torch.testing.assert_close(found, oracle_logits(sizes, weights, IDS), **tolerances.ORACLE_F64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_widened_exactly(dtype: torch.dtype, tmp_path: Path) -> None:
    weights = {name: tensor.to(dtype) for name, tensor in make_weights(TINY, 0).items()}
    write_huggingface(tmp_path, TINY, weights)
    model = load_checkpoint(tmp_path, max_context=32).model
    table = weights["model.embed_tokens.weight"]
    found = model.state_dict()["embedding.weight"]
    assert found.dtype == torch.float32
    assert torch.equal(found, table.float())


def test_head_width_defaults_to_width_over_heads(tmp_path: Path) -> None:
    write_huggingface(tmp_path, TINY, make_weights(TINY, 0), head_dim=None, num_key_value_heads=2)
    assert load_checkpoint(tmp_path, max_context=32).model.config.head_dim == 16


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    weights = make_weights(UNTIED, 0)
    write_huggingface(tmp_path, UNTIED, weights)
    (tmp_path / "model.safetensors").unlink()
    names = list(weights)
    shards = {"a.safetensors": names[:5], "b.safetensors": names[5:]}
    for file, part in shards.items():
        save_file({name: weights[name] for name in part}, tmp_path / file)
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    found = load_checkpoint(tmp_path, max_context=32).model.logits(IDS).double()
    torch.testing.assert_close(found, oracle_logits(UNTIED, weights, IDS), **tolerances.ORACLE_F64)
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(ExportError, match=r"b\.safetensors cannot be read"):
        load_checkpoint(tmp_path, max_context=32)
    index["weight_map"]["x"] = "../b.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ExportError, match="not in the folder"):
        load_checkpoint(tmp_path, max_context=32)


def test_quantised_on_import(tmp_path: Path) -> None:
    weights = make_weights(TINY, 0)
    write_huggingface(tmp_path, TINY, weights)
    model = load_checkpoint(tmp_path, max_context=32, quantize="q4gsw", group=32).model
    down = model.get_submodule("layers.0.mlp.down")
    assert isinstance(down, QuantLinear)
    assert down.scheme == "q4gsw"
    assert isinstance(model.embedding, QuantEmbedding)
    assert model.embedding.scheme == "q8gsw"
    seen = dict(weights)
    for name in weights:
        if name.endswith("_proj.weight"):
            seen[name] = QuantLinear.from_float(weights[name], None, "q4gsw", 32).dense()
    seen["model.embed_tokens.weight"] = model.embedding.dense()
    found = model.logits(IDS).double()
    torch.testing.assert_close(found, oracle_logits(TINY, seen, IDS), **tolerances.ORACLE_F64)


def test_a_tied_head_may_be_stored_twice_but_not_differ(tmp_path: Path) -> None:
    weights = make_weights(TINY, 0)
    twice = {**weights, "lm_head.weight": weights["model.embed_tokens.weight"].clone()}
    write_huggingface(tmp_path, TINY, twice)
    assert load_checkpoint(tmp_path, max_context=32).model.head is None
    twice["lm_head.weight"][0, 0] += 1
    write_huggingface(tmp_path, TINY, twice)
    with pytest.raises(ExportError, match=r"lm_head\.weight differs"):
        load_checkpoint(tmp_path, max_context=32)


def test_an_untied_head_must_be_there(tmp_path: Path) -> None:
    write_huggingface(tmp_path, UNTIED, make_weights(TINY, 0))
    with pytest.raises(ExportError, match=r"no tensor lm_head\.weight"):
        load_checkpoint(tmp_path, max_context=32)


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.q_proj.bias", "model.layers.2.mlp.up_proj.weight", "v"]
)
def test_a_tensor_without_a_place_fails_the_import(name: str, tmp_path: Path) -> None:
    write_huggingface(tmp_path, TINY, {**make_weights(TINY, 0), name: torch.full((64,), 3.0)})
    with pytest.raises(ExportError, match=name):
        load_checkpoint(tmp_path, max_context=32)


def test_stored_frequencies_are_compared(tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    inv_freq = 10000.0 ** (-torch.arange(8) / 8)
    write_huggingface(tmp_path, TINY, {**make_weights(TINY, 0), name: inv_freq})
    load_checkpoint(tmp_path, max_context=32)
    write_huggingface(tmp_path, TINY, {**make_weights(TINY, 0), name: inv_freq * 1.1})
    with pytest.raises(ExportError, match="inv_freq differs"):
        load_checkpoint(tmp_path, max_context=32)


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_llama3_scaling_is_read(key: str, tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    write_huggingface(tmp_path, TINY, make_weights(TINY, 0), **{key: scaling})
    config = load_checkpoint(tmp_path, max_context=32).model.config
    assert config.rope_scaling == RopeScaling(32.0, 1.0, 4.0, 8192)
    assert config.rope_base == (500000.0 if key == "rope_parameters" else TINY.base)


def test_every_end_token_is_kept(tmp_path: Path) -> None:
    write_huggingface(tmp_path, TINY, make_weights(TINY, 0), eos_token_id=5)
    settings: dict[str, Any] = {
        "eos_token": {"content": "<|end|>"},
        "bos_token": "<|bos|>",
        "chat_template": "one",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    generation = {"eos_token_id": [2, 7], "temperature": 0.6, "top_p": 0.9, "do_sample": True}
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    checkpoint = load_checkpoint(tmp_path, max_context=32)
    assert checkpoint.generation == {
        "eos_token_id": [1, 2, 5, 7],
        "bos_token_id": 0,
        "temperature": 0.6,
        "top_p": 0.9,
    }
    assert checkpoint.special_tokens == {"bos_token": "<|bos|>", "eos_token": "<|end|>"}
    assert checkpoint.chat_template == "one"
    assert checkpoint.add_bos is False
    (tmp_path / "chat_template.jinja").write_text("two")
    settings["add_bos_token"] = True
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    checkpoint = load_checkpoint(tmp_path, max_context=32)
    assert checkpoint.chat_template == "two"
    assert checkpoint.add_bos is True


@pytest.mark.parametrize(
    ("extra", "match"),
    [
        ({"model_type": "gemma3"}, "model_type is 'gemma3'"),
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"hidden_size": "64"}, "hidden_size is '64'"),
        ({"intermediate_size": 95}, r"gate_proj\.weight has shape \[96, 64\]"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"quantization_config": {"bits": 4}}, "is quantised"),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, "'yarn'"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "lacks 'factor'"),
        ({"model_type": "mistral", "sliding_window": 16}, "sliding_window is 16"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_configurations_that_are_refused(extra: dict[str, Any], match: str, tmp_path: Path) -> None:
    write_huggingface(tmp_path, TINY, make_weights(TINY, 0), **extra)
    with pytest.raises(ExportError, match=match):
        load_checkpoint(tmp_path, max_context=32)


def test_a_window_beyond_the_context_is_no_window(tmp_path: Path) -> None:
    write_huggingface(
        tmp_path, TINY, make_weights(TINY, 0), model_type="mistral", sliding_window=32
    )
    load_checkpoint(tmp_path, max_context=32)


@pytest.mark.parametrize(
    ("file", "content", "error", "match"),
    [
        ("config.json", None, ExportError, "has no config.json"),
        ("config.json", b"{", ExportError, "is not JSON"),
        ("config.json", b"[]", ExportError, "expected an object"),
        ("config.json", b"\xff\xfe", ExportError, "cannot be read"),
        ("tokenizer.json", None, ExportError, "has no tokenizer.json"),
        ("tokenizer.json", b"{}", TokenizerError, "cannot be read as tokenizer.json"),
        ("model.safetensors", None, ExportError, "neither model.safetensors"),
        ("model.safetensors", b"", ExportError, "cannot be read as safetensors"),
        ("model.safetensors", b"\xff" * 64, ExportError, "cannot be read as safetensors"),
    ],
)
def test_broken_folders_are_refused(
    file: str, content: bytes | None, error: type[Exception], match: str, tmp_path: Path
) -> None:
    write_huggingface(tmp_path, TINY, make_weights(TINY, 0))
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(error, match=match):
        load_checkpoint(tmp_path, max_context=32)


@pytest.mark.parametrize(
    ("value", "match"), [(torch.nan, "NaN or infinity"), (torch.inf, "NaN or infinity")]
)
def test_numbers_that_are_none_are_refused_by_name(
    value: float, match: str, tmp_path: Path
) -> None:
    weights = make_weights(TINY, 0)
    weights["model.norm.weight"][3] = value
    write_huggingface(tmp_path, TINY, weights)
    with pytest.raises(ExportError, match=rf"model\.norm\.weight holds {match}"):
        load_checkpoint(tmp_path, max_context=32)


def test_no_such_path(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="does not exist"):
        load_checkpoint(tmp_path / "nothing", max_context=32)
