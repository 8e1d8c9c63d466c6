"""Fusion of q, k and v: one matrix product, one rotation that also writes the caches, attention.

Input:  an `Editor`. Output: True if it changed something.
Way of the data: a pass of `fuse`, after attention over a cache has been recognised.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from exporter.fuse_linear import (
    PRODUCTS,
    is_bare,
    merged_product,
    padded,
    same_weights_form,
    unique,
)
from exporter.rewrite import Editor
from exporter.symbolic import same
from runtime_py.schema import Node, Value, expr_attr
from runtime_py.symbols import combine


def merge_qkv(editor: Editor) -> bool:
    """sdpa_with_kv_cache(rope(linear q), rope(linear k), linear v) of one x, with views between ->
    linear(q|k|v rows), rope_qkv_update, sdpa_cached. For linear_q and linear alike.
    """
    for node in editor.nodes:
        if node.op != "sdpa_with_kv_cache":
            continue
        q, k, v = (
            _heads_of(editor, str(node.inputs[i]), roped)
            for i, roped in ((0, True), (1, True), (2, False))
        )
        if q is None or k is None or v is None or not _mergeable(editor, node, q, k, v):
            continue
        inputs = merged_product(editor, [q.product, k.product, v.product], "qkv")
        if inputs is not None:
            _fuse_qkv(editor, node, (q, k, v), inputs)
            return True
    return False


@dataclass(frozen=True)
class Heads:
    """The way from x to q, k or v: a product, a view into heads, and (not for v) a rope; read by
    nobody else.
    """

    product: Node
    rope: Node | None
    steps: tuple[Node, ...]


def _heads_of(editor: Editor, name: str, roped: bool) -> Heads | None:
    steps: list[Node] = []
    rope: Node | None = None
    while True:
        node = editor.producer.get(name)
        if node is None or editor.only_user(name) is None:
            return None
        steps.append(node)
        if node.op in PRODUCTS:
            complete = (rope is not None) == roped
            return (
                Heads(node, rope, tuple(steps))
                if complete and is_bare(node, allow_bias=True)
                else None
            )
        if node.op == "rope" and roped and rope is None:
            rope = node
        elif node.op != "view":
            return None
        name = str(node.inputs[0])


def _mergeable(editor: Editor, node: Node, q: Heads, k: Heads, v: Heads) -> bool:
    if q.rope is None or k.rope is None or not same_weights_form([q.product, k.product, v.product]):
        return False
    turns = [(r.inputs[1], dict(r.attrs)) for r in (q.rope, k.rope)]
    shapes = [editor.values[str(name)].shape for name in node.inputs[:3]]
    rows = [editor.values[part.product.outputs[0]].shape for part in (q, k, v)]
    plain = all(
        len(r) == 3 and r[:2] == s[:2] and r[2] == combine("*", s[2], s[3])
        for r, s in zip(rows, shapes, strict=True)
    )
    return (
        plain
        and turns[0] == turns[1]
        and same(expr_attr(q.rope, "input_pos"), expr_attr(node, "input_pos"))
        and shapes[1] == shapes[2]
    )


def _fuse_qkv(
    editor: Editor, node: Node, parts: tuple[Heads, Heads, Heads], inputs: tuple[str | None, ...]
) -> None:
    q, k, _ = parts
    shape, dtype = (
        editor.values[str(node.inputs[0])].shape,
        editor.values[str(node.inputs[0])].dtype,
    )
    heads, width = int(str(shape[2])), int(str(shape[3]))
    kv_heads = int(str(editor.values[str(node.inputs[1])].shape[2]))
    rows, turned = unique(editor, f"{node.outputs[0]}.qkv"), unique(editor, f"{node.outputs[0]}.q")
    editor.values[rows] = Value(rows, dtype, (*shape[:2], (heads + 2 * kv_heads) * width))
    editor.values[turned] = Value(turned, dtype, shape)
    rope = q.rope or k.rope
    if rope is None:
        return
    attrs = {**rope.attrs, "heads": heads, "kv_heads": kv_heads, "head_dim": width}
    caches = (str(node.inputs[3]), str(node.inputs[4]))
    new = [
        replace(q.product, name=rows, inputs=inputs, outputs=(rows,)),
        Node(
            turned,
            "rope_qkv_update",
            (rows, rope.inputs[1], *caches),
            (turned,),
            attrs,
            caches,
            rope.source,
        ),
        replace(
            node, op="sdpa_cached", inputs=(turned, *caches, *padded(node, 6)[5:6]), mutates=()
        ),
    ]
    gone = [step for part in parts for step in part.steps]
    editor.replace([*gone, node], new, node)
