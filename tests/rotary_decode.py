"""A rotation that fills the caches and the attention that reads them: a graph of two nodes.

Input:  heads, widths, rules. Output: the graph, its dispatches in both forms, arrays for them.
Way of the data: read by test_take_over (which form is taken) and test_take_over_gpu (the same bits).

    merged = dispatches(Pair("gqa", 9, 3, 64, 130), apart=False)     # attention_decode, its combine
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from runtime_py.ops import registry
from runtime_py.ops.base import Caps, Dispatch
from runtime_py.plan import Planner
from runtime_py.schema import (
    Attr,
    Buffer,
    Constant,
    Constraint,
    Graph,
    Node,
    Port,
    Symbol,
    SymbolAttr,
    Value,
)
from runtime_py.symbols import Interval, Op, evaluate, product
from tests import oracles
from tests.lowering import GPU, require_legal
from tests.tolerances import SDPA_F32, require

POS = SymbolAttr("pos")
MASKS = {"additive": "f32", "kept": "u32"}
STORED = ("y", "k", "v")  # what a step leaves behind


@dataclass(frozen=True)
class Pair:
    """A layer's rotation and attention; `turned` of the `d` dimensions of a head turn, 0: all."""

    name: str
    hq: int
    hkv: int
    d: int
    cmax: int
    turned: int = 0
    interleaved: bool = False
    batch: int = 1
    mask: str = ""
    magnitude: float = 1.0
    rules: Mapping[str, Attr] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """How many dimensions of a head turn."""
        return self.turned or self.d

    @property
    def cache(self) -> tuple[int, int, int, int]:
        return (self.batch, self.cmax, self.hkv, self.d)


def graph(pair: Pair, *, apart: bool = False) -> Graph:
    """Return the graph of S tokens; `apart` makes the rotated q an output, so that it must exist."""
    p, cache = pair, pair.cache
    shapes: dict[str, Any] = {
        "qkv": (p.batch, "S", (p.hq + 2 * p.hkv) * p.d),
        "inv_freq": (p.width // 2,),
        "k": cache,
        "v": cache,
        **{name: (p.batch, "S", p.hq, p.d) for name in ("q", "y")},
    }
    values = {name: Value(name, "f32", shape) for name, shape in shapes.items()}
    if p.mask:
        values["mask"] = Value("mask", MASKS[p.mask], ("S", p.cmax))
    attrs: dict[str, Attr] = {"heads": p.hq, "kv_heads": p.hkv, "head_dim": p.d}
    attrs |= {"input_pos": POS, "interleaved": p.interleaved, "scale": p.magnitude}
    inputs = ("q", "k", "v", *(("mask",) if p.mask else ()))
    nodes = (
        Node("turn", "rope_qkv_update", ("qkv", "inv_freq", "k", "v"), ("q",), attrs, ("k", "v")),
        Node("attend", "sdpa_cached", inputs, ("y",), {"input_pos": POS, **p.rules}),
    )
    ports = ("qkv", *(("mask",) if p.mask else ()))
    return Graph(
        symbols=(Symbol("S", 1, p.cmax), Symbol("pos", 0, p.cmax - 1)),
        constraints=(Constraint(Op("+", "S", "pos"), p.cmax),),
        values=values,
        constants={"inv_freq": Constant("inv_freq", ())},
        buffers={"k": Buffer("k", None), "v": Buffer("v", None)},
        nodes=nodes,
        inputs=tuple(Port(name, name) for name in ports),
        outputs=tuple(Port(name, name) for name in ("y", *(("q",) if apart else ()))),
    )


def lower(
    given: Graph,
    tokens: Interval = (1, 1),
    caps: Caps = GPU,
    options: Mapping[str, object] | None = None,
) -> tuple[Planner, list[Dispatch]]:
    """Return the dispatches of a graph that passes its checks, each held against WebGPU's rules."""
    assert [registry[node.op].check(given, node) for node in given.nodes] == [None, None]
    planner = Planner(given, caps, options or {}, {"S": tokens})
    found = planner.dispatches()
    for dispatch in found:
        require_legal(planner, dispatch)
    return planner, found


def arrays(pair: Pair, pos: int) -> dict[str, Any]:
    """Return what a step of one token at `pos` finds; slots without a token and results are NaN."""
    chance = np.random.default_rng(1000 * pair.d + 10 * pos + pair.hq)
    row = (pair.batch, 1, (pair.hq + 2 * pair.hkv) * pair.d)
    found = {
        "qkv": chance.standard_normal(row, np.float32),
        "inv_freq": oracles.frequencies(pair.width, 10000.0),
        "y": np.full((pair.batch, 1, pair.hq, pair.d), np.nan, np.float32),
    }
    for name in ("k", "v"):
        found[name] = chance.standard_normal(pair.cache, np.float32)
        found[name][:, pos:] = np.nan
    if pair.mask:
        seen = chance.random((1, pair.cmax)) < 0.6
        seen[:, 0] = True
        bias = chance.standard_normal(seen.shape, np.float32)
        hidden = np.where(seen, bias, np.float32(-np.inf))
        found["mask"] = hidden if pair.mask == "additive" else seen.astype(np.uint32)
    return found


def scratch(planner: Planner, pos: int) -> dict[str, Any]:
    """Return the planner's temporaries full of NaN, the rotated q among them."""
    shapes = {name: planner.value(name).shape for name in (*planner.scratches, "q")}
    at = {"S": 1, "pos": pos}
    sizes = {name: evaluate(product(shape), at) for name, shape in shapes.items()}
    return {name: np.full(size, np.nan, np.float32) for name, size in sizes.items()}


def require_right(pair: Pair, pos: int, given: Mapping[str, Any], y: Any) -> None:
    """Assert that y is what float64 says."""
    p = pair
    heads = given["qkv"].astype(np.float64).reshape(p.batch, 1, -1, p.d)
    q, k = (
        oracles.rope(x, given["inv_freq"], pos, interleaved=p.interleaved, scale=p.magnitude)
        for x in (heads[:, :, : p.hq], heads[:, :, p.hq : p.hq + p.hkv])
    )
    new = {"k": k, "v": heads[:, :, p.hq + p.hkv :]}
    full = {
        name: oracles.update_cache(x, given[name].astype(float), pos) for name, x in new.items()
    }
    rules: dict[str, Any] = dict(p.rules)
    want = oracles.sdpa(q, full["k"], full["v"], pos, mask=given.get("mask"), **rules)
    require(y, want, SDPA_F32, f"{p.name} at {pos}")
