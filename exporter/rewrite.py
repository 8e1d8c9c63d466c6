"""Editing a graph: replace nodes, drop what nobody uses. Every fusion is written with these.

Input:  an `Emitted` (graph and constants). Output: another one; nothing is changed in place.
Way of the data: inside `emit` (pruning) and `fuse`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch

from runtime_py.ops import registry
from runtime_py.schema import Constant, Graph, Node, Value

VIEWS = frozenset(name for name, row in registry.items() if row.alias) | {"view"}


@dataclass(frozen=True)
class Emitted:
    """A graph and, for every name in `graph.constants` (and every buffer's `init`), its tensor."""

    graph: Graph
    constants: dict[str, torch.Tensor]


class Editor:
    """A graph being rewritten: look-ups by producer and user, and a list of pending changes."""

    def __init__(self, emitted: Emitted) -> None:
        self.graph = emitted.graph
        self.constants: dict[str, torch.Tensor] = dict(emitted.constants)
        self.values: dict[str, Value] = dict(emitted.graph.values)
        self.nodes: list[Node] = list(emitted.graph.nodes)
        self.index()

    def index(self) -> None:
        """Recompute the look-ups after `nodes` has changed."""
        self.producer = {out: node for node in self.nodes for out in node.outputs}
        self.users: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.inputs:
                if name is not None and node not in self.users.setdefault(name, []):
                    self.users[name].append(node)
        self.exposed = {port.value for port in self.graph.outputs}
        self.position = {node.name: i for i, node in enumerate(self.nodes)}

    def only_user(self, name: str) -> Node | None:
        """Return the one node that reads `name`, None if there are more, or if it is an output of
        the graph.
        """
        users = self.users.get(name, [])
        return users[0] if len(users) == 1 and name not in self.exposed else None

    def made_by(self, name: str | None, op: str) -> Node | None:
        """Return the node that makes `name`, if it is an `op`."""
        node = self.producer.get(name) if name is not None else None
        return node if node is not None and node.op == op else None

    def replace(self, old: Iterable[Node], new: Iterable[Node], at: Node) -> None:
        """Put `new` where `at` stands and take `old` out."""
        gone = {node.name for node in old}
        result: list[Node] = []
        for node in self.nodes:
            if node.name == at.name:
                result += new
            if node.name not in gone and node.name != at.name:
                result.append(node)
        self.nodes = result
        self.index()

    def rename(self, mapping: Mapping[str, str]) -> None:
        """Make every reader of a value (and every output port) read another one instead."""
        self.nodes = [
            replace(n, inputs=tuple(mapping.get(x, x) if x is not None else None for x in n.inputs))
            for n in self.nodes
        ]
        ports = tuple(replace(p, value=mapping.get(p.value, p.value)) for p in self.graph.outputs)
        self.graph = replace(self.graph, outputs=ports)
        self.index()

    def result(self) -> Emitted:
        """Return the edited graph, pruned."""
        graph = replace(self.graph, nodes=tuple(self.nodes), values=self.values)
        return prune(Emitted(graph, self.constants))


def prune(emitted: Emitted) -> Emitted:
    """Drop nodes, values and constants that no output and no buffer depends on; mutations always
    stay.
    """
    graph = emitted.graph
    needed = {port.value for port in graph.outputs}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.mutates or needed & set(node.outputs):
            kept.append(node)
            needed |= {name for name in node.inputs if name is not None}
    kept.reverse()
    written = {name for node in kept for name in node.mutates}
    buffers = {name: b for name, b in graph.buffers.items() if name in needed | written}
    needed |= {b.init for b in buffers.values() if b.init is not None} | written
    made = {out for node in kept for out in node.outputs}
    inputs = {port.value for port in graph.inputs}
    constants = {name: t for name, t in emitted.constants.items() if name in needed}
    live = needed | made | inputs
    return Emitted(
        replace(
            graph,
            nodes=tuple(kept),
            values={name: v for name, v in graph.values.items() if name in live},
            constants={name: Constant(name, ()) for name in constants},
            buffers=buffers,
        ),
        constants,
    )
