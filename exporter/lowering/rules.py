"""The table of lowering rules, and the decorator that fills it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Rule: TypeAlias = "Callable[..., Any]"
RULES: dict[str, Rule] = {}


def lowers(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for torch operators: `aten.add.Tensor` for one overload, `aten.add` for all of them."""

    def register(rule: Rule) -> Rule:
        for name in names:
            RULES[name] = rule
        return rule

    return register
