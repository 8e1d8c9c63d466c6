"""Constant folding: what depends on constants alone is computed by torch while exporting.

Input:  a torch node with its arguments resolved. Output: its result as a tensor, or None.
Way of the data: used by `emit`, before any lowering rule is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from exporter.lowering.builder import Ref

FOLD_LIMIT = 65536  # elements a constant may have that no stored tensor accounts for


def fold(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """Return the result of an operator over constants alone, or None if it is not one.

    Nothing is folded whose extents are symbolic, that is random, or that would store far more than
    it reads: such a tensor is made on the GPU instead.
    """
    given = list(leaves((args, kwargs)))
    if any(isinstance(leaf, Ref) for leaf in given) or not callable(node.target):
        return None
    if any(isinstance(n.meta.get("val"), torch.SymInt) for n in node.all_input_nodes):
        return None
    results = list(leaves(node.meta.get("val")))
    tensors = [r for r in results if isinstance(r, torch.Tensor)]
    if any(not isinstance(extent, int) for t in tensors for extent in t.shape):
        return None
    known = sum(leaf.numel() for leaf in given if isinstance(leaf, torch.Tensor))
    size = sum(t.numel() for t in tensors)
    if "rand" in str(node.target) or size > max(FOLD_LIMIT, 2 * known):
        return None
    with torch.no_grad():
        return node.target(*args, **kwargs)


def leaves(item: Any) -> Iterator[Any]:
    """Yield what is inside nested lists, tuples and dicts."""
    if isinstance(item, (list, tuple)):
        for part in item:
            yield from leaves(part)
    elif isinstance(item, dict):
        yield from leaves(list(item.values()))
    else:
        yield item
