"""Fusions around attention: cache writes in place, attention over a cache.

Input:  an `Editor`. Output: True if it changed something.
Way of the data: passes of `fuse`. `masks` decides what a mask made of positions means.
"""

from __future__ import annotations

from dataclasses import dataclass

from exporter.fuse_linear import (
    padded,
    unique,
)
from exporter.masks import understand
from exporter.rewrite import VIEWS, Editor
from exporter.symbolic import same
from runtime_py.schema import Node, Value, as_attr, expr_attr
from runtime_py.symbols import Expr, combine

SWAP = (0, 2, 1, 3)


def write_caches_in_place(editor: Editor) -> bool:
    """slice_scatter(buffer, rows, dim 1) then copy(.., buffer) -> update_cache(rows, buffer),
    without the two copies.

    The buffer is [1, C, H, D]. Whoever reads its old content must do so before; readers of the new
    one read it.
    """
    for copy in editor.nodes:
        if copy.op != "copy":
            continue
        buffer = copy.mutates[0]
        scatter = editor.made_by(copy.inputs[0], "slice_scatter")
        if scatter is None or not _is_cache_write(editor, scatter, buffer):
            continue
        out = scatter.outputs[0]
        at = editor.position[scatter.name]
        late = [
            n
            for n in editor.users.get(buffer, [])
            if editor.position[n.name] > at and n.name != copy.name
        ]
        writers = [n for n in editor.nodes if buffer in n.mutates]
        if (
            late
            or len(writers) > 1
            or out in editor.exposed
            or _old_views_read_late(editor, buffer, at)
        ):
            continue
        attrs = {"input_pos": scatter.attrs["start"]}
        name = f"{scatter.name}.update_cache"
        write = Node(
            name, "update_cache", (scatter.inputs[1], buffer), (), attrs, (buffer,), scatter.source
        )
        editor.rename({out: buffer})
        editor.replace([scatter, copy], [write], editor.nodes[at])
        return True
    return False


def _is_cache_write(editor: Editor, scatter: Node, buffer: str) -> bool:
    shape = editor.values[buffer].shape
    return (
        scatter.inputs[0] == buffer
        and len(shape) == 4
        and shape[0] == 1
        and scatter.attrs["dim"] == 1
        and scatter.attrs["step"] == 1
        and editor.values[buffer].dtype in ("f32", "f16")
    )


def _old_views_read_late(editor: Editor, buffer: str, at: int) -> bool:
    """True if a view of the buffer, taken before node `at`, is read (or shown) after it."""
    shown = {buffer}
    for node in editor.nodes[:at]:
        if node.op in VIEWS and node.inputs[0] in shown:
            shown.add(node.outputs[0])
    shown.discard(buffer)
    late = any(x in shown for node in editor.nodes[at + 1 :] for x in node.inputs)
    return late or bool(shown & editor.exposed)


@dataclass(frozen=True)
class Keys:
    """What attention's k (or v) turned out to be: a cache, its write, the entries read, heads
    repeated, and the nodes in between.
    """

    cache: str
    write: Node
    extent: Expr
    repeats: int
    chain: tuple[str, ...]


def use_cached_attention(editor: Editor) -> bool:
    """sdpa(q^T, cache_k^T, cache_v^T) after update_cache of both -> sdpa_with_kv_cache(q, k, v,
    caches).

    ^T swaps dims 1 and 2. Keys may be cut to input_pos + S and heads repeated by expand
    (`repeat_kv`). A mask that is causal (with or without a window) becomes an attribute, as proved
    by `masks`; another one that hides every entry not yet written stays an operand; otherwise
    nothing is fused.
    """
    for node in editor.nodes:
        if node.op != "sdpa" or node.attrs.get("causal"):
            continue
        keys, values = (_trace_cache(editor, node.inputs[i]) for i in (1, 2))
        if keys is None or values is None or not _agree(editor, node, keys, values):
            continue
        position = expr_attr(keys.write, "input_pos")
        rows = editor.values[str(node.inputs[0])].shape[2]
        mask = padded(node, 4)[3]
        meaning = understand(
            editor, mask, position, rows, keys.extent, editor.values[keys.cache].shape[1]
        )
        if meaning is None:
            continue
        _fuse_cached(
            editor, node, keys, values, dict(meaning.attrs), mask if meaning.keep_mask else None
        )
        return True
    return False


