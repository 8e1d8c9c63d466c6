"""The next token as part of the graph, chosen where the logits are.

Input:  a language model's graph. Output: the same graph with two more nodes and outputs, and two
buffers, which `model` fills as `sampling_words` lays them out.
Way of the data: bundle -> **next_token** -> plan; the graph is data, so a runtime may add to it.

A step computes the output that it is asked for: `next` takes two dispatches, `drawn` nine.

    graph = with_next_token(graph)           # adds sample(logits) as the outputs "next", "drawn"
"""

from __future__ import annotations

import dataclasses

from runtime_py.schema import Buffer, Graph, Node, Port, Source, Value, as_attr
from runtime_py.symbols import combine

TOKENS, LOGITS, NEXT, DRAWN = "tokens", "logits", "next", "drawn"
SETTINGS, SEEN = "sampling.settings", "sampling.seen"
SETTINGS_WORDS = 16
CHOICES = (NEXT, DRAWN)
SYMBOLS = {"S", "L", "input_pos"}


def with_next_token(graph: Graph) -> Graph:
    """Return `graph` with the token after the last row of logits as the outputs `next` (the
    greatest logit) and `drawn` (as the settings say), each i32 [1, 1].

    A graph that is no language model comes back as it is.
    """
    outputs = {port.name: port.value for port in graph.outputs}
    if LOGITS not in outputs or NEXT in outputs or TOKENS not in {p.name for p in graph.inputs}:
        return graph
    logits = graph.values[outputs[LOGITS]]
    if not set(graph.ranges) >= SYMBOLS or not isinstance(logits.shape[-1], int):
        return graph
    added = [
        Value(SETTINGS, "u32", (SETTINGS_WORDS,)),
        Value(SEEN, "u32", ((logits.shape[-1] + 31) // 32,)),
        *(Value(f"sampling.{name}", "i32", (1, 1)) for name in CHOICES),
    ]
    return dataclasses.replace(
        graph,
        values={**graph.values, **{value.name: value for value in added}},
        buffers={**graph.buffers, **{name: Buffer(name, None) for name in (SETTINGS, SEEN)}},
        nodes=(*graph.nodes, *(_node(logits.name, name) for name in CHOICES)),
        outputs=(*graph.outputs, *(Port(name, f"sampling.{name}") for name in CHOICES)),
    )


def _node(logits: str, name: str) -> Node:
    position = as_attr(combine("+", "input_pos", "S"))  # the place of the new token
    return Node(
        f"sampling.{name}",
        "sample",
        (logits, SETTINGS, SEEN),
        (f"sampling.{name}",),
        {"draws": name == DRAWN, "position": position},
        (SEEN,),
        Source("runtime_py/next_token.py", 0, "sample(logits)"),
    )
