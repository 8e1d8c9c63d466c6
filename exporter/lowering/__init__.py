"""How each torch operator is written in the operators of the registry: one rule an operator, one
file a family.

Input:  a torch node whose arguments are resolved. Output: new nodes, through a `Builder`.
Way of the data: used by `emit`.
"""

from __future__ import annotations

from torch import fx

from exporter.lowering import attention, elementwise, indexing, matrix, reduce, shape
from exporter.lowering.rules import RULES, Rule

__all__ = ["attention", "elementwise", "find_rule", "indexing", "matrix", "reduce", "shape"]


def find_rule(node: fx.Node) -> Rule | None:
    """Return the rule for what `node` calls, None if there is none."""
    target = node.target
    if "auto_functionalized" in str(target):
        target = node.args[0]  # type: ignore[assignment]
    name = str(target)
    return (
        RULES.get(name)
        or RULES.get(name.rsplit(".", 1)[0])
        or RULES.get(getattr(target, "__name__", ""))
    )
