"""From a graph to a flat list of dispatches for one range of symbols, and a place in memory for
every tensor.

Input:  a checked graph, the device's caps, the session's options, sub-ranges of the symbols, the
session's slots.
Output: a `Plan`: pure data, the same in CPython and in Pyodide.
Way of the data: `graph` -> plan -> `kernels`, `program`.

A plan for S = 1 and one for S in 2..512 differ in the routes that `lower` picked, not in the graph.

    plan = make_plan(graph, caps, options, {"S": (1, 1), "input_pos": (0, 2047)}, SlotPool())
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from runtime_py import symbols
from runtime_py.errors import InternalError, OutOfMemoryError
from runtime_py.graph import constrained_bounds, value_bytes
from runtime_py.memory import Lifetime, SlotPool
from runtime_py.ops import registry
from runtime_py.ops.base import Caps, Dispatch
from runtime_py.reach import reach
from runtime_py.schema import Graph, Node, Value
from runtime_py.symbols import Expr, Interval, Shape

CACHE_OPS = ("update_cache", "rope_qkv_update", "sdpa_with_kv_cache")


@dataclass(frozen=True)
class Plan:
    """Everything a program needs. `places` maps a temporary's name to its slot; `roots` resolves
    views; `serves` says which outputs each dispatch feeds (see `reach`)."""

    ranges: Mapping[str, Interval]
    dispatches: tuple[Dispatch, ...]
    values: Mapping[str, Value]
    roots: Mapping[str, str]
    places: Mapping[str, int]
    serves: tuple[int, ...] = ()

    def root(self, name: str) -> str:
        """Return the value whose bytes `name` is a view of (itself, if it is no view)."""
        return self.roots.get(name, name)


class Planner:
    """The `Lowering` that ops see, bound to one graph, device and set of ranges."""

    def __init__(
        self,
        graph: Graph,
        caps: Caps,
        options: Mapping[str, object],
        ranges: Mapping[str, Interval],
    ) -> None:
        self.graph, self.caps, self.options = graph, caps, options
        self.ranges: Mapping[str, Interval] = {**graph.ranges, **ranges}
        self.values: dict[str, Value] = dict(stored_values(graph, options))
        self.roots: dict[str, str] = {}
        self.scratches: list[str] = []
        self._reads = Counter(name for node in graph.nodes for name in node.inputs)
        self._reads.update(port.value for port in graph.outputs)

    def value(self, name: str) -> Value:
        """Return a value's dtype and shape as stored in this session."""
        return self.values[name]

    def scratch(self, node: Node, label: str, dtype: str, shape: Shape) -> str:
        """Declare a temporary tensor that lives only during `node` and return its name."""
        name = f"{node.name}/{label}"
        self.values[name] = Value(name, dtype, shape)
        self.scratches.append(name)
        return name

    def upper(self, expr: Expr) -> int:
        """Return the greatest value of `expr` in this program's ranges."""
        return constrained_bounds(self.graph, expr, self.ranges)[1]

    def lower(self, expr: Expr) -> int:
        """Return the least value of `expr` in this program's ranges."""
        return constrained_bounds(self.graph, expr, self.ranges)[0]

    def fixed(self, expr: Expr) -> int | None:
        """Return the value of `expr` if it is the same on every step of this program."""
        low, high = constrained_bounds(self.graph, expr, self.ranges)
        return low if low == high else None

    def dispatches(self) -> list[Dispatch]:
        """Lower every node in order; views only record whose bytes they are, and a node may be
        taken over by the next."""
        result: list[Dispatch] = []
        following = zip_longest(self.graph.nodes, self.graph.nodes[1:])
        for node, after in following:
            row = registry[node.op]
            if row.alias:
                source = node.inputs[0]
                if source is None:
                    raise InternalError(f"view {node.name} has no input")
                self.roots[node.outputs[0]] = self.roots.get(source, source)
                continue
            both = self._taken_over(node, after)
            if both is not None:
                node, _ = next(following)
            found = row.lower(self, node) if both is None else both
            result += [dataclasses.replace(d, node=node.name) for d in found]
        return result

    def _taken_over(self, node: Node, after: Node | None) -> list[Dispatch] | None:
        """Return dispatches of `after` that do the work of `node` too, if there are such."""
        take_over = None if after is None else registry[after.op].take_over
        if after is None or take_over is None:
            return None
        if any(self._reads[name] > 1 for name in node.outputs):
            return None
        return take_over(self, node, after)


