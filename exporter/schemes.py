"""The bit layout of quantised weights: integer codes and their scales, packed into the words the
kernels read.

Input:  integer codes `[N, K]` with a scale (and, affine, a minimum) for every group of `group`
codes of a row.
Output: two constants, `codes` (int32 tensor, the bits of u32 words) and `scales` (float16 or
float32); and back again.
Way of the data: under `ops` and `quantize`; imports neither. docs/FORMAT.md tells the layout in
prose.

    codes, scales = pack(torch.tensor([[9] * 32]), torch.tensor([[0.5]]), None, "q4gsw", 32)
    codes.shape, scales.shape             # (1, 4), (1, 2): scales are padded to an even count
    dequantize(codes, scales, "q4gsw", 32, 32)[0, 0]         # (9 - 8) * 0.5 = 0.5
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from runtime_py.errors import ExportError

F16_LEAST_NORMAL = 2.0**-14


@dataclass(frozen=True)
class Scheme:
    """How a code becomes a number: `(code - offset) * scale`; affine: `code * scale + min`."""

    name: str
    bits: int
    affine: bool
    least: int
    greatest: int
    offset: int

    @property
    def codes_per_word(self) -> int:
        return 32 // self.bits

    @property
    def row_multiple(self) -> int:
        """Codes in 16 bytes: a row is padded to whole `vec4<u32>`."""
        return 4 * self.codes_per_word


SCHEMES = {
    s.name: s
    for s in (
        Scheme("q4gsw", bits=4, affine=False, least=0, greatest=15, offset=8),
        Scheme("q4gaw", bits=4, affine=True, least=0, greatest=15, offset=0),
        Scheme("q8gsw", bits=8, affine=False, least=-128, greatest=127, offset=0),
        Scheme("q8gaw", bits=8, affine=True, least=-128, greatest=127, offset=0),
    )
}


def scheme_of(name: str) -> Scheme:
    """Return the scheme called `name`; raises `ExportError` on any other word."""
    if name not in SCHEMES:
        raise ExportError(f"unknown scheme {name!r}", hint=f"one of {', '.join(SCHEMES)}")
    return SCHEMES[name]


def padded_width(scheme: str, in_features: int) -> int:
    """Return the codes that a row of `in_features` occupies, padding included."""
    multiple = scheme_of(scheme).row_multiple
    return -(-in_features // multiple) * multiple


def effective_group(scheme: str, group: int, in_features: int) -> int:
    """Return `group`, or for `group == K` the next whole number of words; raises `ExportError` if
    illegal.
    """
    step = scheme_of(scheme).codes_per_word
    if group == in_features:
        return -(-group // step) * step
    if group <= 0 or group % step:
        raise ExportError(
            f"group of {group} codes: {scheme} takes positive multiples of {step}, "
            f"or the row's width {in_features}"
        )
    return group


def group_count(scheme: str, group: int, in_features: int) -> int:
    """Return the groups of a padded row (the last may be partial)."""
    return -(-padded_width(scheme, in_features) // effective_group(scheme, group, in_features))


def pack(
    codes: torch.Tensor,
    scales: torch.Tensor,
    mins: torch.Tensor | None,
    scheme: str,
    group: int,
    name: str = "weight",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `(codes, scales)` in the stored layout from codes `[N, K]` and scales, mins `[N,
    ceil(K / group)]`.

    Raises `ExportError`, naming `name`, on a NaN or infinite scale, a code out of range or a wrong
    shape.
    """
    _check(codes, scales, mins, scheme, group, name)
    return pack_codes(codes, scheme), pack_scales(scales, mins, scheme, group, codes.shape[1])


def pack_codes(codes: torch.Tensor, scheme: str) -> torch.Tensor:
    """Return words `[N, W]` (int32): 8 nibbles a word, low nibbles first (k = 8j..8j+3), or 4
    signed bytes.
    """
    rows, width = codes.shape
    padded = torch.zeros(rows, padded_width(scheme, width), dtype=torch.uint8)
    padded[:, :width] = (
        codes.to(torch.uint8) if codes.dtype != torch.int8 else codes.view(torch.uint8)
    )
    if scheme_of(scheme).bits == 8:
        return padded.view(torch.int32)
    halves = padded.view(rows, -1, 2, 4)
    return (halves[:, :, 0] | (halves[:, :, 1] << 4)).reshape(rows, -1).view(torch.int32)


