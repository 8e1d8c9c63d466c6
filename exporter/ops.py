"""Custom torch operators of the `tabfire` namespace: what a model calls, what capture finds in the
graph.

Input:  tensors of the model; positions and row counts as `int`, which stay symbolic under
`torch.export`.
Output: tensors. The eager implementations are the reference: they work in the dtype of their input
(float64 in, float64 out) and refuse on the host what a kernel could not notice. Autograd is not
provided.
Way of the data: `models` call these, `capture` records them, `emit` maps each to the op of the same
name.

Letters: B batch, S query tokens, C context, Hq query heads, Hkv KV heads, D head width, E model
width, V vocabulary.

    y = linear_q(x, codes, scales, None, "q4gsw", 32, 2048)
    y = linear_q4gsw(x, codes, scales, group=32, in_features=2048)        # the same
    out = sdpa_with_kv_cache(q, k, v, self.k_cache, self.v_cache, input_pos)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.library import custom_op
from torch.utils.weak import WeakTensorKeyDictionary

from exporter import schemes
from exporter.reference import attend, rotate
from runtime_py.errors import ContextFullError, InputError

_dense: WeakTensorKeyDictionary | None = None


@contextlib.contextmanager
def cached_weights() -> Iterator[None]:
    """Keep weights that `linear_q` has dequantised while inside: eager decoding without doing it
    per token.
    """
    global _dense
    outer, _dense = _dense, _dense if _dense is not None else WeakTensorKeyDictionary()
    try:
        yield
    finally:
        _dense = outer


@custom_op("tabfire::linear_q", mutates_args=())
def linear_q(
    x: Tensor,
    codes: Tensor,
    scales: Tensor,
    bias: Tensor | None,
    scheme: str,
    group: int,
    in_features: int,
) -> Tensor:
    """Return `[..., N]`: y[m,n] = bias[n] + sum_k x[m,k] * w[n,k], w dequantised as `schemes` says,
    x `[..., K]`.
    """
    if x.shape[-1] != in_features:
        raise InputError(f"linear_q: x has {x.shape[-1]} columns, the weight {in_features}")
    weight = _dequantized(codes, scales, scheme, group, in_features).to(x.dtype)
    return F.linear(x, weight, bias)


@linear_q.register_fake
def _(
    x: Tensor,
    codes: Tensor,
    scales: Tensor,
    bias: Tensor | None,
    scheme: str,
    group: int,
    in_features: int,
) -> Tensor:
    return x.new_empty((*x.shape[:-1], codes.shape[0]))


@custom_op("tabfire::embedding_q", mutates_args=())
def embedding_q(
    ids: Tensor, codes: Tensor, scales: Tensor, scheme: str, group: int, width: int
) -> Tensor:
    """Return float32 `[..., E]`, the rows `ids` of the dequantised table `[V, E]`; an id outside it
    is refused.
    """
    flat = ids.reshape(-1)
    _check_ids(flat, codes.shape[0])
    rows = schemes.dequantize(codes[flat], scales[flat], scheme, group, width)
    return rows.view(*ids.shape, width)


@embedding_q.register_fake
def _(ids: Tensor, codes: Tensor, scales: Tensor, scheme: str, group: int, width: int) -> Tensor:
    return codes.new_empty((*ids.shape, width), dtype=torch.float32)


@custom_op("tabfire::rope", mutates_args=())
def rope(
    x: Tensor, inv_freq: Tensor, input_pos: int, interleaved: bool = False, scale: float = 1.0
) -> Tensor:
    """Return `x` `[B, S, H, D]` rotated by its position (RoFormer, arXiv:2104.09864).

    The first R = 2 * len(inv_freq) columns turn, the others pass. Row s has angle (input_pos + s) *
    inv_freq[i]; the pair is (i, i + R/2), or (2i, 2i + 1) when `interleaved`. `scale` is YaRN's
    magnitude factor on cos and sin.
    """
    return rotate(x, inv_freq, input_pos, interleaved, scale)


@rope.register_fake
def _(
    x: Tensor, inv_freq: Tensor, input_pos: int, interleaved: bool = False, scale: float = 1.0
) -> Tensor:
    return x.new_empty(x.shape)


@custom_op("tabfire::update_cache", mutates_args=("cache",))
def update_cache(value: Tensor, cache: Tensor, input_pos: int) -> None:
    """Write `value` `[1, S, H, D]` into rows input_pos.. of `cache` `[1, C, H, D]`, in the cache's
    dtype.
    """
    _check_write(value, cache, input_pos)
    cache[:, input_pos : input_pos + value.shape[1]] = value.to(cache.dtype)


@update_cache.register_fake
def _(value: Tensor, cache: Tensor, input_pos: int) -> None:
    return None


@custom_op("tabfire::sdpa_with_kv_cache", mutates_args=("k_cache", "v_cache"))
def sdpa_with_kv_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    input_pos: int,
    mask: Tensor | None = None,
    scale: float | None = None,
    causal: bool = True,
    window: int = 0,
    softcap: float = 0.0,
) -> Tensor:
    """Write k, v `[B, S, Hkv, D]` into the caches `[B, C, Hkv, D]` at input_pos, then return
    `attend(...)`. All sequences of a batch stand at the same position.
    """
    for value, cache in ((k, k_cache), (v, v_cache)):
        _check_write(value, cache, input_pos, batch=q.shape[0])
        cache[:, input_pos : input_pos + value.shape[1]] = value.to(cache.dtype)
    return attend(q, k_cache, v_cache, input_pos, mask, scale, causal, window, softcap)


@sdpa_with_kv_cache.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    input_pos: int,
    mask: Tensor | None = None,
    scale: float | None = None,
    causal: bool = True,
    window: int = 0,
    softcap: float = 0.0,
) -> Tensor:
    return q.new_empty(q.shape)


@custom_op("tabfire::last_rows", mutates_args=())
def last_rows(x: Tensor, rows: int) -> Tensor:
    """Return the last `rows` of x `[B, S, E]`: the positions whose logits the caller wants."""
    if not 1 <= rows <= x.shape[1]:
        raise InputError(f"last_rows: {rows} rows of {x.shape[1]}")
    return x[:, x.shape[1] - rows :].clone()


@last_rows.register_fake
def _(x: Tensor, rows: int) -> Tensor:
    return x.new_empty((x.shape[0], rows, x.shape[2]))


def linear_q4gsw(
    x: Tensor,
    codes: Tensor,
    scales: Tensor,
    *,
    group: int,
    in_features: int,
    bias: Tensor | None = None,
) -> Tensor:
    """`linear_q` with 4-bit symmetric weights: w = (nibble - 8) * scale."""
    y: Tensor = linear_q(x, codes, scales, bias, "q4gsw", group, in_features)
    return y


def linear_q4gaw(
    x: Tensor,
    codes: Tensor,
    scales: Tensor,
    *,
    group: int,
    in_features: int,
    bias: Tensor | None = None,
) -> Tensor:
    """`linear_q` with 4-bit affine weights: w = nibble * scale + min."""
    y: Tensor = linear_q(x, codes, scales, bias, "q4gaw", group, in_features)
    return y


def linear_q8gsw(
    x: Tensor,
    codes: Tensor,
    scales: Tensor,
    *,
    group: int,
    in_features: int,
    bias: Tensor | None = None,
) -> Tensor:
    """`linear_q` with 8-bit symmetric weights: w = code * scale."""
    y: Tensor = linear_q(x, codes, scales, bias, "q8gsw", group, in_features)
    return y


def embedding_q4gsw(
    ids: Tensor, codes: Tensor, scales: Tensor, *, group: int, width: int
) -> Tensor:
    """`embedding_q` over a 4-bit symmetric table."""
    y: Tensor = embedding_q(ids, codes, scales, "q4gsw", group, width)
    return y


def _dequantized(
    codes: Tensor, scales: Tensor, scheme: str, group: int, in_features: int
) -> Tensor:
    if _dense is None:
        return schemes.dequantize(codes, scales, scheme, group, in_features)
    known: Tensor | None = _dense.get(codes)  # type: ignore[no-untyped-call]
    if known is None:
        known = schemes.dequantize(codes, scales, scheme, group, in_features)
        _dense[codes] = known
    return known


def _check_ids(ids: Tensor, vocabulary: int) -> None:
    if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= vocabulary):
        wrong = [int(i) for i in ids if not 0 <= int(i) < vocabulary][:5]
        raise InputError(f"ids {wrong} are outside the vocabulary of {vocabulary}")


def _check_write(value: Tensor, cache: Tensor, input_pos: int, batch: int = 1) -> None:
    both = (value, cache)
    if any(x.dim() != 4 or x.shape[0] != batch for x in both):
        raise InputError(
            f"value {list(value.shape)} and cache {list(cache.shape)}: expected [{batch}, S, H, D] "
            f"and [{batch}, C, H, D]",
            hint=f"batch is {batch}, in the caches too; update_cache alone takes one sequence",
        )
    if value.shape[2:] != cache.shape[2:]:
        raise InputError(
            f"value {list(value.shape)} and cache {list(cache.shape)} differ in heads or head width"
        )
    if input_pos < 0:
        raise InputError(f"input_pos is {input_pos}, expected 0 or more")
    if input_pos + value.shape[1] > cache.shape[1]:
        raise ContextFullError(
            f"{value.shape[1]} rows at {input_pos} do not fit a cache of {cache.shape[1]}",
            hint="start a new sequence at input_pos 0, or export with a larger --max-context",
        )
