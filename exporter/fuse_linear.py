"""Fusions around matrix products: gated MLP, residual sums, norms in front.

Input:  an `Editor`. Output: True if it changed something.
Way of the data: passes of `fuse`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from exporter.lowering.builder import equal_shapes
from exporter.rewrite import Editor
from runtime_py.schema import Node, Value

PRODUCTS = ("linear_q", "linear")
ACTIVATIONS = {"silu": "silu", "gelu_tanh": "gelu_tanh"}
X, CODES, SCALES, BIAS, RESIDUAL, NORM = range(
    6
)  # inputs of linear_q; linear has x, weight, bias, residual


def padded(node: Node, count: int) -> tuple[str | None, ...]:
    """Return a node's inputs with the absent trailing ones as None."""
    return (*node.inputs, *(None,) * (count - len(node.inputs)))


def same_weights_form(nodes: Sequence[Node]) -> bool:
    """True if the products read one x through weights of one scheme, so that their rows can stand
    in one matrix.
    """
    first = nodes[0]
    keys = ("scheme", "group", "in_features")
    return all(
        n.op == first.op
        and n.inputs[X] == first.inputs[X]
        and [n.attrs.get(k) for k in keys] == [first.attrs.get(k) for k in keys]
        for n in nodes
    )


def concatenate(editor: Editor, names: Sequence[str], label: str) -> str | None:
    """Return a new constant, the rows of constants `names` one after another; None if they do not
    fit together.
    """
    if not all(name in editor.constants for name in names):
        return None
    tensors = [editor.constants[name] for name in names]
    if (
        len({t.dtype for t in tensors}) > 1
    ):  # scales kept as f16 beside f32 ones: f16 -> f32 is exact
        tensors = [t.float() for t in tensors]
    if len({tuple(t.shape[1:]) for t in tensors}) > 1:
        return None
    merged = torch.cat(tensors)
    name = unique(editor, f"{names[0]}.{label}")
    dtype = "f32" if merged.dtype == torch.float32 else editor.values[names[0]].dtype
    editor.values[name] = Value(name, dtype, tuple(merged.shape))
    editor.constants[name] = merged
    return name


def unique(editor: Editor, name: str) -> str:
    """Return `name`, or the first numbered form of it that is free."""
    found, count = name, 1
    while found in editor.values:
        found, count = f"{name}.{count}", count + 1
    return found


def merged_product(
    editor: Editor, parts: Sequence[Node], label: str
) -> tuple[str | None, ...] | None:
    """Return the inputs of one product with the rows of `parts`; None if their constants do not fit
    together.
    """
    first = parts[0]
    weights = range(1, 3) if first.op == "linear_q" else range(1, 2)
    inputs: list[str | None] = [first.inputs[X]]
    for index in weights:
        names = [str(p.inputs[index]) for p in parts]
        merged = concatenate(editor, names, label)
        if merged is None:
            return None
        inputs.append(merged)
    bias_at = len(inputs)
    biases = [padded(p, 6)[bias_at] for p in parts]
    bias: str | None = None
    if any(biases):
        bias = concatenate(
            editor, [_bias(editor, p, b) for p, b in zip(parts, biases, strict=True)], label
        )
        if bias is None:
            return None
    rest = (None, None) if first.op == "linear_q" else (None,)
    return (*inputs, bias, *rest)


def _bias(editor: Editor, part: Node, bias: str | None) -> str:
    """Return the bias of a product; a zero one where it has none and a neighbour has."""
    if bias is not None:
        return bias
    rows = int(str(editor.values[part.outputs[0]].shape[-1]))
    name = unique(editor, f"{part.outputs[0]}.zero_bias")
    editor.values[name] = Value(name, "f32", (rows,))
    editor.constants[name] = torch.zeros(rows)
    return name


