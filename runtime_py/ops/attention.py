"""Attention over a KV cache, plain attention, and the writing of the caches.

Input:  `sdpa_cached(q[B,S,Hq,D], k_cache[B,C,Hkv,D], v_cache, mask?)`,
        `sdpa_with_kv_cache(q, k, v, k_cache, v_cache, mask?)`,
        `sdpa(q[B,Hq,S,D], k[B,Hkv,C,D], v, mask?)`,
        `update_cache(value[B,S,H,D], cache[B,C,H,D])`.
Output: the dispatches of a route of `attention_routes`.
Way of the data: rows of `ops.registry`.

Token s sits at key input_pos + s. Keys 0 .. input_pos + S - 1 hold values; with `causal` a token
sees keys up to its own, with `window` W only the last W of those, itself included. Query head h
reads KV head h // (Hq / Hkv). `mask` is added (f32) or kept where true (u32); a token that sees no
key gives zeros (torch's rule since 2.5).

    Node("n", "sdpa_cached", ("q", "k_cache", "v_cache"), ("y",),
         {"input_pos": SymbolAttr("input_pos"), "scale": 0.125, "causal": True, "window": 0})
"""

from __future__ import annotations

from runtime_py.ops import attention_routes as routes
from runtime_py.ops import layout
from runtime_py.ops.attention_keys import KEYS
from runtime_py.ops.attention_node import Attention
from runtime_py.ops.attention_rotary import rotated
from runtime_py.ops.base import Dispatch, Lowering, OpDef
from runtime_py.ops.cache import cache_reason, update, update_reason
from runtime_py.ops.layout import fits
from runtime_py.schema import Graph, Node, expr_attr
from runtime_py.symbols import Expr, Shape, combine, show, show_shape

__all__ = ["KEYS", "OPS"]
MAX_HEAD_DIM = 512


def _names(node: Node, count: int) -> tuple[tuple[str, ...], str | None]:
    """Return the first `count` inputs and the mask that may follow them."""
    names = tuple(str(name) for name in node.inputs[:count])
    return names, node.inputs[count] if len(node.inputs) > count else None


def _number(node: Node, name: str, default: float) -> float:
    return float(str(node.attrs.get(name, default)))


def _rules_reason(
    graph: Graph, node: Node, q: Shape, kv: Shape, heads: tuple[int, int], keys: Expr
) -> str | None:
    """Return why queries and keys do not belong together; `heads`: where Hq and Hkv stand."""
    hq, hkv, d = q[heads[0]], kv[heads[1]], q[3]
    if not (isinstance(hq, int) and isinstance(hkv, int) and isinstance(d, int)):
        found = f"{show_shape(q)} and {show_shape(kv)}"
        return f"{node.op}: heads and head width must be fixed, found {found}"
    if hq % hkv:
        return f"{node.op}: {hq} query heads are no multiple of {hkv} KV heads"
    if kv[3] != d or not 1 <= d <= MAX_HEAD_DIM:
        return f"{node.op}: head width {d} against {show(kv[3])}, the most is {MAX_HEAD_DIM}"
    if not layout.same(q[0], kv[0]):
        return f"{node.op}: batch {show(q[0])} against {show(kv[0])}"
    window, cap = _number(node, "window", 0), _number(node, "softcap", 0.0)
    if window < 0 or cap < 0:
        return f"{node.op}: window {window:g} and softcap {cap:g} must not be negative"
    if window and not node.attrs.get("causal", True):
        return f"{node.op}: a sliding window needs causal attention"
    return layout.size_reason(graph, node)


