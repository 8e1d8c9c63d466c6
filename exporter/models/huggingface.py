"""Reads a Hugging Face checkpoint folder into a `Llama`.

Input:  config.json, *.safetensors, tokenizer.json, and where present generation_config.json,
tokenizer_config.json and chat_template.jinja. Model types: llama, mistral (without a sliding
window), qwen2, qwen3.
Output: a `Checkpoint`. Weights become float32; with `quantize` the linear layers take that scheme,
and the embedding (with a head tied to it) 8 bits, since every token passes it.
Way of the data: folder -> the safetensors and tokenizers packages -> `Weights` -> `models.llama`.

    checkpoint = load_huggingface(Path("Llama-3.2-1B-Instruct"), max_context=2048, quantize="q4gsw",
    group=32)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from exporter.models.checkpoint import Checkpoint
from exporter.models.huggingface_text import read_json, read_text
from exporter.models.llama import Llama, LlamaConfig, RopeScaling
from exporter.models.tensors import SafetensorsFolder
from exporter.models.weights import Table, expect_shape, float_embedding, float_linear
from exporter.quantize import QuantEmbedding, QuantLinear
from runtime_py.errors import ExportError

MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
TABLE_SCHEME = "q8gsw"

LAYER_NAMES = {
    "attention_norm": "input_layernorm",
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    "attention.q_norm": "self_attn.q_norm",
    "attention.k_norm": "self_attn.k_norm",
    "mlp_norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}
TOP_NAMES = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}


def load_huggingface(
    folder: Path,
    *,
    max_context: int,
    kv_dtype: torch.dtype = torch.float32,
    quantize: str | None = None,
    group: int = 32,
) -> Checkpoint:
    """Return the checkpoint in `folder`; `ExportError` on what cannot be carried over whole."""
    raw = read_json(folder / "config.json", required=True)
    config = read_config(raw, max_context, kv_dtype)
    with SafetensorsFolder(folder) as tensors:
        weights = HuggingFaceWeights(tensors, quantize, group)
        model = Llama(config, weights)
        weights.check_all_used(config.tied_head, model.inv_freq)
    text = read_text(folder, raw)
    return Checkpoint(
        model=model,
        name=Path(str(raw.get("_name_or_path") or folder.resolve())).name,
        tokenizer=text.tokenizer,
        chat_template=text.chat_template,
        special_tokens=text.special_tokens,
        generation=text.generation,
        add_bos=text.add_bos,
    )


def read_config(raw: dict[str, Any], max_context: int, kv_dtype: torch.dtype) -> LlamaConfig:
    """Return the configuration that config.json spells; defaults are those of the transformers
    package.
    """
    kind = raw.get("model_type")
    if kind not in MODEL_TYPES:
        raise ExportError(
            f"config.json: model_type is {kind!r}", hint=f"supported: {', '.join(MODEL_TYPES)}"
        )
    width, heads = _size(raw, "hidden_size"), _size(raw, "num_attention_heads")
    rope = raw.get("rope_parameters") or {}
    context = min(max_context, _size(raw, "max_position_embeddings"))
    _check_supported(raw, context)
    bias = bool(raw.get("attention_bias", False))
    return LlamaConfig(
        width=width,
        layers=_size(raw, "num_hidden_layers"),
        heads=heads,
        kv_heads=_size(raw, "num_key_value_heads", heads),
        head_dim=_size(raw, "head_dim", 128 if kind == "qwen3" else width // heads),
        mlp=_size(raw, "intermediate_size"),
        vocabulary=_size(raw, "vocab_size"),
        max_context=context,
        norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope_base=float(rope.get("rope_theta") or raw.get("rope_theta") or 10000.0),
        rope_scaling=_rope_scaling(rope or raw.get("rope_scaling") or {}),
        tied_head=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=bias or kind == "qwen2",
        out_bias=bias and kind != "qwen2",
        mlp_bias=bool(raw.get("mlp_bias", False)),
        qk_norm=kind == "qwen3",
        kv_dtype=kv_dtype,
    )


class HuggingFaceWeights:
    """`Weights` over a folder of safetensors, quantised on the way if asked."""

    def __init__(self, tensors: SafetensorsFolder, quantize: str | None, group: int) -> None:
        self.tensors, self.scheme, self.group = tensors, quantize, group

    def linear(self, name: str, rows: int, columns: int, bias: bool) -> nn.Module:
        stem = _file_name(name)
        weight = self._read(f"{stem}.weight", (rows, columns))
        offset = self._read(f"{stem}.bias", (rows,)) if bias else None
        if self.scheme is None:
            return float_linear(weight, offset)
        return QuantLinear.from_float(
            weight, offset, self.scheme, self.group, name=f"{stem}.weight"
        )

    def embedding(self, name: str, rows: int, columns: int) -> Table:
        stem = _file_name(name)
        weight = self._read(f"{stem}.weight", (rows, columns))
        if self.scheme is None:
            return float_embedding(weight)
        return QuantEmbedding.from_float(weight, TABLE_SCHEME, self.group, name=f"{stem}.weight")

    def vector(self, name: str, size: int) -> Tensor:
        return self._read(f"{_file_name(name)}.weight", (size,))

    def check_all_used(self, tied_head: bool, inv_freq: Tensor) -> None:
        """Raise `ExportError` naming what the model did not ask for, unless it repeats what the
        model has.

        A tied head may be stored once more, and old checkpoints store the rotary frequencies of
        every layer.
        """
        for name in self.tensors.unused():
            if tied_head and name == "lm_head.weight":
                self._check_equal(name, self.tensors.read("model.embed_tokens.weight"), 0.0)
            elif name.endswith("rotary_emb.inv_freq"):
                self._check_equal(name, inv_freq, 1e-5)
        left = self.tensors.unused()
        if left:
            shown = ", ".join(left[:8]) + (f" and {len(left) - 8} more" if len(left) > 8 else "")
            raise ExportError(
                f"tensors that this model has no place for: {shown}",
                hint="dropping them would change the model's answers without a word",
            )

    def _check_equal(self, name: str, wanted: Tensor, rtol: float) -> None:
        found = self.tensors.read(name)
        if found.shape != wanted.shape or not torch.allclose(found, wanted, rtol=rtol, atol=0.0):
            raise ExportError(
                f"tensor {name} differs from the one that config.json says it repeats"
            )

    def _read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        found = self.tensors.read(name)
        expect_shape(name, tuple(found.shape), shape)
        return found


def _file_name(name: str) -> str:
    if not name.startswith("layers."):
        return TOP_NAMES[name]
    _, index, rest = name.split(".", 2)
    return f"model.layers.{index}.{LAYER_NAMES[rest]}"


def _size(raw: dict[str, Any], name: str, default: int | None = None) -> int:
    value = raw.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ExportError(f"config.json: {name} is {value!r}, expected a positive integer")
    return value


def _rope_scaling(raw: dict[str, Any]) -> RopeScaling | None:
    kind = raw.get("rope_type") or raw.get("type") or "default"
    if kind == "default":
        return None
    if kind != "llama3":
        raise ExportError(
            f"config.json: rotary scaling {kind!r}", hint="supported: none and llama3"
        )
    try:
        return RopeScaling(
            factor=float(raw["factor"]),
            low_freq_factor=float(raw["low_freq_factor"]),
            high_freq_factor=float(raw["high_freq_factor"]),
            original_context=int(raw["original_max_position_embeddings"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ExportError(f"config.json: llama3 rotary scaling lacks {error}") from error


def _check_supported(raw: dict[str, Any], context: int) -> None:
    if raw.get("hidden_act", "silu") != "silu":
        raise ExportError(
            f"config.json: hidden_act is {raw['hidden_act']!r}", hint="supported: silu"
        )
    if float(raw.get("partial_rotary_factor") or 1.0) != 1.0:
        raise ExportError(
            "config.json: partial_rotary_factor is not 1", hint="only whole heads turn"
        )
    if raw.get("quantization_config"):
        raise ExportError(
            "config.json: the checkpoint is quantised", hint="use the float one or a GGUF file"
        )
    window = raw.get("sliding_window")
    in_use = raw["model_type"] == "mistral" or bool(raw.get("use_sliding_window", False))
    if in_use and window is not None and window < context:
        raise ExportError(
            f"config.json: sliding_window is {window}, below the context of {context}",
            hint=f"export with --max-context {window}; up to there the window changes nothing",
        )
