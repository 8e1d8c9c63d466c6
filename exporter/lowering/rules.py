"""The table of lowering rules, and the decorator that fills it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

Rule: TypeAlias = "Callable[..., Any]"
RULES: dict[str, Rule] = {}
Function = TypeVar("Function", bound=Callable[..., Any])


def lowers(*names: str) -> Callable[[Function], Function]:
    """Register a rule for torch operators: `aten.add.Tensor` for one overload, `aten.add` for all
    of them.
    """

    def register(rule: Function) -> Function:
        for name in names:
            RULES[name] = rule
        return rule

    return register