def _mask_reason(graph: Graph, mask: str | None, full: Shape) -> str | None:
    """Return why `mask` does not broadcast to [B, Hq, S, C]; its last dimension may be longer."""
    if mask is None:
        return None
    value = graph.values[mask]
    if value.dtype not in ("f32", "u32"):
        return f"mask is {value.dtype}, expected f32 (added) or u32 (kept where true)"
    if not 1 <= len(value.shape) <= 4:
        return f"mask {show_shape(value.shape)}, expected up to [B, Hq, S, C]"
    wide = (1,) * (4 - len(value.shape)) + value.shape
    for have, want in zip(wide[:3], full[:3], strict=True):
        if have != 1 and not layout.same(have, want):
            return f"mask {show_shape(value.shape)} does not broadcast to {show_shape(full)}"
    if wide[3] != 1 and not fits(graph, full[3], wide[3]):
        return f"mask {show_shape(value.shape)} can be shorter than the {show(full[3])} keys"
    return None


def _mask_steps(ctx: Lowering, mask: str | None) -> Shape:
    if mask is None:
        return (0, 0, 0, 0)
    shape = ctx.value(mask).shape
    wide = (1,) * (4 - len(shape)) + shape
    return tuple(
        0 if size == 1 else step for size, step in zip(wide, layout.strides(wide), strict=True)
    )


def _scale(node: Node, head_dim: int) -> float:
    value = node.attrs.get("scale")
    return head_dim**-0.5 if value is None else float(str(value))


def _describe(
    ctx: Lowering, node: Node, q: str, k: str, v: str, mask: str | None, *, cached: bool
) -> Attention:
    """Return the description of a node with caches ([B, S, H, D]) or without ([B, H, S, D])."""
    shape, kv = ctx.value(q).shape, ctx.value(k).shape
    s, h = (1, 2) if cached else (2, 1)
    q_steps, k_steps = layout.strides(shape), layout.strides(kv)
    position = expr_attr(node, "input_pos", 0)
    head_dim = int(str(shape[3]))
    return Attention(
        node=node,
        q=q,
        k=k,
        v=v,
        mask=mask,
        y=node.outputs[0],
        batch=shape[0],
        tokens=shape[s],
        heads=int(str(shape[h])),
        kv_heads=int(str(kv[h])),
        head_dim=head_dim,
        keys=combine("+", position, shape[1]) if cached else kv[2],
        position=position,
        q_steps=(q_steps[0], q_steps[s], q_steps[h]),
        k_steps=(k_steps[0], k_steps[s], k_steps[h]),
        y_steps=(q_steps[0], q_steps[s], q_steps[h]),
        mask_steps=_mask_steps(ctx, mask),
        scale=_scale(node, head_dim),
        causal=bool(node.attrs.get("causal", cached)),
        window=int(_number(node, "window", 0)),
        softcap=_number(node, "softcap", 0.0),
    )


def _check_sdpa(graph: Graph, node: Node) -> str | None:
    (q, k, v), mask = _names(node, 3)
    shapes = [graph.values[name].shape for name in (q, k, v)]
    if any(len(shape) != 4 for shape in shapes) or not layout.same_shape(shapes[1], shapes[2]):
        return f"sdpa of {', '.join(show_shape(shape) for shape in shapes)}: expected [B, H, S, D]"
    if {graph.values[name].dtype for name in (q, k, v)} != {"f32"}:
        return "sdpa: q, k and v must be f32"
    full = (shapes[0][0], shapes[0][1], shapes[0][2], shapes[1][2])
    return _mask_reason(graph, mask, full) or _rules_reason(
        graph, node, shapes[0], shapes[1], (1, 1), full[3]
    )


def _check_cached(graph: Graph, node: Node) -> str | None:
    (q, k, v), mask = _names(node, 3)
    return _cached_reason(graph, node, q, k, v, mask)


