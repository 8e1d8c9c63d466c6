"""Quantises weights, and the modules that hold quantised weights.

Input:  a float weight `[N, K]`, or the codes and scales of a checkpoint's own blocks (which stay
exactly as they are).
Output: codes, scales and minima; `QuantLinear` and `QuantEmbedding`, whose buffers are the packed
constants.
Way of the data: `models` build these modules; their forward calls `ops.linear_q` and
`ops.embedding_q`.

The convention of symmetric codes is `scale = max|w| / 7` (4 bits) or `/ 127` (8 bits), rounded to
nearest: the largest magnitude of a group is kept exactly, on both sides, and -8 (or -128) never
arises. Affine: `scale = (max - min) / 15` (or `/ 255`). A group whose scale would be below
float32's smallest normal number is stored as zeros.

    layer = QuantLinear.from_float(torch.randn(256, 64), None, "q4gsw", 32)
    y = layer(torch.randn(1, 5, 64))                                     # [1, 5, 256]
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from exporter import ops
from exporter.schemes import dequantize, effective_group, pack, scheme_of
from runtime_py.errors import ExportError

__all__ = ["QuantEmbedding", "QuantLinear", "dequantize", "pack", "quantize"]

LEAST_NORMAL = torch.finfo(torch.float32).tiny


def quantize(
    weight: Tensor,
    scheme: str,
    group: int,
    *,
    scale_dtype: torch.dtype = torch.float32,
    name: str = "weight",
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return `(codes [N, K], scales [N, G], minima [N, G] or None)` that approximate `weight` `[N,
    K]`.

    A partial last group counts its own columns only. With `scale_dtype=torch.float16` scales are
    rounded before the codes are chosen. Raises `ExportError` on NaN or infinity in the weight.
    """
    if not bool(torch.isfinite(weight).all()):
        raise ExportError(f"{name} holds NaN or infinity", hint="the checkpoint is damaged")
    kind, columns = scheme_of(scheme), weight.shape[1]
    groups = _in_groups(weight.float(), effective_group(scheme, group, columns))
    if kind.affine:
        scales, mins = _affine_scales(groups, 2**kind.bits - 1, scale_dtype)
        codes = _rounded(groups - mins[..., None], scales).clamp_(0, 2**kind.bits - 1) + kind.least
        stored: Tensor | None = mins - kind.least * scales
    else:
        scales = _flushed(groups.abs().amax(-1) / peak_code(scheme), scale_dtype)
        codes = _rounded(groups, scales).clamp_(
            kind.least - kind.offset, kind.greatest - kind.offset
        )
        codes, stored = codes + kind.offset, None
    flat = codes.reshape(len(weight), -1)[:, :columns]
    return flat.to(torch.uint8 if kind.least == 0 else torch.int8), scales, stored


def peak_code(scheme: str) -> int:
    """Return the code of a symmetric group's largest magnitude: 7 of 4 bits, 127 of 8."""
    return (1 << (scheme_of(scheme).bits - 1)) - 1


