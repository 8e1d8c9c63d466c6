"""A graph of one node, and what any dispatch must satisfy: for the tests of lowering.

Input:  an op, its tensors' shapes, attributes. Output: the planner, its dispatches; assertions.
Way of the data: read by test_attention_lowering and test_ops_lowering. No browser, no weights.

    one = single("add", {"a": (3, 4), "b": (4,)}, (3, 4))
    one.check()                    # None, or why the node is refused
    one.dispatches(S=(1, 8))       # lowered for these ranges
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime_py.kernels import KernelLibrary
from runtime_py.ops import registry
from runtime_py.ops.base import Caps, Dispatch
from runtime_py.plan import Planner
from runtime_py.schema import Attr, Constraint, Graph, Node, Symbol, Value
from runtime_py.symbols import Interval, Shape, bounds

LIBRARY = KernelLibrary()
SOFTWARE = Caps(frozenset({"subgroups"}), subgroup_min=4, subgroup_max=4, description="SwiftShader")
GPU = Caps(description="a GPU without features")
DEVICES = {"software": SOFTWARE, "gpu": GPU}
BYTES = {"f32": 4, "u32": 4, "i32": 4, "vec2<f32>": 8, "vec4f": 16, "vec4<f32>": 16}


@dataclass(frozen=True)
class Single:
    """A graph of one node. `planner` is the one of the latest `dispatches`."""

    graph: Graph
    caps: Caps = GPU
    options: Mapping[str, object] = field(default_factory=dict)
    planners: list[Planner] = field(default_factory=list)

    @property
    def node(self) -> Node:
        return self.graph.nodes[0]

    @property
    def planner(self) -> Planner:
        return self.planners[-1]

    def check(self) -> str | None:
        """Return why the node is refused, or None."""
        return registry[self.node.op].check(self.graph, self.node)

    def shapes(self) -> tuple[Shape, ...]:
        """Return the shapes that the outputs must have."""
        return registry[self.node.op].shape(self.graph, self.node)

    def dispatches(self, **ranges: Interval) -> list[Dispatch]:
        """Return the dispatches for `ranges`, each held against WebGPU's rules and its template."""
        assert self.check() is None
        self.planners.append(Planner(self.graph, self.caps, self.options, ranges))
        result = self.planner.dispatches()
        for dispatch in result:
            require_legal(self.planner, dispatch)
        return result


def single(
    op: str,
    inputs: Mapping[str, Shape | tuple[str, Shape]],
    output: Shape | tuple[str, Shape] | None = None,
    attrs: Mapping[str, Attr] | None = None,
    symbols: Mapping[str, Interval] | None = None,
    *,
    mutates: tuple[str, ...] = (),
    constraints: tuple[Constraint, ...] = (),
    caps: Caps = GPU,
    options: Mapping[str, object] | None = None,
) -> Single:
    """Return a graph of one `op`; a tensor is a shape (f32) or (dtype, shape)."""
    values = {name: _value(name, spec) for name, spec in inputs.items()}
    outputs: tuple[str, ...] = ()
    if output is not None:
        values["y"], outputs = _value("y", output), ("y",)
    node = Node("n", op, tuple(inputs), outputs, attrs or {}, mutates)
    declared = tuple(Symbol(name, *span) for name, span in (symbols or {}).items())
    graph = Graph(declared, constraints, values, {}, {}, (node,), (), ())
    return Single(graph, caps, options or {})


def _value(name: str, spec: Shape | tuple[str, Shape]) -> Value:
    if len(spec) == 2 and isinstance(spec[0], str) and isinstance(spec[1], tuple):
        return Value(name, spec[0], spec[1])
    return Value(name, "f32", spec)


def require_legal(planner: Planner, dispatch: Dispatch) -> None:
    """Assert that a dispatch fits its template and the WebGPU default limits."""
    text = LIBRARY.render(dispatch.key)
    declared = re.findall(r"@binding\((\d+)\) var<storage, (\w+)>", text)
    assert [access for _, access in declared] == [b.access for b in dispatch.bindings]
    assert len(declared) <= 8
    struct = re.search(r"struct Params \{(.*?)\}", text, re.DOTALL)
    fields = re.findall(r"(\w+): (\w+),", struct.group(1)) if struct else []
    assert fields == [(p.name, p.kind) for p in dispatch.params], dispatch.key
    written = {b.value for b in dispatch.bindings if b.access == "read_write"}
    assert not written & {b.value for b in dispatch.bindings if b.access == "read"}
    limits = (65535, 65535, 65535)
    for side, limit in zip(dispatch.grid, limits, strict=True):
        assert bounds(side, planner.ranges)[0] >= 0
        assert planner.upper(side) <= limit
    limit = planner.caps.limit("maxComputeWorkgroupStorageSize")
    assert workgroup_bytes(text) <= limit
    threads = re.search(r"@workgroup_size\((\d+)\)", text)
    assert threads is not None
    assert int(threads.group(1)) <= 256


def workgroup_bytes(text: str) -> int:
    """Return the workgroup memory that WGSL `text` declares."""
    arrays = re.findall(r"var<workgroup> \w+: array<(.+), (\d+)>;", text)
    return sum(BYTES[kind] * int(count) for kind, count in arrays)
