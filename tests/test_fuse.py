"""Fusions: each pattern fuses, its near misses do not, and the meaning stays the same to the last
bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter import ops
from exporter.capture import capture
from exporter.emit import emit
from exporter.fuse import apply, fuse
from exporter.fuse_attention import write_caches_in_place
from exporter.fuse_linear import add_residual, fold_norm, gate_up
from exporter.models.llama import Llama, LlamaConfig
from exporter.models.weights import RandomWeights
from exporter.pipeline import check
from exporter.quantize import QuantEmbedding, QuantLinear
from exporter.rewrite import Emitted
from exporter.symbolic import Sym
from tests import modules, tolerances
from tests.graph_oracle import Interpreter, Step, agree, op_names, step_arguments, tensors_only

ATTENTION = {"S": Sym(1, 16, at=[("q", 1), ("k", 1), ("v", 1)]), "pos": Sym(0, 15, at="pos")}
REPLAY = [{"S": s, "pos": p} for s, p in ((5, 0), (1, 5), (1, 6), (9, 7))]
ROWS = {"S": Sym(1, 9, at=("x", 1))}


def compare(before: Emitted, after: Emitted, captured: Any, steps: Sequence[Step]) -> None:
    """Assert that two graphs of one capture answer alike, and leave the same buffers."""
    one, two = Interpreter(before), Interpreter(after)
    for index, step in enumerate(steps):
        inputs = tensors_only(captured, step_arguments(captured, step, seed=index))
        want, got = one.run(inputs, step), two.run(inputs, step)
        for name in want:
            tolerances.require(got[name], want[name], tolerances.FUSED_F64, name)
        for name in one.buffers:
            tolerances.require(two.buffers[name], one.buffers[name], tolerances.FUSED_F64)


def fused_ops(
    module: nn.Module, inputs: Any, symbols: Any, steps: Sequence[Step], passes: Any = None
) -> list[str]:
    """Return the operators after fusing, having compared the graph before and after."""
    captured = capture(module, inputs, symbols)
    before = emit(captured)
    after = fuse(before)
    if passes is not None:
        after = before
        for one in passes:
            after = apply(one, after)
    compare(before, after, captured, steps)
    check(after)
    return op_names(after.graph)


def attention_inputs() -> tuple[Any, ...]:
    kv = torch.zeros(1, 1, 2, 4)
    return torch.zeros(1, 1, 6, 4), kv, kv, 0


# ---- attention over a cache


@pytest.mark.parametrize(
    ("write", "heads", "mask", "attributes"),
    [
        ("slice", "gqa", "compare", (True, 0)),
        ("index_copy", "gqa", "compare", (True, 0)),
        ("index_put", "repeat", "compare", (True, 0)),
        ("slice", "repeat", "triangle", (True, 0)),
        ("slice", "gqa", "cut_triangle", (True, 0)),
        ("slice", "repeat", "triu", (True, 0)),
        ("slice", "gqa", "window", (True, 5)),
        ("slice", "repeat", "cut", (False, 0)),
    ],
)
def test_plain_attention_over_a_cache_is_recognised(
    write: str, heads: str, mask: str, attributes: tuple[bool, int]
) -> None:
    module = modules.Decoder(16, write, heads, mask)
    graph = agree(module, attention_inputs(), ATTENTION, REPLAY, fused=True).graph
    assert op_names(graph) == ["sdpa_with_kv_cache"]
    node = next(n for n in graph.nodes if n.op == "sdpa_with_kv_cache")
    assert (node.attrs["causal"], node.attrs["window"]) == attributes
    assert node.inputs[5:] in ((), (None,))
    assert node.source.file == "modules.py"


def test_a_mask_of_its_own_stays_an_operand() -> None:
    graph = agree(
        modules.Decoder(mask="alibi"), attention_inputs(), ATTENTION, REPLAY, fused=True
    ).graph
    node = next(n for n in graph.nodes if n.op == "sdpa_with_kv_cache")
    assert node.attrs["causal"] is False
    assert node.inputs[5] is not None


@pytest.mark.parametrize("mask", ["off_by_one", "none"])
def test_attention_that_sees_unwritten_entries_is_left_alone(mask: str) -> None:
    graph = agree(
        modules.Decoder(mask=mask), attention_inputs(), ATTENTION, REPLAY, fused=True
    ).graph
    assert "sdpa" in op_names(graph)
    assert op_names(graph).count("update_cache") == 2, "the writes still happen in place"


def test_a_cache_read_before_attention_keeps_its_write() -> None:
    class Peek(modules.Decoder):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, pos: int) -> Tensor:
            rows = q.shape[1]
            self._write(k, v, pos, rows)
            q = q + self.k.sum()
            mixed = F.scaled_dot_product_attention(
                q.transpose(1, 2),
                self.k.transpose(1, 2),
                self.v.transpose(1, 2),
                attn_mask=self._mask(pos, rows),
                enable_gqa=True,
            )
            return mixed.transpose(1, 2).flatten(2)

    graph = agree(Peek(), attention_inputs(), ATTENTION, REPLAY, fused=True).graph
    assert "sdpa_cached" in op_names(graph)
    assert op_names(graph).count("update_cache") == 2


def test_an_old_reader_keeps_the_copies() -> None:
    class Old(nn.Module):
        k: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("k", torch.zeros(1, 16, 2, 4))

        def forward(self, k: Tensor, pos: int) -> tuple[Tensor, Tensor]:
            old = self.k.clone()
            self.k[:, pos : pos + k.shape[1]] = k
            return self.k.sum(1), old.sum(1)

    symbols = {"S": Sym(1, 16, at=("k", 1)), "pos": Sym(0, 15, at="pos")}
    inputs = (torch.zeros(1, 1, 2, 4), 0)
    fused_ops(Old(), inputs, symbols, REPLAY, [write_caches_in_place])
    agree(Old(), inputs, symbols, REPLAY, fused=True)


# ---- products


class Quantised(RandomWeights):
    """Random 4-bit layers and an 8-bit table."""

    def linear(self, name: str, rows: int, columns: int, bias: bool) -> nn.Module:
        weight = self._normal(rows, columns) / columns**0.5
        return QuantLinear.from_float(weight, self._normal(rows) if bias else None, "q4gaw", 32)

    def embedding(self, name: str, rows: int, columns: int) -> QuantEmbedding:
        return QuantEmbedding.from_float(self._normal(rows, columns), "q8gsw", 32)


class Gated(nn.Module):
    def __init__(self, act: str, bias: bool = False, other: bool = False) -> None:
        super().__init__()
        made = Quantised(0)
        self.gate, self.up = made.linear("", 24, 32, bias), made.linear("", 24, 32, False)
        if other:
            self.up = QuantLinear.from_float(torch.randn(24, 32), None, "q8gsw", 32)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate(x), self.up(x)
        if self.act == "silu_right":
            return up * F.silu(gate)  # type: ignore[no-any-return]
        if self.act == "gelu":
            return F.gelu(gate, approximate="tanh") * up  # type: ignore[no-any-return]
        if self.act == "leaks":
            return F.silu(gate) * up + gate  # type: ignore[no-any-return]
        return F.silu(gate) * up  # type: ignore[no-any-return]


@pytest.mark.parametrize("act", ["silu", "silu_right", "gelu"])
def test_gate_and_up_become_one_product(act: str) -> None:
    found = fused_ops(Gated(act), (torch.zeros(1, 3, 32),), ROWS, [{"S": 3}, {"S": 1}], [gate_up])
    assert found == ["gate_up_q"]


@pytest.mark.parametrize(
    "module", [Gated("leaks"), Gated("silu", bias=True), Gated("silu", other=True)]
)
def test_gate_and_up_stay_apart(module: nn.Module) -> None:
    found = fused_ops(module, (torch.zeros(1, 3, 32),), ROWS, [{"S": 3}], [gate_up])
    assert "gate_up_q" not in found


class Residual(nn.Module):
    def __init__(self, layer: nn.Module, twist: str = "") -> None:
        super().__init__()
        self.layer, self.twist = layer, twist

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        if self.twist == "broadcast":
            return y + x[:, :1]  # type: ignore[no-any-return]
        if self.twist == "twice":
            return (x + y) * y  # type: ignore[no-any-return]
        return x + y  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["linear_q", "linear"])
def test_a_residual_sum_goes_into_the_product(kind: str) -> None:
    layer = nn.Linear(32, 32) if kind == "linear" else Quantised(0).linear("", 32, 32, True)
    steps = [{"S": 3}, {"S": 1}]
    found = fused_ops(Residual(layer), (torch.zeros(1, 3, 32),), ROWS, steps, [add_residual])
    assert found == [kind]


@pytest.mark.parametrize("twist", ["broadcast", "twice"])
def test_other_sums_stay(twist: str) -> None:
    module = Residual(nn.Linear(32, 32), twist)
    assert "add" in fused_ops(module, (torch.zeros(1, 3, 32),), ROWS, [{"S": 3}], [add_residual])


class Normed(nn.Module):
    def __init__(self, shared: bool) -> None:
        super().__init__()
        made = Quantised(0)
        self.norm, self.shared = nn.RMSNorm(32), shared
        self.norm.weight.data = torch.randn(32)
        self.a, self.b = made.linear("", 8, 32, False), made.linear("", 8, 32, False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return self.a(x) + self.b(x) if self.shared else self.a(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("shared", "left"), [(False, 0), (True, 1)])
def test_a_norm_goes_into_its_only_reader(shared: bool, left: int) -> None:
    found = fused_ops(Normed(shared), (torch.zeros(1, 3, 32),), ROWS, [{"S": 3}], [fold_norm])
    assert found.count("rms_norm") == left


# ---- a whole model

LAYER = ["linear_q", "rope_qkv_update", "sdpa_cached", "linear_q", "gate_up_q", "linear_q"]
FLOAT_LAYER = [
    "rms_norm",
    "linear",
    "rope_qkv_update",
    "sdpa_cached",
    "linear",
    "rms_norm",
    "linear",
    "silu",
    "linear",
    "mul",
    "linear",
]


def llama(weights: RandomWeights, **options: Any) -> Llama:
    config = LlamaConfig(
        width=64,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=16,
        mlp=96,
        vocabulary=50,
        max_context=32,
        **options,
    )
    return Llama(config, weights).eval()


@pytest.mark.parametrize(
    ("weights", "options", "names"),
    [
        (Quantised(0), {}, ["embedding_q", *LAYER, *LAYER, "last_rows", "linear_q"]),
        (
            Quantised(0),
            {"tied_head": True, "qkv_bias": True},
            ["embedding_q", *LAYER, *LAYER, "last_rows", "linear_q"],
        ),
        (
            RandomWeights(0),
            {},
            ["embedding", *FLOAT_LAYER, *FLOAT_LAYER, "last_rows", "rms_norm", "linear"],
        ),
    ],
    ids=["quantised", "tied-biased", "float"],
)
def test_a_llama_layer_is_six_operators(
    weights: RandomWeights, options: dict[str, Any], names: list[str]
) -> None:
    symbols = {
        "S": Sym(1, 16, at=("tokens", 1)),
        "input_pos": Sym(0, 31, at="input_pos"),
        "L": Sym(1, 16, at="num_logits"),
    }
    steps = [
        {"S": s, "input_pos": p, "L": r}
        for s, p, r in ((5, 0, 1), (1, 5, 1), (3, 6, 3), (16, 9, 2))
    ]
    emitted = agree(
        llama(weights, **options),
        {"tokens": torch.tensor([[1, 7, 3]]), "input_pos": 0, "num_logits": 1},
        symbols,
        steps,
        [(["+", "S", "input_pos"], 32), (["-", "L", "S"], 0)],
        fused=True,
        tolerance=tolerances.INTERPRETED_MODEL,
    )
    check(emitted)
    assert op_names(emitted.graph) == names
    assert len(emitted.constants) == len(set(emitted.constants))
    assert all(node.source.file for node in emitted.graph.nodes)


def test_caches_of_half_precision_are_written_in_place() -> None:
    class Half(nn.Module):
        k: Tensor
        v: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("k", torch.zeros(1, 16, 2, 4, dtype=torch.float16))
            self.register_buffer("v", torch.zeros(1, 16, 2, 4, dtype=torch.float16))

        def forward(self, q: Tensor, k: Tensor, v: Tensor, pos: int) -> Tensor:
            mixed: Tensor = ops.sdpa_with_kv_cache(q, k, v, self.k, self.v, pos)
            return mixed

    captured = capture(Half(), attention_inputs(), ATTENTION)
    graph = fuse(emit(captured)).graph
    assert {graph.values[name].dtype for name in graph.buffers} == {"f16"}
