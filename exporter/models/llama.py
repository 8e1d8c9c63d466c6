"""The Llama family as one module: RMSNorm, rotary positions, grouped-query attention over a KV
cache, SwiGLU.

Input:  token ids int64 `[1, S]`, their position `input_pos`, and how many of the last rows need
logits.
Output: logits float32 `[1, L, V]`; the KV caches (buffers) hold the keys and values of every token
so far.
Way of the data: checkpoint reader -> `Llama` -> `capture`. Run eagerly it is the float32 reference.

Letters: B batch (1), S query tokens, C context, Hq query heads, Hkv KV heads, D head width, E model
width, F MLP width, V vocabulary, L logit rows. Llama 1 to 3.2, SmolLM2, Mistral without sliding
window, Qwen2 (biases on q, k, v) and Qwen3 (norms on q and k) differ only in `LlamaConfig`.

    model = Llama(config, weights)
    logits = model.logits([504, 3575], input_pos=0)          # [2, V]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter import ops
from exporter.models.weights import Weights
from runtime_py.errors import ContextFullError, ExportError, InputError


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3's frequency scaling: low frequencies are divided by `factor`, high ones kept, a ramp
    in between.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True)
class LlamaConfig:
    """The numbers that tell one member of the family from another. `head_dim` need not be width /
    heads.
    """

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    max_context: int
    norm_eps: float = 1e-5
    rope_base: float = 10000.0
    rope_scaling: RopeScaling | None = None
    tied_head: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    kv_dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        sizes = (
            "width",
            "layers",
            "heads",
            "kv_heads",
            "head_dim",
            "mlp",
            "vocabulary",
            "max_context",
        )
        for name in sizes:
            if getattr(self, name) < 1:
                raise ExportError(f"{name} is {getattr(self, name)}, expected 1 or more")
        if self.heads % self.kv_heads:
            raise ExportError(
                f"{self.heads} query heads cannot share {self.kv_heads} KV heads evenly"
            )
        if self.head_dim % 2:
            raise ExportError(f"head width {self.head_dim} is odd; rotary positions turn pairs")


def inverse_frequencies(config: LlamaConfig) -> Tensor:
    """Return float32 `[D/2]`, base ** (-2i / D), scaled as Llama 3.1 does when the configuration
    says so.

    Scaling (Llama 3.1 reference code, `apply_scaling`): with wavelength w = 2 pi / f and original
    context O, f / factor where w > O / low, f where w < O / high, else the blend by (O / w - low) /
    (high - low).
    """
    exponent = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    freq = config.rope_base**-exponent
    scaling = config.rope_scaling
    if scaling is None:
        return freq.float()
    turns = scaling.original_context * freq / (2 * math.pi)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    kept = ((turns - scaling.low_freq_factor) / span).clamp(0, 1)
    return (kept * freq + (1 - kept) * freq / scaling.factor).float()


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight (arXiv:1910.07467), over the last dimension."""

    weight: Tensor

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    """Grouped-query attention; the caches `[1, C, Hkv, D]` are mutable buffers of the exported
    graph.
    """

    k_cache: Tensor
    v_cache: Tensor

    def __init__(self, config: LlamaConfig, weights: Weights, name: str) -> None:
        super().__init__()
        width, head_dim, bias = config.width, config.head_dim, config.qkv_bias
        self.head_dim = head_dim
        self.q = weights.linear(f"{name}.q", config.heads * head_dim, width, bias)
        self.k = weights.linear(f"{name}.k", config.kv_heads * head_dim, width, bias)
        self.v = weights.linear(f"{name}.v", config.kv_heads * head_dim, width, bias)
        self.out = weights.linear(f"{name}.out", width, config.heads * head_dim, config.out_bias)
        self.q_norm, self.k_norm = (
            RMSNorm(weights.vector(f"{name}.{part}_norm", head_dim), config.norm_eps)
            if config.qk_norm
            else nn.Identity()
            for part in ("q", "k")
        )
        cache = (1, config.max_context, config.kv_heads, head_dim)
        self.register_buffer("k_cache", torch.zeros(cache, dtype=config.kv_dtype))
        self.register_buffer("v_cache", torch.zeros(cache, dtype=config.kv_dtype))

    def forward(self, x: Tensor, inv_freq: Tensor, input_pos: int) -> Tensor:
        q = self.q_norm(self.q(x).unflatten(-1, (-1, self.head_dim)))
        k = self.k_norm(self.k(x).unflatten(-1, (-1, self.head_dim)))
        v = self.v(x).unflatten(-1, (-1, self.head_dim))
        q = ops.rope(q, inv_freq, input_pos)
        k = ops.rope(k, inv_freq, input_pos)
        mixed = ops.sdpa_with_kv_cache(q, k, v, self.k_cache, self.v_cache, input_pos)
        projected: Tensor = self.out(mixed.flatten(2))
        return projected


