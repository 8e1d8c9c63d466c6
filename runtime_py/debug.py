"""What a session tells while it works: lines for a person, as the option `debug` asks.

Input:  a level. 1: stages and sizes; 2: also the GPU time of every dispatch; 3: also the rendered
        WGSL; 4: also graph and plan. 5: as 1, and every intermediate is an output of the step, for
        the caller to compare with `reference` (exporter/debug.py does; it needs numpy).
Output: lines through `WRITE`, which prints unless a caller sets it.
Way of the data: `session` and `resources` tell; `rpc` sends the lines to whoever asked.

    Debug(1).tell(1, lambda: "step S=1 input_pos=5: 12.1 ms")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from runtime_py import symbols
from runtime_py.ops import registry
from runtime_py.schema import Graph, Node, Port

if TYPE_CHECKING:
    from runtime_py.plan import Plan
    from runtime_py.profile import DispatchTime

STAGES, TIMES, WGSL, PLAN, COMPARE = 1, 2, 3, 4, 5
VALUE = "value@"  # begins the name of an output that is there for the comparison only
WRITE: ContextVar[Callable[[str], object]] = ContextVar("WRITE", default=print)


@dataclasses.dataclass(frozen=True)
class Debug:
    """Tells what its level wants to hear."""

    level: int

    def wants(self, level: int) -> bool:
        """True if lines of `level` are to be told; 5 compares, and tells no more than 1 does."""
        return level <= (STAGES if self.level == COMPARE else self.level)

    def tell(self, level: int, text: Callable[[], str]) -> None:
        """Write what `text` makes if its level is wanted."""
        if self.wants(level):
            WRITE.get()(text())


def with_every_value(graph: Graph) -> Graph:
    """Return `graph` with the result of every node as an output; views, which compute nothing, are
    left out."""
    ports = tuple(Port(VALUE + name, name) for node in computing(graph) for name in node.outputs)
    return dataclasses.replace(graph, outputs=(*graph.outputs, *ports))


def computing(graph: Graph) -> Iterator[Node]:
    """Yield the nodes that compute something, in order."""
    return (node for node in graph.nodes if not registry[node.op].alias)


def load_lines(graph: Graph, report: Mapping[str, Any]) -> str:
    """Return what was loaded: counts, the adapter, memory in bytes, times in milliseconds."""
    counts = f"{len(graph.nodes)} nodes, {len(graph.constants)} constants"
    lines = [f"graph: {counts}, {len(graph.buffers)} buffers"]
    return "\n".join([*lines, *(f"{n}: {report[n]}" for n in ("adapter", "memory", "timings"))])


def graph_lines(graph: Graph) -> str:
    """Return the nodes of a graph, a line each: outputs, operator, inputs, the model's line."""
    lines = []
    for node in graph.nodes:
        made = [f"{n} {symbols.show_shape(graph.values[n].shape)}" for n in node.outputs]
        made += [f"{name} in place" for name in node.mutates]
        read = ", ".join(name or "none" for name in node.inputs)
        lines.append(f"  {', '.join(made)} = {node.op}({read}) {dict(node.attrs)}  # {node.source}")
    return "graph:\n" + "\n".join(lines)


def plan_lines(plan: Plan) -> str:
    """Return the dispatches of a plan, a line each, and the slot of every temporary."""
    lines = [
        f"  {d.node}: {d.key} grid {symbols.show_shape(d.grid)}  # {d.reason}"
        for d in plan.dispatches
    ]
    slots = [f"  {name} in slot {slot}" for name, slot in plan.places.items()]
    return "\n".join([f"plan for {spell(plan.ranges)}:", *lines, *slots])


def time_lines(times: Sequence[DispatchTime]) -> str:
    """Return the GPU time of every dispatch of a step, a line each, and their sum."""
    lines = [f"  {time.time_ms:8.3f} ms  {time.node}  {time.key}" for time in times]
    return "\n".join([*lines, f"  {sum(time.time_ms for time in times):8.3f} ms in all"])


def spell(values: Mapping[str, Any]) -> str:
    """Return symbols with their values or ranges as `S=3 input_pos=0..2047`."""
    spelled = {n: "..".join(map(str, v)) if isinstance(v, tuple) else v for n, v in values.items()}
    return " ".join(f"{name}={value}" for name, value in spelled.items()) or "no symbols"