class QuantLinear(nn.Module):
    """`y = x @ W.T + bias` with W packed in `codes` and `scales`."""

    codes: Tensor
    scales: Tensor
    bias: Tensor | None

    def __init__(
        self,
        codes: Tensor,
        scales: Tensor,
        scheme: str,
        group: int,
        in_features: int,
        bias: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.scheme, self.group, self.in_features, self.out_features = (
            scheme,
            group,
            in_features,
            codes.shape[0],
        )
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales)
        self.register_buffer("bias", bias)

    @classmethod
    def from_float(
        cls, weight: Tensor, bias: Tensor | None, scheme: str, group: int, *, name: str = "weight"
    ) -> QuantLinear:
        """Return the layer with `weight` `[N, K]` quantised."""
        codes, scales, mins = quantize(weight, scheme, group, name=name)
        return cls.from_blocks(codes, scales, mins, scheme, group, bias, name=name)

    @classmethod
    def from_blocks(
        cls,
        codes: Tensor,
        scales: Tensor,
        mins: Tensor | None,
        scheme: str,
        group: int,
        bias: Tensor | None = None,
        *,
        name: str = "weight",
    ) -> QuantLinear:
        """Return the layer with a checkpoint's codes `[N, K]` and scales, minima `[N, G]` carried
        over exactly.
        """
        packed = pack(codes, scales, mins, scheme, group, name)
        return cls(
            *packed, scheme, effective_group(scheme, group, codes.shape[1]), codes.shape[1], bias
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return `[..., N]` for x `[..., K]`."""
        y: Tensor = ops.linear_q(
            x, self.codes, self.scales, self.bias, self.scheme, self.group, self.in_features
        )
        return y

    def dense(self) -> Tensor:
        """Return the weight, float32 `[N, K]`."""
        return dequantize(self.codes, self.scales, self.scheme, self.group, self.in_features)

    def extra_repr(self) -> str:
        return f"{self.in_features} -> {self.out_features}, {self.scheme}, group={self.group}"


class QuantEmbedding(nn.Module):
    """A table `[V, E]` packed in `codes` and `scales`; `project` makes it the head too (tied
    weights).
    """

    codes: Tensor
    scales: Tensor

    def __init__(self, codes: Tensor, scales: Tensor, scheme: str, group: int, width: int) -> None:
        super().__init__()
        self.scheme, self.group, self.width, self.vocabulary = scheme, group, width, codes.shape[0]
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales)

    @classmethod
    def from_float(
        cls, weight: Tensor, scheme: str, group: int, *, name: str = "embedding"
    ) -> QuantEmbedding:
        """Return the embedding with `weight` `[V, E]` quantised."""
        codes, scales, mins = quantize(weight, scheme, group, name=name)
        return cls.from_blocks(codes, scales, mins, scheme, group, name=name)

    @classmethod
    def from_blocks(
        cls,
        codes: Tensor,
        scales: Tensor,
        mins: Tensor | None,
        scheme: str,
        group: int,
        *,
        name: str = "embedding",
    ) -> QuantEmbedding:
        """Return the embedding with a checkpoint's blocks carried over exactly."""
        packed = pack(codes, scales, mins, scheme, group, name)
        return cls(*packed, scheme, effective_group(scheme, group, codes.shape[1]), codes.shape[1])

    def forward(self, ids: Tensor) -> Tensor:
        """Return `[..., E]` for ids `[...]`."""
        y: Tensor = ops.embedding_q(
            ids, self.codes, self.scales, self.scheme, self.group, self.width
        )
        return y

    def project(self, x: Tensor) -> Tensor:
        """Return `[..., V]`, x `[..., E]` times the table: the same constants, no copy."""
        y: Tensor = ops.linear_q(
            x, self.codes, self.scales, None, self.scheme, self.group, self.width
        )
        return y

    def dense(self) -> Tensor:
        """Return the table, float32 `[V, E]`."""
        return dequantize(self.codes, self.scales, self.scheme, self.group, self.width)

    def extra_repr(self) -> str:
        return f"{self.vocabulary} x {self.width}, {self.scheme}, group={self.group}"


def _in_groups(weight: Tensor, group: int) -> Tensor:
    """Return `[N, G, group]`; a partial last group repeats its last column: no extreme moves."""
    missing = -weight.shape[1] % group
    if missing:
        weight = torch.cat((weight, weight[:, -1:].expand(-1, missing)), dim=1)
    return weight.view(len(weight), -1, group)


def _affine_scales(groups: Tensor, steps: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    least, greatest = torch.aminmax(groups, dim=-1)
    least = _flushed(least, dtype)
    return _flushed((greatest - least) / steps, dtype), least


def _flushed(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Round to `dtype`; numbers below float32's normal range become 0, as they would on a GPU."""
    rounded = numbers.to(dtype).float()
    return torch.where(rounded.abs() < LEAST_NORMAL, 0.0, rounded)


def _rounded(groups: Tensor, scales: Tensor) -> Tensor:
    """Return groups / scales to the nearest integer; a zero scale gives 0, never NaN."""
    divisor = torch.where(scales == 0, torch.inf, scales)
    return torch.round(groups / divisor[..., None])