class MLP(nn.Module):
    """SwiGLU (arXiv:2002.05202): down(silu(gate(x)) * up(x))."""

    def __init__(self, config: LlamaConfig, weights: Weights, name: str) -> None:
        super().__init__()
        self.gate = weights.linear(f"{name}.gate", config.mlp, config.width, config.mlp_bias)
        self.up = weights.linear(f"{name}.up", config.mlp, config.width, config.mlp_bias)
        self.down = weights.linear(f"{name}.down", config.width, config.mlp, config.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return projected


class Layer(nn.Module):
    """One block: attention and MLP, each on a normalised input and added to the residual."""

    def __init__(self, config: LlamaConfig, weights: Weights, name: str) -> None:
        super().__init__()
        eps = config.norm_eps
        self.attention_norm = RMSNorm(weights.vector(f"{name}.attention_norm", config.width), eps)
        self.attention = Attention(config, weights, f"{name}.attention")
        self.mlp_norm = RMSNorm(weights.vector(f"{name}.mlp_norm", config.width), eps)
        self.mlp = MLP(config, weights, f"{name}.mlp")

    def forward(self, x: Tensor, inv_freq: Tensor, input_pos: int) -> Tensor:
        x = x + self.attention(self.attention_norm(x), inv_freq, input_pos)
        mixed: Tensor = self.mlp(self.mlp_norm(x))
        return x + mixed


class Llama(nn.Module):
    """The whole model. A tied head uses the embedding's own constants."""

    inv_freq: Tensor

    def __init__(
        self, config: LlamaConfig, weights: Weights, inv_freq: Tensor | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.embedding = weights.embedding("embedding", config.vocabulary, config.width)
        names = [f"layers.{index}" for index in range(config.layers)]
        self.layers = nn.ModuleList(Layer(config, weights, name) for name in names)
        self.norm = RMSNorm(weights.vector("norm", config.width), config.norm_eps)
        self.head = (
            None
            if config.tied_head
            else weights.linear("head", config.vocabulary, config.width, False)
        )
        self.register_buffer(
            "inv_freq", inverse_frequencies(config) if inv_freq is None else inv_freq
        )

    def forward(self, tokens: Tensor, input_pos: int, num_logits: int) -> Tensor:
        """Return the logits `[1, L, V]` of the last `num_logits` tokens."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.inv_freq, input_pos)
        x = self.norm(ops.last_rows(x, num_logits))
        logits: Tensor = self.embedding.project(x) if self.head is None else self.head(x)
        return logits

    @torch.no_grad()
    def logits(self, token_ids: Sequence[int], input_pos: int = 0) -> Tensor:
        """Return float32 `[S, V]`, the logits of every given token, after what the caches hold."""
        if not token_ids:
            raise InputError("no token ids: logits need at least one")
        if input_pos + len(token_ids) > self.config.max_context:
            raise ContextFullError(
                f"{len(token_ids)} tokens at {input_pos} do not fit {self.config.max_context}"
            )
        logits: Tensor = self(torch.tensor([list(token_ids)]), input_pos, len(token_ids))
        return logits[0]

    @torch.no_grad()
    def greedy(self, prompt_ids: Sequence[int], count: int) -> list[int]:
        """Return the `count` most likely tokens after `prompt_ids`, from a fresh cache."""
        self.reset()
        found: list[int] = []
        step, position = list(prompt_ids), 0
        with ops.cached_weights():
            for _ in range(count):
                row = self(torch.tensor([step]), position, 1)[0, -1]
                position += len(step)
                step = [int(row.argmax())]
                found += step
        return found

    def reset(self) -> None:
        """Put the KV caches back to zeros."""
        for name, buffer in self.named_buffers():
            if name.endswith("_cache"):
                buffer.zero_()
