"""Lowering rules: attention, RoPE, the KV cache, and the choice of rows for the logits.

Input:  torch nodes. Output: `sdpa`, and the `tabfire::` dialect one to one.
Way of the data: rules of `lowering`. The mutating ones receive their caches as buffers, from
`emit`.
"""

from __future__ import annotations

import math
from typing import Any

from exporter.lowering.builder import Builder, Operand, Ref, Refused
from exporter.lowering.rules import lowers
from runtime_py.symbols import Expr


@lowers("aten.scaled_dot_product_attention")
def sdpa(
    build: Builder,
    q: Operand,
    k: Operand,
    v: Operand,
    attn_mask: Operand | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Ref:
    if dropout_p:
        raise Refused("attention with dropout; call model.eval() before exporting")
    width = build.shape_of(q)[-1]
    attrs = _attention(build, q, scale) | {"causal": bool(is_causal)}
    shapes = [build.shape_of(x) for x in (q, k, v)]
    if any(len(shape) != 4 for shape in shapes):
        raise Refused("attention of tensors that are not [B, H, S, D]")
    if width != shapes[1][-1] or width != shapes[2][-1]:
        raise Refused("attention whose values differ from its keys in width")
    return build.add("sdpa", (q, k, v, additive(build, attn_mask)), attrs=attrs)


def additive(build: Builder, mask: Operand | None) -> Operand | None:
    """Return a mask as numbers added to the scores: 0 where seen, -inf where not."""
    if mask is None or build.dtype(mask) != "u32":
        return mask
    seen, hidden = build.number(0.0), build.number(-math.inf)
    return build.add("where", (mask, seen, hidden), build.shape_of(mask), "f32")


def _attention(build: Builder, q: Operand, scale: float | None) -> dict[str, Any]:
    width = build.shape_of(q)[-1]
    if not isinstance(width, int):
        raise Refused("attention of a symbolic head width")
    return {
        "scale": float(scale) if scale is not None else 1.0 / math.sqrt(width),
        "causal": True,
        "window": 0,
        "softcap": 0.0,
    }


@lowers("tabfire.rope")
def rope(
    build: Builder,
    x: Operand,
    inv_freq: Operand,
    input_pos: Expr,
    interleaved: bool = False,
    scale: float = 1.0,
) -> Ref:
    attrs = {"input_pos": input_pos, "interleaved": interleaved, "scale": float(scale)}
    return build.add("rope", (x, inv_freq), attrs=attrs)


@lowers("tabfire.update_cache")
def update_cache(build: Builder, value: Operand, cache: Ref, input_pos: Expr) -> None:
    _require_room(build, value, cache, input_pos)
    build.add_mutating("update_cache", (value, cache), (cache,), {"input_pos": input_pos})


@lowers("tabfire.sdpa_with_kv_cache")
def sdpa_with_kv_cache(
    build: Builder,
    q: Operand,
    k: Operand,
    v: Operand,
    k_cache: Ref,
    v_cache: Ref,
    input_pos: Expr,
    mask: Operand | None = None,
    scale: float | None = None,
    causal: bool = True,
    window: int = 0,
    softcap: float = 0.0,
) -> Ref:
    for value, cache in ((k, k_cache), (v, v_cache)):
        _require_room(build, value, cache, input_pos)
    attrs = _attention(build, q, scale) | {
        "input_pos": input_pos,
        "causal": causal,
        "window": window,
        "softcap": float(softcap),
    }
    inputs = (q, k, v, k_cache, v_cache, additive(build, mask))
    out = build.add_mutating(
        "sdpa_with_kv_cache", inputs, (k_cache, v_cache), attrs, (build.shape_of(q), build.dtype(q))
    )
    if out is None:
        raise Refused("attention without a result")
    return out


def _require_room(build: Builder, value: Operand, cache: Ref, input_pos: Expr) -> None:
    build.require_inside(input_pos, build.shape_of(value)[1], build.shape_of(cache)[1])


@lowers("tabfire.last_rows")
def last_rows(build: Builder, x: Operand, rows: Expr) -> Ref:
    from runtime_py.symbols import combine

    build.domain.require(combine("-", rows, build.shape_of(x)[1]), 0)
    return build.add("last_rows", (x,), attrs={"rows": rows})
