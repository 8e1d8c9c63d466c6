"""Reads a GGUF file into a `Llama`; quantised blocks are carried over bit by bit.

Input:  a `.gguf` of the llama, qwen2 or qwen3 architecture with F32, F16, BF16, Q4_0, Q4_1 and Q8_0
tensors.
Output: a `Checkpoint` (model, tokenizer.json, chat template, generation defaults).
Way of the data: file -> `gguf_header` (checks) -> the gguf package -> `Weights` -> `models.llama`.

    checkpoint = load_gguf(Path("SmolLM2-135M-Instruct.Q4_1.gguf"), max_context=2048)
    checkpoint.model.greedy([504, 3575, 282, 4649, 314], 4)
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor, nn

from exporter.models.checkpoint import Checkpoint, adds_bos, open_tokenizer, stop_ids
from exporter.models.gguf_blocks import BLOCK, FLOATS, SCHEME_OF, read_blocks, read_floats
from exporter.models.gguf_header import check_header
from exporter.models.gguf_tokenizer import to_tokenizer_json
from exporter.models.llama import Llama, LlamaConfig, inverse_frequencies
from exporter.models.weights import Table, expect_shape, float_embedding, float_linear
from exporter.quantize import QuantEmbedding, QuantLinear
from runtime_py.errors import ExportError

QUANT_SUFFIX = re.compile(r"[.-](Q\d\w*|B?F(16|32))$")  # general.name is often a recipe
ARCHITECTURES = ("llama", "qwen2", "qwen3")

# The model's name of a weight -> the file's, inside `layers.N.` -> `blk.N.`
LAYER_NAMES = {
    "attention_norm": "attn_norm",
    "attention.q": "attn_q",
    "attention.k": "attn_k",
    "attention.v": "attn_v",
    "attention.out": "attn_output",
    "attention.q_norm": "attn_q_norm",
    "attention.k_norm": "attn_k_norm",
    "mlp_norm": "ffn_norm",
    "mlp.gate": "ffn_gate",
    "mlp.up": "ffn_up",
    "mlp.down": "ffn_down",
}
TOP_NAMES = {"embedding": "token_embd", "norm": "output_norm", "head": "output"}


def load_gguf(path: Path, *, max_context: int, kv_dtype: torch.dtype = torch.float32) -> Checkpoint:
    """Return the checkpoint in `path`; `ExportError` on what cannot be carried over whole."""
    check_header(path)
    reader = gguf.GGUFReader(path)
    fields = _Fields(path.name, reader)
    weights = GgufWeights(reader, fields)
    config = read_config(fields, weights, max_context, kv_dtype)
    model = Llama(config, weights, _frequencies(config, weights))
    weights.check_all_used()
    tokenizer = json.dumps(to_tokenizer_json(reader), ensure_ascii=False)
    bos = fields.get("tokenizer.ggml.bos_token_id")
    eos = stop_ids(fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    return Checkpoint(
        model=model,
        name=QUANT_SUFFIX.sub("", path.stem),
        tokenizer=tokenizer,
        chat_template=fields.get("tokenizer.chat_template"),
        special_tokens=_special_tokens(fields),
        generation={"eos_token_id": eos, "bos_token_id": bos},
        add_bos=adds_bos(open_tokenizer(tokenizer, path.name), bos),
        license=fields.get("general.license"),
    )


def read_config(
    fields: _Fields, weights: GgufWeights, max_context: int, kv_dtype: torch.dtype
) -> LlamaConfig:
    """Return the configuration that the file's metadata and the presence of tensors spell."""
    arch = fields.arch
    heads, width = fields.number("attention.head_count"), fields.number("embedding_length")
    head_dim = fields.number("attention.key_length", width // max(heads, 1))
    _check_supported(fields, head_dim)
    trained = fields.number("context_length")
    return LlamaConfig(
        width=width,
        layers=fields.number("block_count"),
        heads=heads,
        kv_heads=fields.number("attention.head_count_kv", heads),
        head_dim=head_dim,
        mlp=fields.number("feed_forward_length"),
        vocabulary=weights.vocabulary(),
        max_context=min(max_context, trained),
        norm_eps=float(fields.get(f"{arch}.attention.layer_norm_rms_epsilon") or 1e-5),
        rope_base=float(fields.get(f"{arch}.rope.freq_base") or 10000.0),
        tied_head=weights.head_is_tied(),
        qkv_bias=weights.has("blk.0.attn_q.bias"),
        out_bias=weights.has("blk.0.attn_output.bias"),
        mlp_bias=weights.has("blk.0.ffn_gate.bias"),
        qk_norm=weights.has("blk.0.attn_q_norm.weight"),
        kv_dtype=kv_dtype,
    )


class _Fields:
    """The file's metadata, with complaints that name the file and the field."""

    def __init__(self, file: str, reader: gguf.GGUFReader) -> None:
        self.file, self.reader = file, reader
        self.arch = str(self.get("general.architecture"))
        if self.arch not in ARCHITECTURES:
            raise ExportError(
                f"{file} is of architecture {self.arch!r}",
                hint=f"supported: {', '.join(ARCHITECTURES)}",
            )

    def get(self, name: str) -> Any:
        """Return the value of a field, None if the file has none."""
        field = self.reader.get_field(name)
        return None if field is None else field.contents()

    def number(self, name: str, default: int | None = None) -> int:
        """Return the integer `<architecture>.<name>`."""
        value = self.get(f"{self.arch}.{name}")
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ExportError(
                f"{self.file}: {self.arch}.{name} is {value!r}, expected a positive integer"
            )
        return value


class GgufWeights:
    """`Weights` over a GGUF file; counts what was used, so that nothing in the file is silently
    dropped.
    """

    def __init__(self, reader: gguf.GGUFReader, fields: _Fields) -> None:
        self.file, self.fields = fields.file, fields
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.used: set[str] = set()

    def has(self, name: str) -> bool:
        return name in self.tensors

    def vocabulary(self) -> int:
        """Return the rows of the token embedding."""
        return int(self._find("token_embd.weight").shape[1])

    def head_is_tied(self) -> bool:
        """True without `output.weight` (llama.cpp's rule), or where it repeats the embedding byte
        for byte.
        """
        if not self.has("output.weight"):
            return True
        head, table = self.tensors["output.weight"], self._find("token_embd.weight")
        if head.tensor_type != table.tensor_type or not np.array_equal(head.data, table.data):
            return False
        self.used.add("output.weight")
        return True

    def linear(self, name: str, rows: int, columns: int, bias: bool) -> nn.Module:
        """Return the layer; rows of q and k leave llama.cpp's interleaved order (a move of whole
        rows is exact).
        """
        stem = _file_name(name)
        order = self._row_order(name, rows)
        offset = self.vector(f"{name}.bias", rows)[order] if bias else None
        tensor = self._expect(f"{stem}.weight", (rows, columns))
        if tensor.tensor_type in FLOATS:
            return float_linear(read_floats(tensor)[order], offset)
        codes, scales, mins = read_blocks(tensor)
        scheme = SCHEME_OF[tensor.tensor_type]
        return QuantLinear.from_blocks(
            codes[order],
            scales[order],
            None if mins is None else mins[order],
            scheme,
            BLOCK,
            offset,
            name=tensor.name,
        )

    def embedding(self, name: str, rows: int, columns: int) -> Table:
        tensor = self._expect(f"{_file_name(name)}.weight", (rows, columns))
        if tensor.tensor_type in FLOATS:
            return float_embedding(read_floats(tensor))
        return QuantEmbedding.from_blocks(
            *read_blocks(tensor), SCHEME_OF[tensor.tensor_type], BLOCK, name=tensor.name
        )

    def vector(self, name: str, size: int) -> Tensor:
        stem = _file_name(name)
        return read_floats(
            self._expect(stem if stem.endswith(".bias") else f"{stem}.weight", (size,))
        )

    def check_all_used(self) -> None:
        """Raise `ExportError` naming the tensors that the model did not ask for."""
        left = sorted(set(self.tensors) - self.used)
        if left:
            shown = ", ".join(left[:8]) + (f" and {len(left) - 8} more" if len(left) > 8 else "")
            raise ExportError(
                f"{self.file}: tensors that this model has no place for: {shown}",
                hint="to drop them would change the model's answers without a word",
            )

    def _row_order(self, name: str, rows: int) -> Tensor | slice:
        """llama.cpp stores the rows of a head as pairs (0, D/2, 1, D/2+1, ...) for `llama`,
        straight for qwen.
        """
        if self.fields.arch != "llama" or not name.endswith((".attention.q", ".attention.k")):
            return slice(None)
        head_dim = self.fields.number("attention.key_length", self._default_head_dim())
        return torch.arange(rows).view(-1, head_dim // 2, 2).transpose(1, 2).reshape(-1)

    def _default_head_dim(self) -> int:
        return self.fields.number("embedding_length") // self.fields.number("attention.head_count")

    def _find(self, name: str) -> gguf.ReaderTensor:
        if name not in self.tensors:
            raise ExportError(f"{self.file} has no tensor {name}")
        return self.tensors[name]

    def _expect(self, name: str, shape: tuple[int, ...]) -> gguf.ReaderTensor:
        """Return a tensor, counted as used; GGUF states dimensions innermost first."""
        tensor = self._find(name)
        expect_shape(name, tuple(int(dim) for dim in reversed(tensor.shape)), shape)
        if tensor.tensor_type not in (*FLOATS, *SCHEME_OF):
            raise ExportError(
                f"tensor {name} is of type {tensor.tensor_type.name}",
                hint=f"supported: {', '.join(kind.name for kind in (*FLOATS, *SCHEME_OF))}",
            )
        self.used.add(name)
        return tensor


def _file_name(name: str) -> str:
    """Return `blk.0.attn_q` for `layers.0.attention.q`, `blk.0.attn_q.bias` for
    `layers.0.attention.q.bias`.
    """
    stem, suffix = (name[: -len(".bias")], ".bias") if name.endswith(".bias") else (name, "")
    if not stem.startswith("layers."):
        return TOP_NAMES.get(stem, stem) + suffix
    _, index, rest = stem.split(".", 2)
    return f"blk.{index}.{LAYER_NAMES[rest]}{suffix}"


def _frequencies(config: LlamaConfig, weights: GgufWeights) -> Tensor:
    """Return inv_freq `[D/2]`; Llama 3's scaling comes in the file as divisors, one a frequency."""
    plain = inverse_frequencies(config)
    return (
        plain / weights.vector("rope_freqs", len(plain))
        if weights.has("rope_freqs.weight")
        else plain
    )


def _check_supported(fields: _Fields, head_dim: int) -> None:
    arch = fields.arch
    refused = {
        "rope.scaling.type": (None, "none"),
        "attention.sliding_window": (None, 0),
        "expert_count": (None, 0),
        "rope.dimension_count": (None, head_dim),
        "attention.value_length": (None, head_dim),
    }
    for name, accepted in refused.items():
        value = fields.get(f"{arch}.{name}")
        if value not in accepted:
            raise ExportError(
                f"{fields.file}: {arch}.{name} is {value!r}, which is not supported",
                hint=f"it takes {' or '.join(str(a) for a in accepted if a is not None)}",
            )


def _special_tokens(fields: _Fields) -> dict[str, str]:
    tokens = fields.get("tokenizer.ggml.tokens") or []
    named = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in named.items()}
    return {name: tokens[i] for name, i in ids.items() if isinstance(i, int) and i < len(tokens)}
