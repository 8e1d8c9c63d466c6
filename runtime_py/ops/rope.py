"""Rotary position embedding, alone and merged with the writing of the caches.

Input:  `rope(x[B,S,H,D], inv_freq[R/2])`,
        `rope_qkv_update(qkv[B,S,(Hq+2Hkv)*D], inv_freq, k_cache, v_cache)`.
Output: one dispatch a node; none for a `rope_qkv_update` that attention takes over
(`ops.attention_rotary`). Way of the data: rows of `ops.registry`.

Only the first R of D dimensions turn. Pairs are (i, i + R/2) ("rotate half") or (2i, 2i + 1)
("interleaved"); the angle of pair i at token s is (input_pos + s) * inv_freq[i] (Su et al. 2021,
"RoFormer", section 3.4).

    Node("n", "rope", ("x", "inv_freq"), ("y",), {"input_pos": SymbolAttr("input_pos")})
"""

from __future__ import annotations

from runtime_py.ops import layout
from runtime_py.ops.base import Binding, Dispatch, KernelKey, Lowering, OpDef, Param, key
from runtime_py.ops.cache import cache_reason
from runtime_py.schema import Graph, Node, expr_attr
from runtime_py.symbols import Expr, Shape, bounds, ceil_div, combine, product, show, show_shape

KEYS: tuple[KernelKey, ...] = (
    key("rope", head_dim=64, rotary_dim=64, interleaved=False),
    key("rope", head_dim=8, rotary_dim=4, interleaved=False),
    key("rope", head_dim=8, rotary_dim=4, interleaved=True),
    key("rope_qkv_update", head_dim=64, rotary_dim=64, interleaved=False, cache="f32"),
    key("rope_qkv_update", head_dim=128, rotary_dim=64, interleaved=True, cache="f16"),
)


def rotation_reason(graph: Graph, node: Node, head_dim: Expr) -> str | None:
    """Return why heads of `head_dim` cannot be rotated by the node's frequencies, or None."""
    inv_freq = graph.values[str(node.inputs[1])]
    if (
        inv_freq.dtype != "f32"
        or len(inv_freq.shape) != 1
        or not isinstance(inv_freq.shape[0], int)
    ):
        return f"inv_freq is {inv_freq.dtype} {show_shape(inv_freq.shape)}, expected f32 [R/2]"
    if not isinstance(head_dim, int) or head_dim % 2:
        return f"head width {show(head_dim)}: rotation needs an even, fixed width"
    if 2 * inv_freq.shape[0] > head_dim:
        return f"{inv_freq.shape[0]} frequencies turn more than the head's {head_dim} dimensions"
    position = expr_attr(node, "input_pos", 0)
    if bounds(position, graph.ranges)[0] < 0:
        return f"input_pos = {show(position)} can be negative"
    return layout.size_reason(graph, node)


def _check_rope(graph: Graph, node: Node) -> str | None:
    x = graph.values[str(node.inputs[0])]
    if len(x.shape) != 4 or x.dtype != "f32":
        return f"rope of {x.dtype} {show_shape(x.shape)}, expected f32 [B, S, H, D]"
    return rotation_reason(graph, node, x.shape[3])


def _rotation_axes(ctx: Lowering, node: Node, head_dim: int) -> dict[str, int | bool]:
    pairs = ctx.value(str(node.inputs[1])).shape[0]
    interleaved = bool(node.attrs.get("interleaved", False))
    return {"head_dim": head_dim, "rotary_dim": 2 * int(str(pairs)), "interleaved": interleaved}


def _scale(node: Node) -> Param:
    return Param("scale", "f32", float(str(node.attrs.get("scale", 1.0))))


def _lower_rope(ctx: Lowering, node: Node) -> list[Dispatch]:
    x = ctx.value(str(node.inputs[0]))
    head_dim = int(str(x.shape[3]))
    pairs = combine("*", product(x.shape[:3]), head_dim // 2)
    params = (
        Param("n", "u32", pairs),
        Param("S", "u32", x.shape[1]),
        Param("H", "u32", x.shape[2]),
        Param("position", "u32", expr_attr(node, "input_pos", 0)),
        _scale(node),
    )
    bindings = (
        Binding(x.name),
        Binding(str(node.inputs[1])),
        Binding(node.outputs[0], "read_write"),
    )
    kernel_key = key("rope", **_rotation_axes(ctx, node, head_dim))
    return [Dispatch(kernel_key, bindings, layout.fold(ctx, ceil_div(pairs, 64)), params)]


def _heads(node: Node) -> tuple[int, int, int]:
    """Return (Hq, Hkv, D) of a merged projection."""
    heads, kv_heads, head_dim = (
        int(str(node.attrs[name])) for name in ("heads", "kv_heads", "head_dim")
    )
    return heads, kv_heads, head_dim


def _check_qkv(graph: Graph, node: Node) -> str | None:
    heads, kv_heads, head_dim = _heads(node)
    qkv = graph.values[str(node.inputs[0])]
    width = (heads + 2 * kv_heads) * head_dim
    if qkv.dtype != "f32" or len(qkv.shape) != 3 or qkv.shape[2] != width:
        return f"qkv is {qkv.dtype} {show_shape(qkv.shape)}, expected f32 [B, S, {width}]"
    for cache in node.inputs[2:4]:
        reason = cache_reason(graph, node, str(cache), *qkv.shape[:2], (kv_heads, head_dim))
        if reason:
            return reason
    if graph.values[str(node.inputs[2])].dtype != graph.values[str(node.inputs[3])].dtype:
        return "the caches of k and v have different dtypes"
    return rotation_reason(graph, node, head_dim)


def _qkv_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    heads, _, head_dim = _heads(node)
    return ((*graph.values[str(node.inputs[0])].shape[:2], heads, head_dim),)


def _lower_qkv(ctx: Lowering, node: Node) -> list[Dispatch]:
    qkv, inv_freq, k_cache, v_cache = (str(name) for name in node.inputs)
    heads, kv_heads, head_dim = _heads(node)
    batch, tokens = ctx.value(qkv).shape[:2]
    cache = ctx.value(k_cache)
    pairs = product((batch, tokens, (heads + 2 * kv_heads) * (head_dim // 2)))
    numbers = {
        "n": pairs,
        "S": tokens,
        "C": cache.shape[1],
        "Hq": heads,
        "Hkv": kv_heads,
        "position": expr_attr(node, "input_pos", 0),
    }
    params = (*(Param(name, "u32", value) for name, value in numbers.items()), _scale(node))
    written = tuple(Binding(name, "read_write") for name in (node.outputs[0], k_cache, v_cache))
    kernel_key = key("rope_qkv_update", cache=cache.dtype, **_rotation_axes(ctx, node, head_dim))
    grid = layout.fold(ctx, ceil_div(pairs, 64))
    reason = "q rotated, k rotated into its cache and v copied into its cache in one dispatch"
    return [Dispatch(kernel_key, (Binding(qkv), Binding(inv_freq), *written), grid, params, reason)]


OPS: tuple[OpDef, ...] = (
    OpDef(
        "rope",
        ("rope",),
        ("f32",),
        "rotary position embedding of heads",
        _check_rope,
        lambda graph, node: (graph.values[str(node.inputs[0])].shape,),
        _lower_rope,
    ),
    OpDef(
        "rope_qkv_update",
        ("rope_qkv_update",),
        ("f32",),
        "rotary embedding of a merged q|k|v projection; k and v go into their caches",
        _check_qkv,
        _qkv_shape,
        _lower_qkv,
        mutates=True,
    ),
)
