"""The greedy token as part of the graph: argmax over the logits, chosen where the logits are.

Input:  a language model's graph. Output: the same graph with one more node and output.
Way of the data: bundle -> **next_token** -> plan; the graph is data, so a runtime may add to it.

    graph = with_next_token(graph)                    # adds argmax(logits) as the output "next"
"""

from __future__ import annotations

import dataclasses

from runtime_py.schema import Graph, Node, Port, Source, Value

TOKENS, LOGITS, NEXT = "tokens", "logits", "next"


def with_next_token(graph: Graph) -> Graph:
    """Return `graph` with the greedy token of each row of logits as the output `next`, i32 [1, L].

    A graph that is no language model comes back as it is.
    """
    outputs = {port.name: port.value for port in graph.outputs}
    if LOGITS not in outputs or NEXT in outputs or TOKENS not in {p.name for p in graph.inputs}:
        return graph
    logits = graph.values[outputs[LOGITS]]
    value = Value("sampled", "i32", logits.shape[:-1])
    source = Source("runtime_py/next_token.py", 0, "argmax(logits)")
    node = Node("sample", "argmax", (logits.name,), (value.name,), source=source)
    return dataclasses.replace(
        graph,
        values={**graph.values, value.name: value},
        nodes=(*graph.nodes, node),
        outputs=(*graph.outputs, Port(NEXT, value.name)),
    )
