"""Tiny checkpoints for the importer's tests, and an oracle that knows nothing of the exporter.

Input:  sizes and a seed. Output: weights under Hugging Face's names; folders and GGUF files with them.
Way of the data: weights -> `write_huggingface` or `write_gguf` -> importer; weights -> `oracle_logits`.

    weights = make_weights(TINY, seed=0)
    write_huggingface(tmp_path, TINY, weights)
    want = oracle_logits(TINY, weights, [3, 1, 4])                  # float64 [3, V]
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Sizes:
    """The numbers of a tiny model. Widths are multiples of 32, so that GGUF can quantise them."""

    width: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    mlp: int = 96
    vocabulary: int = 260
    context: int = 64
    eps: float = 1e-5
    base: float = 10000.0
    tied: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False


TINY = Sizes()
WIDE_HEADS = replace(TINY, head_dim=32)


def make_weights(sizes: Sizes, seed: int) -> Weights:
    """Return random weights under the names that Hugging Face gives them."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    q, kv = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    weights = {
        "model.embed_tokens.weight": normal(sizes.vocabulary, sizes.width),
        "model.norm.weight": 1 + 0.1 * normal(sizes.width),
    }
    if not sizes.tied:
        weights["lm_head.weight"] = normal(sizes.vocabulary, sizes.width) / sizes.width**0.5
    shapes = {
        "self_attn.q_proj": (q, sizes.width),
        "self_attn.k_proj": (kv, sizes.width),
        "self_attn.v_proj": (kv, sizes.width),
        "self_attn.o_proj": (sizes.width, q),
        "mlp.gate_proj": (sizes.mlp, sizes.width),
        "mlp.up_proj": (sizes.mlp, sizes.width),
        "mlp.down_proj": (sizes.width, sizes.mlp),
    }
    for index in range(sizes.layers):
        layer = f"model.layers.{index}"
        for name, (rows, columns) in shapes.items():
            weights[f"{layer}.{name}.weight"] = normal(rows, columns) / columns**0.5
            if sizes.qkv_bias and name[-6:] in ("q_proj", "k_proj", "v_proj"):
                weights[f"{layer}.{name}.bias"] = 3.0 + normal(rows)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{layer}.{name}.weight"] = 1 + 0.1 * normal(sizes.width)
        if sizes.qk_norm:
            for name in ("q_norm", "k_norm"):
                weights[f"{layer}.self_attn.{name}.weight"] = 1 + 0.1 * normal(sizes.head_dim)
    return weights