def _trace_cache(editor: Editor, name: str | None) -> Keys | None:
    """Follow attention's k or v back to a cache, through repeated heads, the swap of dims and a
    cut.
    """
    repeats, extent, swapped = 1, None, False
    chain: list[str] = []
    while name is not None and name not in editor.graph.buffers:
        node = editor.producer.get(name)
        if node is None:
            return None
        head_dim = 2 if swapped else 1
        if node.op == "permute" and node.attrs["dims"] == SWAP and not swapped:
            swapped = True
        elif node.op == "slice" and node.attrs["dim"] == 3 - head_dim and extent is None:
            if node.attrs["start"] != 0 or node.attrs["step"] != 1:
                return None
            extent = editor.values[name].shape[3 - head_dim]
        elif node.op == "view" and repeats == 1:
            times = _repeated_heads(editor, node, head_dim)
            if times is None:
                return None
            repeats, name, passed = times
            chain += passed
            continue
        else:
            return None
        chain.append(node.name)
        name = node.inputs[0]
    writes = [n for n in editor.users.get(str(name), []) if name in n.mutates]
    if name is None or not swapped or len(writes) != 1 or writes[0].op != "update_cache":
        return None
    capacity = editor.values[name].shape[1]
    return Keys(name, writes[0], capacity if extent is None else extent, repeats, tuple(chain))


def _repeated_heads(editor: Editor, node: Node, dim: int) -> tuple[int, str, list[str]] | None:
    """view(expand(view(x))) that repeats each head of `dim` n times -> (n, x, the three nodes)."""
    expand = editor.made_by(node.inputs[0], "expand")
    inner = editor.made_by(expand.inputs[0], "view") if expand is not None else None
    if expand is None or inner is None or inner.inputs[0] is None:
        return None
    before, wide = editor.values[inner.inputs[0]].shape, editor.values[expand.outputs[0]].shape
    narrow = editor.values[inner.outputs[0]].shape
    if len(before) != 4 or narrow != (*before[: dim + 1], 1, *before[dim + 1 :]):
        return None
    times = wide[dim + 1]
    after = (*before[:dim], combine("*", before[dim], times), *before[dim + 1 :])
    if not isinstance(times, int) or editor.values[node.outputs[0]].shape != after:
        return None
    return times, inner.inputs[0], [node.name, expand.name, inner.name]


def _agree(editor: Editor, node: Node, keys: Keys, values: Keys) -> bool:
    q = editor.values[str(node.inputs[0])].shape
    cache = editor.values[keys.cache].shape
    at = editor.position[node.name]
    return (
        keys.cache != values.cache
        and q[0] == 1
        and keys.repeats == values.repeats
        and cache == editor.values[values.cache].shape
        and same(keys.extent, values.extent)
        and same(expr_attr(keys.write, "input_pos"), expr_attr(values.write, "input_pos"))
        and all(same(editor.values[str(w.write.inputs[0])].shape[1], q[2]) for w in (keys, values))
        and all(editor.position[w.write.name] < at for w in (keys, values))
        and isinstance(q[1], int)
        and isinstance(cache[2], int)
        and q[1] % cache[2] == 0
        and keys.repeats in (1, q[1] // cache[2])
    )


def _fuse_cached(
    editor: Editor, node: Node, keys: Keys, values: Keys, attrs: dict[str, object], mask: str | None
) -> None:
    """Swap q in, attention, swap out; the writes go inside if nobody reads the caches between them
    and here.
    """
    q, out = str(node.inputs[0]), node.outputs[0]
    shape, dtype = editor.values[q].shape, editor.values[q].dtype
    turned = (shape[0], shape[2], shape[1], shape[3])
    before, after = unique(editor, f"{out}.q"), unique(editor, f"{out}.rows")
    editor.values[before] = Value(before, dtype, turned)
    editor.values[after] = Value(after, dtype, turned)
    stored = {
        "input_pos": as_attr(expr_attr(keys.write, "input_pos")),
        "scale": node.attrs["scale"],
        "softcap": node.attrs.get("softcap", 0.0),
        **attrs,
    }
    writes = [keys.write, values.write]
    merged = not _read_between(editor, node, keys, values)
    inputs = (before, *(w.inputs[0] for w in writes if merged), keys.cache, values.cache, mask)
    op = "sdpa_with_kv_cache" if merged else "sdpa_cached"
    mutates = (keys.cache, values.cache) if merged else ()
    new = [
        Node(before, "permute", (q,), (before,), {"dims": SWAP}, (), node.source),
        Node(after, op, inputs, (after,), stored, mutates, node.source),  # type: ignore[arg-type]
        Node(out, "permute", (after,), (out,), {"dims": SWAP}, (), node.source),
    ]
    editor.replace([node, *(writes if merged else [])], new, node)


def _read_between(editor: Editor, node: Node, keys: Keys, values: Keys) -> bool:
    """True if anything that survives the fusion reads a cache's new content before `node`."""
    inside = {node.name, *keys.chain, *values.chain}
    at = editor.position[node.name]
    for part in (keys, values):
        written = editor.position[part.write.name]
        early = [u for u in editor.users[part.cache] if written < editor.position[u.name] < at]
        if any(user.name not in inside for user in early):
            return True
    for name in inside - {node.name}:
        for out in editor.nodes[editor.position[name]].outputs:
            users = {user.name for user in editor.users.get(out, [])}
            if out in editor.exposed or users - inside:
                return True
    return False