def _cached_reason(
    graph: Graph, node: Node, q: str, k: str, v: str, mask: str | None
) -> str | None:
    query, cache = graph.values[q], graph.values[k]
    if len(query.shape) != 4 or query.dtype != "f32":
        return (
            f"{node.op}: q is {query.dtype} {show_shape(query.shape)}, expected f32 [B, S, Hq, D]"
        )
    batch, tokens = query.shape[:2]
    reason = cache_reason(graph, node, k, batch, tokens, cache.shape[2:])
    if reason:
        return f"{node.op}: {reason}"
    if graph.values[v].dtype != cache.dtype or not layout.same_shape(
        graph.values[v].shape, cache.shape
    ):
        return f"{node.op}: the caches of k and v differ"
    keys = combine("+", expr_attr(node, "input_pos", 0), tokens)
    full = (batch, query.shape[2], tokens, keys)
    return _mask_reason(graph, mask, full) or _rules_reason(
        graph, node, query.shape, cache.shape, (2, 2), keys
    )


def _lower_cached(ctx: Lowering, node: Node) -> list[Dispatch]:
    (q, k, v), mask = _names(node, 3)
    return routes.lower(ctx, _describe(ctx, node, q, k, v, mask, cached=True))


def _take_over(ctx: Lowering, before: Node, node: Node) -> list[Dispatch] | None:
    (q, k, v), mask = _names(node, 3)
    a = rotated(ctx, _describe(ctx, node, q, k, v, mask, cached=True), before)
    return None if a is None else routes.lower_rotated(ctx, a)


def _lower_sdpa(ctx: Lowering, node: Node) -> list[Dispatch]:
    (q, k, v), mask = _names(node, 3)
    return routes.lower(ctx, _describe(ctx, node, q, k, v, mask, cached=False))


def _check_with_cache(graph: Graph, node: Node) -> str | None:
    (q, k, v, k_cache, v_cache), mask = _names(node, 5)
    for value, cache in ((k, k_cache), (v, v_cache)):
        reason = update_reason(graph, node, value, cache)
        if reason:
            return reason
    if not layout.same_shape(graph.values[k].shape[:2], graph.values[q].shape[:2]):
        shapes = [show_shape(graph.values[name].shape) for name in (k, q)]
        return f"{node.op}: k {shapes[0]} against q {shapes[1]}"
    return _cached_reason(graph, node, q, k_cache, v_cache, mask)


def _lower_with_cache(ctx: Lowering, node: Node) -> list[Dispatch]:
    (q, k, v, k_cache, v_cache), mask = _names(node, 5)
    updates = [update(ctx, node, k, k_cache), update(ctx, node, v, v_cache)]
    return updates + routes.lower(ctx, _describe(ctx, node, q, k_cache, v_cache, mask, cached=True))


def _query_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.values[str(node.inputs[0])].shape,)


_ROUTES = (
    "attention_decode",
    "attention_split",
    "attention_combine",
    "attention_tiled",
    "attention_stream",
    "attention_scores",
    "attention_softmax",
    "attention_values",
)
OPS: tuple[OpDef, ...] = (
    OpDef(
        "update_cache",
        ("update_cache",),
        ("f32", "f16"),
        "write the tokens of a step into a cache",
        lambda graph, node: update_reason(graph, node, str(node.inputs[0]), str(node.inputs[1])),
        lambda graph, node: (),
        lambda ctx, node: [update(ctx, node, str(node.inputs[0]), str(node.inputs[1]))],
        mutates=True,
    ),
    OpDef(
        "sdpa_cached",
        _ROUTES,
        ("f32",),
        "attention of the step's tokens over the caches",
        _check_cached,
        _query_shape,
        _lower_cached,
        take_over=_take_over,
    ),
    OpDef(
        "sdpa_with_kv_cache",
        ("update_cache", *_ROUTES),
        ("f32",),
        "write k and v into the caches, then sdpa_cached",
        _check_with_cache,
        _query_shape,
        _lower_with_cache,
        mutates=True,
    ),
    OpDef(
        "sdpa",
        _ROUTES,
        ("f32",),
        "scaled dot product attention without a cache",
        _check_sdpa,
        _query_shape,
        _lower_sdpa,
    ),
)