def stored_values(graph: Graph, options: Mapping[str, object]) -> dict[str, Value]:
    """Return the graph's values with the dtype that this session stores: KV caches may be f16."""
    values = dict(graph.values)
    if options.get("kv_dtype") in ("f32", "f16"):
        for node in graph.nodes:
            if node.op in CACHE_OPS:
                for name in node.mutates:
                    values[name] = dataclasses.replace(values[name], dtype=str(options["kv_dtype"]))
    return values


def make_plan(
    graph: Graph,
    caps: Caps,
    options: Mapping[str, object],
    ranges: Mapping[str, Interval],
    pool: SlotPool,
) -> Plan:
    """Return the plan of `graph` for `ranges`; raises `OutOfMemoryError` if a tensor passes a
    device limit."""
    planner = Planner(graph, caps, options, ranges)
    dispatches = planner.dispatches()
    lifetimes = _lifetimes(planner, dispatches)
    places = pool.place(lifetimes)
    plan = Plan(
        planner.ranges,
        tuple(dispatches),
        planner.values,
        planner.roots,
        places,
        _serves(graph, planner, dispatches),
    )
    _check_hazards(plan)
    return plan


def _serves(graph: Graph, planner: Planner, dispatches: list[Dispatch]) -> tuple[int, ...]:
    """Return which outputs each dispatch feeds, for steps that want only some."""
    private = {node.name for node in graph.nodes if registry[node.op].private}
    outputs = [port.value for port in graph.outputs]
    return reach(dispatches, planner.roots, outputs, set(graph.buffers), private)


def size_bytes(planner: Planner, name: str) -> int:
    """Return the greatest byte size that value `name` takes in the planner's ranges (at least
    4)."""
    value = planner.value(name)
    elems = 1
    for dim in value.shape:
        elems *= max(0, planner.upper(dim))
    return max(4, value_bytes(value, elems))


def _lifetimes(planner: Planner, dispatches: list[Dispatch]) -> list[Lifetime]:
    persistent = set(planner.graph.constants) | set(planner.graph.buffers)
    spans: dict[str, list[int]] = {}
    for index, dispatch in enumerate(dispatches):
        for binding in dispatch.bindings:
            name = planner.roots.get(binding.value, binding.value)
            if name not in persistent:
                spans.setdefault(name, [index, index])[1] = index
    for port in planner.graph.inputs:  # written before the first dispatch
        spans.setdefault(port.value, [0, 0])[0] = 0
    for port in planner.graph.outputs:  # read after the last one
        name = planner.roots.get(port.value, port.value)
        if name not in persistent:
            spans.setdefault(name, [0, 0])[1] = len(dispatches)
    limit = min(
        planner.caps.limit("maxStorageBufferBindingSize"), planner.caps.limit("maxBufferSize")
    )
    result = []
    for name, (first, last) in spans.items():
        size = size_bytes(planner, name)
        if size > limit:
            raise OutOfMemoryError(
                f"tensor {name!r} {symbols.show_shape(planner.value(name).shape)} "
                f"needs {size} bytes, "
                f"this device binds at most {limit}",
                hint="run fewer tokens at once, or export with a smaller --max-prefill",
            )
        result.append(Lifetime(name, size, first, last))
    return result


def _check_hazards(plan: Plan) -> None:
    """A buffer bound both read and read_write in one dispatch is an error in WebGPU, whatever the
    ranges."""
    for dispatch in plan.dispatches:
        use: dict[Any, str] = {}
        for binding in dispatch.bindings:
            name = plan.root(binding.value)
            place = plan.places.get(name, name)
            if use.setdefault(place, binding.access) != binding.access:
                raise InternalError(
                    f"{dispatch.node}: {name} is bound read and read_write in {dispatch.key}"
                )
