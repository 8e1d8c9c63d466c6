"""Fuse: fewer, larger operators, with the same meaning.

Input:  an `Emitted` graph, one node for about every torch operator. Output: an `Emitted` graph with
what a kernel does in one go as one node: a Llama layer has 6.
Way of the data: `emit` -> fuse -> `bundle`.

Each pass is a function that finds one pattern, says it in its docstring, and returns whether it
changed anything. A value that somebody else still reads is never fused away.

    fused = fuse(emitted)
    [node.op for node in fused.graph.nodes]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from exporter.fuse_attention import use_cached_attention, write_caches_in_place
from exporter.fuse_linear import add_residual, fold_norm, gate_up
from exporter.fuse_qkv import merge_qkv
from exporter.lowering.builder import equal_shapes
from exporter.rewrite import VIEWS, Editor, Emitted
from runtime_py.schema import Node

Pass = Callable[[Editor], bool]
BROADCASTING = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "maximum",
        "minimum",
        "pow",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "where",
    ]
)


def fuse(emitted: Emitted) -> Emitted:
    """Return the graph after all passes, in the order in which they enable each other."""
    for one in PASSES:
        emitted = apply(one, emitted)
    return emitted


def apply(one: Pass, emitted: Emitted) -> Emitted:
    """Return the graph after running `one` until it finds nothing more."""
    editor = Editor(emitted)
    while one(editor):
        pass
    return editor.result()


def drop_expands(editor: Editor) -> bool:
    """op(expand(a), b) -> op(a, b), where the operator broadcasts by itself to the same shape."""
    for node in editor.nodes:
        if node.op not in BROADCASTING:
            continue
        out = editor.values[node.outputs[0]].shape
        for index, name in enumerate(node.inputs):
            made = editor.made_by(name, "expand")
            if made is None or name is None:
                continue
            inputs = (*node.inputs[:index], made.inputs[0], *node.inputs[index + 1 :])
            shapes = [editor.values[x].shape for x in inputs if x is not None]
            covered = len(shapes) > 1 and all(
                any(len(s) > d and s[-1 - d] == out[-1 - d] for s in shapes)
                for d in range(len(out))
            )
            if covered:
                editor.replace([node], [replace(node, inputs=inputs)], node)
                return True
    return False


def cancel_permutes(editor: Editor) -> bool:
    """permute(permute(x)) -> one permute, or x itself where they undo each other."""
    for node in editor.nodes:
        inner = editor.made_by(node.inputs[0], "permute") if node.op == "permute" else None
        if inner is None or inner.inputs[0] is None:
            continue
        dims = tuple(_dims(inner)[d] for d in _dims(node))
        if dims != tuple(range(len(dims))):
            merged = replace(node, inputs=inner.inputs, attrs={"dims": dims})
            editor.replace([node], [merged], node)
            return True
        if node.outputs[0] not in editor.exposed:
            editor.rename({node.outputs[0]: inner.inputs[0]})
            editor.replace([node], [], node)
            return True
    return False


def _dims(node: Node) -> tuple[int, ...]:
    dims = node.attrs["dims"]
    return tuple(int(str(d)) for d in dims) if isinstance(dims, tuple) else ()


def merge_views(editor: Editor) -> bool:
    """view(view(x)) -> view(x); a view to the shape that x has anyway -> x."""
    for node in editor.nodes:
        if node.op != "view" or node.inputs[0] is None:
            continue
        inner = editor.producer.get(node.inputs[0])
        source = inner.inputs[0] if inner is not None and inner.op in VIEWS else node.inputs[0]
        if source is None:
            continue
        out = node.outputs[0]
        same = equal_shapes(editor.values[source].shape, editor.values[out].shape)
        if same and out not in editor.exposed:
            editor.rename({out: source})
            editor.replace([node], [], node)
            return True
        if source != node.inputs[0]:
            editor.replace([node], [replace(node, inputs=(source,))], node)
            return True
    return False


PASSES: tuple[Pass, ...] = (
    drop_expands,
    merge_views,
    cancel_permutes,
    write_caches_in_place,
    use_cached_attention,
    cancel_permutes,
    merge_views,
    merge_qkv,
    gate_up,
    add_residual,
    fold_norm,
)
