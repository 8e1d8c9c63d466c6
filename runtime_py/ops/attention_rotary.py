"""Attention of one token that rotates itself: the work of `rope_qkv_update` in attention's kernel.

Input:  an `Attention` over caches, and the node before it.
Output: the same node as a kernel sees it that reads the merged projection, or None.
Way of the data: `ops.attention` -> attention_rotary -> `attention_routes`; `plan` asks for it.

A step of one token is a chain of small dispatches that wait for each other. Merged, rotating and
filling the caches cost a layer no dispatch of their own.

    rotated(ctx, attention, Node("r", "rope_qkv_update", ("qkv", "inv_freq", "k", "v"), ("q",)))
"""

from __future__ import annotations

from dataclasses import replace

from runtime_py.ops import layout
from runtime_py.ops.attention_node import Attention, Rotation
from runtime_py.ops.base import Lowering
from runtime_py.schema import Node, expr_attr


def rotated(ctx: Lowering, a: Attention, before: Node) -> Attention | None:
    """Return node `a` on the input of `before`, or None unless that one rotates q into place and
    fills the caches of `a` at its position."""
    if before.op != "rope_qkv_update" or a.q != before.outputs[0]:
        return None
    qkv, inv_freq, *caches = (str(name) for name in before.inputs)
    if caches != [a.k, a.v] or not layout.same(expr_attr(before, "input_pos", 0), a.position):
        return None
    pairs = int(str(ctx.value(inv_freq).shape[0]))
    rotation = Rotation(
        inv_freq,
        2 * pairs,
        bool(before.attrs.get("interleaved", False)),
        float(str(before.attrs.get("scale", 1.0))),
    )
    batch, token, _ = layout.strides(ctx.value(qkv).shape)
    return replace(a, q=qkv, q_steps=(batch, token, a.head_dim), rotation=rotation)