def is_bare(node: Node, *, allow_bias: bool = False) -> bool:
    """True for a product without residual and norm (and bias, unless allowed)."""
    inputs = padded(node, 6)
    if node.op == "linear":
        return inputs[3] is None and (allow_bias or inputs[2] is None)
    return (
        inputs[RESIDUAL] is None and inputs[NORM] is None and (allow_bias or inputs[BIAS] is None)
    )


def gate_up(editor: Editor) -> bool:
    """mul(silu(linear_q(x, gate)), linear_q(x, up)) -> gate_up_q(x, gate rows then up rows);
    gelu_tanh likewise.
    """
    for node in editor.nodes:
        if node.op != "mul" or len(node.inputs) != 2 or None in node.inputs:
            continue
        for gated, plain in (node.inputs, node.inputs[::-1]):
            act = editor.producer.get(str(gated))
            up = editor.made_by(plain, "linear_q")
            gate = (
                editor.made_by(act.inputs[0], "linear_q") if act and act.op in ACTIVATIONS else None
            )
            if act is None or up is None or gate is None or gate is up:
                continue
            if _fuse_gate_up(editor, node, act, gate, up):
                return True
    return False


def _fuse_gate_up(editor: Editor, node: Node, act: Node, gate: Node, up: Node) -> bool:
    private = all(editor.only_user(n.outputs[0]) is not None for n in (act, gate, up))
    same_rows = editor.values[gate.outputs[0]].shape == editor.values[up.outputs[0]].shape
    if not (
        private and same_rows and same_weights_form([gate, up]) and is_bare(gate) and is_bare(up)
    ):
        return False
    inputs = merged_product(editor, [gate, up], "gate_up")
    if inputs is None:
        return False
    keys = ("scheme", "group", "in_features")
    attrs = {k: gate.attrs[k] for k in keys} | {"act": ACTIVATIONS[act.op]}
    fused = Node(
        node.outputs[0], "gate_up_q", (*inputs[:3], None), node.outputs, attrs, (), gate.source
    )
    editor.replace([act, gate, up, node], [fused], node)
    return True


def add_residual(editor: Editor) -> bool:
    """add(r, linear_q(x)) -> linear_q(x, residual=r), and the same for linear; r of the product's
    own shape.
    """
    for node in editor.nodes:
        if node.op != "add" or len(node.inputs) != 2 or None in node.inputs:
            continue
        for mine, other in (node.inputs[::-1], node.inputs):
            product = editor.producer.get(str(mine))
            if product is None or product.op not in PRODUCTS or other is None or mine == other:
                continue
            at = RESIDUAL if product.op == "linear_q" else 3
            inputs = padded(product, 6 if product.op == "linear_q" else 4)
            fits = equal_shapes(editor.values[other].shape, editor.values[str(mine)].shape)
            if inputs[at] is None and fits and editor.only_user(str(mine)) is not None:
                inputs = (*inputs[:at], other, *inputs[at + 1 :])
                fused = replace(product, name=node.name, inputs=inputs, outputs=node.outputs)
                editor.replace([product, node], [fused], node)
                return True
    return False


def fold_norm(editor: Editor) -> bool:
    """linear_q(rms_norm(x, w)) -> linear_q(x, norm_weight=w), and gate_up_q; only if nobody else
    reads the norm.
    """
    for norm in editor.nodes:
        if norm.op != "rms_norm" or padded(norm, 2)[1] is None:
            continue
        user = editor.only_user(norm.outputs[0])
        if user is None or user.op not in ("linear_q", "gate_up_q"):
            continue
        last = NORM if user.op == "linear_q" else 3
        inputs = padded(user, last + 1)
        if (
            inputs[X] != norm.outputs[0]
            or norm.outputs[0] in inputs[1:]
            or inputs[last] is not None
        ):
            continue
        inputs = (norm.inputs[0], *inputs[1:last], norm.inputs[1])
        fused = replace(user, inputs=inputs, attrs={**user.attrs, "eps": norm.attrs["eps"]})
        editor.replace([norm, user], [fused], user)
        return True
    return False
