"""What an attention mask means: causal, causal with a window, "all that is written", or something
of its own.

Input:  an editor and the name of a mask that is computed from positions alone.
Output: attributes for `sdpa_cached`, or None if attention over the cache would mean something else.
Way of the data: used by `fuse_attention`.

A mask that reads no input and no buffer is a function of the symbols alone, however its author
wrote it (arange and compare, triu, a stored triangle that is sliced). So it is not matched as text:
it is evaluated, over every value of the symbols if they are few, else at all corners and many
points in between, and compared entry by entry.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from exporter.rewrite import Editor
from exporter.symbolic import same
from runtime_py.reference import Context, run_node
from runtime_py.schema import Node
from runtime_py.symbols import Expr, combine, evaluate

EXHAUSTIVE = 300  # points up to which every one is tried
SAMPLED = 40
HIDDEN = -1e30  # an additive mask hides with -inf or a huge negative number


@dataclass(frozen=True)
class Meaning:
    """Attributes of the fused node, and whether the mask stays an operand beside them."""

    attrs: Mapping[str, Any] = field(default_factory=dict)
    keep_mask: bool = False


def understand(
    editor: Editor, mask: str | None, position: Expr, rows: Expr, extent: Expr, capacity: Expr
) -> Meaning | None:
    """Return what attention by `rows` queries from `position` on over `extent` cached keys sees, or
    None.
    """
    written = combine("+", position, rows)
    if mask is None:
        return Meaning({"causal": False, "window": 0}) if same(extent, written) else None
    if not (same(extent, written) or same(extent, capacity)):
        return None
    nodes = _closed(editor, mask)
    if nodes is None:
        return None
    found: set[Any] = set()
    for point in _points(editor):
        seen = _visible(editor, nodes, mask, point)
        start, count = evaluate(position, point), evaluate(rows, point)
        found.add(_classify(seen, start, count, evaluate(extent, point)))
        if None in found:
            return None
    return _summary(found)


def _closed(editor: Editor, name: str) -> list[Node] | None:
    """Return the nodes that compute `name`, in order; None if they read an input or a buffer of the
    graph.
    """
    inputs = {port.value for port in editor.graph.inputs} | set(editor.graph.buffers)
    needed, result = {name}, []
    for node in reversed(editor.nodes):
        if needed & set(node.outputs):
            result.append(node)
            needed |= {x for x in node.inputs if x is not None}
    return None if needed & inputs else result[::-1]


def _points(editor: Editor) -> list[dict[str, int]]:
    """Return the symbol values to try: all, or corners, small ones and a fixed random choice."""
    ranges = editor.graph.ranges
    spans = [range(low, high + 1) for low, high in ranges.values()]
    count = 1
    for span in spans:
        count *= len(span)
    if count <= EXHAUSTIVE:
        grid = list(itertools.product(*spans))
    else:
        chance = random.Random(0)
        near = [sorted({s[0], s[min(1, len(s) - 1)], s[len(s) // 3], s[-1]}) for s in spans]
        grid = list(itertools.product(*near))[:200]
        grid += [tuple(chance.choice(s) for s in spans) for _ in range(20 * SAMPLED)]
    named = (dict(zip(ranges, point, strict=True)) for point in grid)
    inside = [
        p for p in named if all(evaluate(c.expr, p) <= c.max for c in editor.graph.constraints)
    ]
    return inside if count <= EXHAUSTIVE else inside[: 2 * SAMPLED]


def _visible(editor: Editor, nodes: list[Node], mask: str, point: dict[str, int]) -> Any:
    """Return the mask at `point` as numbers to add, float32."""
    import numpy as np

    values: dict[str, Any] = {}
    for node in nodes:
        for name in node.inputs:
            if name in editor.constants:
                array = editor.constants[name].numpy()
                values[name] = (
                    array.astype("float32") if array.dtype.kind == "f" else array.astype("int64")
                )
                if editor.values[name].dtype == "u32":
                    values[name] = array.astype("uint32")
    if mask in editor.constants:
        return editor.constants[mask].float().numpy()
    graph = _with_values(editor)
    context = Context(graph, point, values, "float32")
    for node in nodes:
        run_node(context, node)
    return np.asarray(values[mask], dtype="float32")


def _with_values(editor: Editor) -> Any:
    return replace(editor.graph, values=editor.values)


def _classify(mask: Any, start: int, count: int, extent: int) -> Any:
    """Return ("causal", window or None), "written", "own", or None if it shows entries that were
    never written.
    """
    import numpy as np

    if mask.shape[-1] not in (1, extent) or mask.shape[-2] not in (1, count):
        return None
    seen = np.broadcast_to(mask > HIDDEN, (*mask.shape[:-2], count, extent)).reshape(
        -1, count, extent
    )
    if seen[:, :, start + count :].any():
        return None
    if (mask[mask > HIDDEN] != 0).any() or (seen != seen[:1]).any():
        return "own"
    key, query = np.arange(extent)[None, :], start + np.arange(count)[:, None]
    if (seen[0] == (key < start + count)).all() and count > 1:
        return "written"
    if (seen[0] == (key <= query)).all():
        return "causal", None, start + count
    window = int(seen[0, -1].sum())
    if (seen[0] == ((key <= query) & (key > query - window))).all():
        return "causal", window, start + count
    return "own"


def _summary(found: set[Any]) -> Meaning | None:
    """Return one meaning for all points; a window shows only where the context is longer."""
    if not found or None in found:
        return None
    causal = [f for f in found if isinstance(f, tuple)]
    windows = {w for _, w, _ in causal if w is not None}
    if len(causal) == len(found) and len(windows) <= 1:
        window = windows.pop() if windows else 0
        unseen = [total for _, w, total in causal if w is None]
        if window == 0 or all(total <= window for total in unseen):
            return Meaning({"causal": True, "window": window})
    single = all(f == "written" or (isinstance(f, tuple) and f[1] is None) for f in found)
    if single and "written" in found and not any(isinstance(f, tuple) for f in found):
        return Meaning({"causal": False, "window": 0})
    return Meaning({"causal": False, "window": 0}, keep_mask=True)