def oracle_logits(sizes: Sizes, weights: Mapping[str, Tensor], ids: Sequence[int]) -> Tensor:
    """Return float64 `[S, V]`: the whole sequence at once, no cache, written from the papers."""
    w = {name: tensor.double() for name, tensor in weights.items()}
    x = w["model.embed_tokens.weight"][list(ids)]
    for index in range(sizes.layers):
        layer = f"model.layers.{index}"
        x = x + _oracle_attention(
            sizes, w, layer, _norm(sizes, x, w[f"{layer}.input_layernorm.weight"])
        )
        h = _norm(sizes, x, w[f"{layer}.post_attention_layernorm.weight"])
        gate, up = (h @ w[f"{layer}.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        x = x + (gate / (1 + torch.exp(-gate)) * up) @ w[f"{layer}.mlp.down_proj.weight"].T
    x = _norm(sizes, x, w["model.norm.weight"])
    return x @ w["model.embed_tokens.weight" if sizes.tied else "lm_head.weight"].T


def _oracle_attention(sizes: Sizes, w: Weights, layer: str, x: Tensor) -> Tensor:
    def heads(name: str, count: int) -> Tensor:
        y = x @ w[f"{layer}.self_attn.{name}_proj.weight"].T
        y = y + w.get(f"{layer}.self_attn.{name}_proj.bias", torch.zeros(1).double())
        y = y.view(len(x), count, sizes.head_dim)
        norm = w.get(f"{layer}.self_attn.{name}_norm.weight")
        y = y if norm is None else _norm(sizes, y, norm)
        return y.transpose(0, 1)

    q, k, v = heads("q", sizes.heads), heads("k", sizes.kv_heads), heads("v", sizes.kv_heads)
    q, k = _turn(sizes, q), _turn(sizes, k)
    share = sizes.heads // sizes.kv_heads
    k, v = k.repeat_interleave(share, 0), v.repeat_interleave(share, 0)
    scores = q @ k.transpose(1, 2) / math.sqrt(sizes.head_dim)
    scores = scores + torch.full_like(scores[0], -math.inf).triu(1)
    mixed = (torch.softmax(scores, -1) @ v).transpose(0, 1).reshape(len(x), -1)
    return mixed @ w[f"{layer}.self_attn.o_proj.weight"].T


def _turn(sizes: Sizes, x: Tensor) -> Tensor:
    """Rotate pairs (i, i + D/2) as complex numbers."""
    half = sizes.head_dim // 2
    angle = (
        torch.arange(x.shape[1]).double()[:, None]
        * sizes.base ** (-torch.arange(half) / half).double()
    )
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(
        torch.ones_like(angle), angle
    )
    return torch.cat((turned.real, turned.imag), -1)


def _norm(sizes: Sizes, x: Tensor, weight: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + sizes.eps) * weight


def byte_tokens() -> list[str]:
    """Return three special tokens, 256 byte-level ones and one that needs a merge."""
    return ["<|bos|>", "<|end|>", "<|im_end|>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "he"]


def tokenizer_json() -> str:
    """Return a byte-level tokenizer with one merge."""
    tokens = byte_tokens()
    tokenizer = Tokenizer(
        models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[("h", "e")])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(tokens[:3])
    return str(tokenizer.to_str())


def config_json(sizes: Sizes, **extra: Any) -> dict[str, Any]:
    """Return a config.json; the model type follows from the biases and norms."""
    kind = "qwen3" if sizes.qk_norm else "qwen2" if sizes.qkv_bias else "llama"
    return {
        "model_type": kind,
        "hidden_size": sizes.width,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "intermediate_size": sizes.mlp,
        "vocab_size": sizes.vocabulary,
        "max_position_embeddings": sizes.context,
        "rms_norm_eps": sizes.eps,
        "rope_theta": sizes.base,
        "tie_word_embeddings": sizes.tied,
        "hidden_act": "silu",
        "eos_token_id": 1,
        **extra,
    }


def write_huggingface(folder: Path, sizes: Sizes, weights: Weights, **extra: Any) -> Path:
    """Write a checkpoint folder and return it."""
    (folder / "config.json").write_text(json.dumps(config_json(sizes, **extra)))
    (folder / "tokenizer.json").write_text(tokenizer_json())
    save_file(weights, folder / "model.safetensors")
    return folder


GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def gguf_name(name: str) -> str:
    """Return the GGUF name of a Hugging Face tensor."""
    stem, suffix = name.rsplit(".", 1)
    if not stem.startswith("model.layers."):
        return f"{GGUF_NAMES[stem]}.{suffix}"
    _, _, index, rest = stem.split(".", 3)
    return f"blk.{index}.{GGUF_NAMES[rest]}.{suffix}"


def write_gguf(
    path: Path,
    sizes: Sizes,
    weights: Weights,
    kinds: Mapping[str, gguf.GGMLQuantizationType] | None = None,
    arch: str = "llama",
    extra: Mapping[str, np.ndarray[Any, Any]] | None = None,
    pre: str = "smollm",
) -> Weights:
    """Write a GGUF file; return the weights as a reader must see them (quantised and back).

    `kinds` maps the end of a Hugging Face name to a block type; matrices it does not name are F32.
    q and k rows are put into llama.cpp's interleaved order for arch `llama`, as its converter does.
    """
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("tiny")
    writer.add_block_count(sizes.layers)
    writer.add_context_length(sizes.context)
    writer.add_embedding_length(sizes.width)
    writer.add_feed_forward_length(sizes.mlp)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_key_length(sizes.head_dim)
    writer.add_value_length(sizes.head_dim)
    writer.add_layer_norm_rms_eps(sizes.eps)
    writer.add_rope_freq_base(sizes.base)
    _write_tokenizer(writer, pre)
    seen = {}
    for name, tensor in weights.items():
        kind = next((k for end, k in (kinds or {}).items() if name.endswith(end)), None)
        rows = tensor.numpy()
        head_rows = arch == "llama" and name.split(".")[-2] in ("q_proj", "k_proj")
        stored = _interleave(rows, sizes.head_dim) if head_rows else rows
        if kind is None:
            writer.add_tensor(gguf_name(name), stored)
            seen[name] = tensor
            continue
        blocks = gguf.quantize(stored, kind)
        writer.add_tensor(gguf_name(name), blocks, raw_dtype=kind)
        back = gguf.dequantize(blocks, kind)
        seen[name] = torch.from_numpy(_straighten(back, sizes.head_dim) if head_rows else back)
    for name, array in (extra or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return seen


def _write_tokenizer(writer: gguf.GGUFWriter, pre: str) -> None:
    tokens = byte_tokens()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(["h e"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_eot_token_id(2)
    writer.add_chat_template("{{ messages[0].content }}")


def _interleave(rows: np.ndarray[Any, Any], head_dim: int) -> np.ndarray[Any, Any]:
    split = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(rows.shape))


def _straighten(rows: np.ndarray[Any, Any], head_dim: int) -> np.ndarray[Any, Any]:
    split = rows.reshape(-1, head_dim // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(rows.shape))