def unpack_codes(words: torch.Tensor, scheme: str) -> torch.Tensor:
    """Return codes `[N, padded K]`: uint8 nibbles for 4 bits, int8 for 8; the inverse of
    `pack_codes`.
    """
    if scheme_of(scheme).bits == 8:
        return words.contiguous().view(torch.int8)
    as_bytes = words.contiguous().view(torch.uint8).view(words.shape[0], -1, 1, 4)
    return torch.cat((as_bytes & 15, as_bytes >> 4), dim=2).view(words.shape[0], -1)


def pack_scales(
    scales: torch.Tensor, mins: torch.Tensor | None, scheme: str, group: int, in_features: int
) -> torch.Tensor:
    """Return `[N, G rounded up to even]` (symmetric) or `[N, G, 2]` (affine: scale, min); padding
    is 0.
    """
    groups = group_count(scheme, group, in_features)
    rows, given = scales.shape
    if mins is None:
        stored = torch.zeros(rows, groups + groups % 2, dtype=torch.float32)
        stored[:, :given] = scales
    else:
        stored = torch.zeros(rows, groups, 2, dtype=torch.float32)
        stored[:, :given, 0], stored[:, :given, 1] = scales, mins
    return stored.half() if _exact_in_f16(stored) else stored


def dequantize(
    codes: torch.Tensor, scales: torch.Tensor, scheme: str, group: int, in_features: int
) -> torch.Tensor:
    """Return the weight, float32 `[N, K]`, from its stored constants; each value is rounded as a
    kernel does.
    """
    kind = scheme_of(scheme)
    width = effective_group(scheme, group, in_features)
    numbers = unpack_codes(codes, scheme)[:, :in_features].to(torch.float32)
    whole = in_features - in_features % width
    stored = scales.to(torch.float32)
    factors = stored[:, :, 0] if kind.affine else stored
    if kind.offset:
        numbers -= kind.offset
    numbers[:, :whole].view(len(numbers), -1, width).mul_(factors[:, : whole // width, None])
    numbers[:, whole:].mul_(factors[:, whole // width, None] if whole < in_features else 1.0)
    if kind.affine:
        least = stored[:, :, 1].repeat_interleave(width, dim=1)
        numbers += least[:, :in_features]
    return numbers


def _exact_in_f16(stored: torch.Tensor) -> bool:
    """True if float16 loses nothing; subnormals count as a loss, since a GPU may flush them to
    zero.
    """
    halved = stored.half()
    normal = (stored == 0) | (halved.abs() >= F16_LEAST_NORMAL)
    return bool((normal & (halved.float() == stored)).all())


def _check(
    codes: torch.Tensor,
    scales: torch.Tensor,
    mins: torch.Tensor | None,
    scheme: str,
    group: int,
    name: str,
) -> None:
    kind = scheme_of(scheme)
    if codes.dim() != 2 or codes.numel() == 0:
        raise ExportError(
            f"{name}: codes have shape {list(codes.shape)}, expected [N, K] with N, K > 0"
        )
    width = effective_group(scheme, group, codes.shape[1])
    expected = (codes.shape[0], -(-codes.shape[1] // width))
    if (mins is not None) != kind.affine:
        raise ExportError(
            f"{name}: {scheme} takes {'scales and minima' if kind.affine else 'scales only'}"
        )
    for label, tensor in (("scales", scales), ("minima", mins)):
        if tensor is None:
            continue
        if tuple(tensor.shape) != expected:
            raise ExportError(
                f"{name}: {label} have shape {list(tensor.shape)}, expected {list(expected)}"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise ExportError(
                f"{name}: {label} hold NaN or infinity",
                hint="the checkpoint is damaged; one NaN poisons every token",
            )
    low, high = torch.aminmax(codes)
    if int(low) < kind.least or int(high) > kind.greatest:
        raise ExportError(
            f"{name}: codes run from {int(low)} to {int(high)}, "
            f"{scheme} holds {kind.least} to {kind.greatest}"
        )
