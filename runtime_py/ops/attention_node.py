"""One attention node as all routes see it: names, sizes, strides and rules.

Input:  what `ops.attention` reads off a node. Output: an `Attention`, and the parameters, axes and
bindings with which every attention kernel starts (wgsl/macros/attention.wgsl).
Way of the data: `ops.attention` -> attention_node -> `attention_routes`.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime_py.ops.base import Axis, Binding, Lowering, Param
from runtime_py.schema import Node
from runtime_py.symbols import Expr, Shape, combine


@dataclass(frozen=True)
class Rotation:
    """What a kernel needs to rotate Q and the token's own K itself (`ops.attention_rotary`)."""

    inv_freq: str
    width: int
    interleaved: bool
    magnitude: float


@dataclass(frozen=True)
class Attention:
    """One attention node.

    Strides are (batch, token or key, head), in elements; a head's row is contiguous. With a
    `rotation`, q is the merged projection of q, k and v, and k and v lack the token yet.
    """

    node: Node
    q: str
    k: str
    v: str
    mask: str | None
    y: str
    batch: Expr
    tokens: Expr
    heads: int
    kv_heads: int
    head_dim: int
    keys: Expr
    position: Expr
    q_steps: Shape
    k_steps: Shape
    y_steps: Shape
    mask_steps: Shape
    scale: float
    causal: bool
    window: int
    softcap: float
    rotation: Rotation | None = None

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.heads // self.kv_heads


def common_params(a: Attention, vec: int = 1) -> tuple[Param, ...]:
    """Return the parameters of every attention kernel; strides count `vec` elements."""
    numbers: dict[str, Expr] = {
        "S": a.tokens,
        "keys": a.keys,
        "position": a.position,
        "window": a.window,
        "group": a.group,
    }
    params = [Param(name, "u32", value) for name, value in numbers.items()]
    params += [Param("scale", "f32", a.scale), Param("cap", "f32", a.softcap)]
    layouts = (("q", "bsh", a.q_steps), ("k", "bch", a.k_steps), ("y", "bsh", a.y_steps))
    for prefix, letters, steps in layouts:
        for letter, step in zip(letters, steps, strict=True):
            params.append(Param(f"{prefix}_{letter}", "u32", combine("//", step, vec)))
    for letter, step in zip("bhsk", a.mask_steps, strict=True):
        params.append(Param(f"m_{letter}", "u32", step))
    return tuple(params)


def common_axes(ctx: Lowering, a: Attention) -> dict[str, Axis]:
    """Return the axes that every attention kernel has."""
    return {
        "cache": ctx.value(a.k).dtype,
        "mask": "none" if a.mask is None else ctx.value(a.mask).dtype,
        "causal": a.causal,
        "window": a.window > 0,
        "softcap": a.softcap > 0,
    }


def reads(a: Attention) -> tuple[Binding, ...]:
    """Return the bindings of what node `a` reads; with a rotation, it writes the caches as well."""
    access = "read" if a.rotation is None else "read_write"
    return (
        Binding(a.q),
        *(() if a.rotation is None else (Binding(a.rotation.inv_freq),)),
        *(Binding(name, access) for name in (a.k, a.v)),
        *(() if a.mask is None else (Binding(a.mask),)),
    )
