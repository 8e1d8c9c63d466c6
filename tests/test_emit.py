"""Emit: the exported graph answers as eager does, call after call, and says what it cannot express."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.capture import capture
from exporter.emit import emit
from exporter.pipeline import check
from exporter.symbolic import Sym
from runtime_py.errors import ExportError, InputError, UnsupportedOpError
from runtime_py.graph import sample_points
from runtime_py.schema import Buffer, Constraint, Graph
from runtime_py.symbols import Op
from tests import modules
from tests.graph_oracle import Interpreter, agree, op_names, tensors_only

ROOM = [(["+", "S", "pos"], 16)]
POS = Sym(0, 15, at="pos")
ATTENTION = {"S": Sym(1, 16, at=[("q", 1), ("k", 1), ("v", 1)]), "pos": POS}
REPLAY = [{"S": s, "pos": p} for s, p in ((5, 0), (1, 5), (1, 6), (9, 7))]


def attention_inputs() -> tuple[Any, ...]:
    kv = torch.zeros(1, 1, 2, 4)
    return torch.zeros(1, 1, 6, 4), kv, kv, 0


# ---- mutable buffers


@pytest.mark.parametrize("steps", [REPLAY, [REPLAY[0] | {"S": s} for s in (9, 1, 5, 16)]])
def test_one_graph_serves_every_length_and_position(steps: list[dict[str, int]]) -> None:
    graph = agree(modules.Decoder(), attention_inputs(), ATTENTION, steps).graph
    assert graph.values["q"].shape == (1, "S", 6, 4)
    assert graph.constraints == (Constraint(Op("+", "S", "pos"), 16),)


def test_no_value_is_fixed_to_the_example() -> None:
    """A graph with a literal where S belongs would have the same extents at every step."""
    graph = agree(modules.Decoder(), attention_inputs(), ATTENTION, REPLAY[:1]).graph
    free = [v for v in graph.values.values() if any(not isinstance(d, int) for d in v.shape)]
    assert len(free) > 5
    assert len({tuple(point.items()) for point in sample_points(graph)}) == 4


def test_the_position_may_come_from_a_tensor() -> None:
    symbols = {"S": Sym(1, 16, at=("x", 1)), "pos": Sym(0, 15, at="where")}
    inputs = (torch.ones(1, 3, 8), torch.tensor([5]))
    steps = [{"S": 3, "pos": 0}, {"S": 2, "pos": 5}, {"S": 1, "pos": 15}]
    graph = agree(modules.ItemPosition(), inputs, symbols, steps).graph
    assert [port.name for port in graph.inputs] == ["x"]


def test_buffers_outside_the_state_dict() -> None:
    emitted = agree(modules.NonPersistent(), (torch.zeros(4),), {}, [{}, {}, {}])
    assert torch.equal(emitted.constants["b"], torch.ones(4))
    assert list(emitted.graph.buffers) == ["count"]


@pytest.mark.parametrize("last", [True, False])
def test_a_copy_with_nothing_after_it_is_kept(last: bool) -> None:
    agree(modules.CopyLast(last), (torch.zeros(3),), {}, [{}, {}, {}])
    captured = capture(modules.CopyLast(last), (torch.zeros(3),), {})
    interpreter = Interpreter(emit(captured))
    interpreter.run({"x": torch.tensor([1.0, 2.0, 3.0]).numpy()}, {})
    assert list(interpreter.buffers["buf"]) == [1, 2, 3]


def test_a_buffer_starts_from_its_content_and_reset_brings_it_back() -> None:
    emitted = agree(modules.Counter(), (), {}, [{}, {}])
    assert emitted.graph.buffers == {"counter": Buffer("counter", "counter.init")}
    interpreter = Interpreter(emitted)
    assert [interpreter.run({}, {})["output"].tolist() for _ in range(3)] == [[6.0], [7.0], [8.0]]
    interpreter.reset()
    assert interpreter.run({}, {})["output"].tolist() == [6.0]


def test_a_write_through_a_view_reaches_the_buffer() -> None:
    emitted = agree(modules.ViewWrite(), (torch.zeros(3),), {}, [{}, {}, {}])
    assert emitted.graph.buffers == {"k": Buffer("k", None)}
    assert emitted.constants == {}, "a mutated buffer is never a weight"


def test_buffers_that_change_places() -> None:
    agree(modules.Swap(), (), {}, [{}, {}, {}])


def test_readers_of_old_content_get_it_after_an_in_place_write() -> None:
    symbols = {"S": Sym(1, 16, at=[("q", 1), ("k", 1)]), "pos": POS}
    inputs = (torch.zeros(1, 1, 4, 4), torch.zeros(1, 1, 2, 4), 0, torch.zeros(1, 16, 2, 4))
    emitted = agree(modules.LateReaders(), inputs, symbols, REPLAY[:3], ROOM)
    scratch = [name for name in emitted.graph.buffers if name not in ("k", "v")]
    assert len(scratch) == 2, "an argument and a clone are written in buffers of their own"


def test_a_mutating_operator_on_a_view_is_refused_with_its_line() -> None:
    captured = capture(
        modules.CacheView(),
        (torch.zeros(1, 1, 2, 4), 0),
        {"S": Sym(1, 16, at=("k", 1)), "pos": POS},
        ROOM,
    )
    with pytest.raises(UnsupportedOpError, match=r"modules\.py:\d+ .*self\.kv\[0\]"):
        emit(captured)


# ---- symbolic arithmetic


def test_symbolic_arithmetic_floors_and_refuses_a_zero_divisor() -> None:
    symbols = {"pos": POS, "by": Sym(3, 9, at="by")}
    steps = [{"pos": 0, "by": 3}, {"pos": 15, "by": 9}, {"pos": 2, "by": 4}]
    emitted = agree(modules.FloorArithmetic(), (torch.zeros(3), 0, 3), symbols, steps)
    got = Interpreter(emitted).run({"x": torch.ones(3).numpy()}, steps[0])
    assert got["output_0"].tolist() == [-2.0] * 3, "(0 - 3) // 2 floors to -2; truncation gives -1"
    with pytest.raises(InputError, match="division by zero"):
        Interpreter(emitted).run({"x": torch.ones(3).numpy()}, {"pos": 1, "by": 2})


def test_rows_from_the_end_become_last_rows_with_a_constraint() -> None:
    class Tail(nn.Module):
        def forward(self, x: Tensor, rows: int) -> Tensor:
            return x[:, x.shape[1] - rows :] * 2

    symbols = {"S": Sym(1, 16, at=("x", 1)), "L": Sym(1, 16, at="rows")}
    emitted = agree(
        Tail(), (torch.zeros(1, 1, 3), 1), symbols, [{"S": 5, "L": 2}, {"S": 1, "L": 1}]
    )
    assert op_names(emitted.graph) == ["last_rows", "mul"]
    assert emitted.graph.constraints == (Constraint(Op("-", "L", "S"), 0),)


# ---- refusals


def test_all_unsupported_operations_come_in_one_error_with_their_lines() -> None:
    captured = capture(
        modules.Unsupported(), (torch.zeros(2, 3), torch.tensor(2.0)), {"S": Sym(1, 9, at=("x", 1))}
    )
    with pytest.raises(UnsupportedOpError) as error:
        emit(captured)
    message = error.value.message
    for part in ("cumsum", "sort", "indexing by a mask", ".item()", "y = torch.cumsum(x, 1)"):
        assert part in message, message
    assert message.count("at modules.py:") == int(message.split()[0]) == 4


def test_double_precision_is_refused() -> None:
    class Double(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.double() * 2

    with pytest.raises(UnsupportedOpError, match=r"float64; tensors are float32"):
        emit(capture(Double(), (torch.zeros(3),), {}))
    with pytest.raises(ExportError, match=r"float64; tensors are float32"):
        emit(capture(Double(), (torch.zeros(3, dtype=torch.float64),), {}))


# ---- constants


def test_constants_are_folded_and_one_weight_is_stored_once() -> None:
    module = modules.TwoNames()
    emitted = agree(
        module,
        {"ids": torch.tensor([[1, 5]])},
        {"S": Sym(1, 9, at=("ids", 1))},
        [{"S": 2}, {"S": 1}],
    )
    assert op_names(emitted.graph) == ["embedding", "mul", "linear"]
    assert sorted(tuple(t.shape) for t in emitted.constants.values()) == [(8,), (11, 8)]


def test_an_unused_input_stays_a_port_and_an_unused_weight_goes() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            result: Tensor = self.used(x)
            return result

    emitted = agree(Half(), (torch.zeros(2, 3), torch.zeros(2)), {}, [{}])
    assert [port.name for port in emitted.graph.inputs] == ["x", "y"]
    assert sorted(emitted.constants) == ["used.bias", "used.weight"]


# ---- operators, one by one


# x is [1, S, 6], n an integer. They are exported a few together, which saves most of the time.
OPERATORS: dict[str, Any] = {
    "add_alpha": lambda x, n: torch.add(x, x, alpha=3),
    "rsub": lambda x, n: 1 - x,
    "scalar_left_div": lambda x, n: 2 / (x + 9),
    "symbol_scalar": lambda x, n: x * n + x.shape[1],
    "int_to_float": lambda x, n: torch.arange(6) * 0.5 + x,
    "int_true_div": lambda x, n: torch.arange(x.shape[1]) / 4,
    "pow_2_3_4": lambda x, n: (x**2) + (x**3) + (x**4),
    "pow_half": lambda x, n: (x.abs() + 1) ** 0.5 + (x.abs() + 1) ** -0.5 + (x.abs() + 1) ** 1.5,
    "pow_base": lambda x, n: 2.0**x,
    "functions": lambda x, n: x.exp() + x.sin() * x.cos() - x.tanh() + x.sigmoid() + x.abs().sqrt(),
    "logs": lambda x, n: (x.abs() + 1).log() + (x.abs() + 1).rsqrt() + (x.abs() + 1).reciprocal(),
    "activations": lambda x, n: F.silu(x) + F.gelu(x) + F.gelu(x, approximate="tanh") + F.relu(x),
    "clamp": lambda x, n: x.clamp(-0.5, 0.5) + x.clamp(min=0.1) + x.clamp_max(0.2),
    "compare": lambda x, n: (x > 0) & (x < 1) | ~(x <= 0.5) ^ (x == 0),
    "compare_mixed": lambda x, n: torch.arange(6) < x,
    "where": lambda x, n: torch.where(x > 0, x, 0.0) + torch.where(x > 0, 1.0, x),
    "masked_fill": lambda x, n: x.masked_fill(x > 0, -1.0),
    "maximum": lambda x, n: torch.maximum(x, -x) + torch.minimum(x, torch.tensor(0.25)),
    "casts": lambda x, n: (x * 3).to(torch.int32) + (x > 0).to(torch.int32),
    "truth_to_float": lambda x, n: (x > 0).float() + (x * 2).bool().float(),
    "sum_all": lambda x, n: x.sum() + x.mean(),
    "sum_dims": lambda x, n: (
        x.sum((0, 2)) + x.mean(-1)[0] + x.amax(-1)[0] + x.amin(2, True)[0, :, 0]
    ),
    "count": lambda x, n: (x > 0).sum(-1),
    "var": lambda x, n: x.var(-1) + x.std(-1, unbiased=False),
    "max_values": lambda x, n: x.max(-1).values + x.max(),
    "argmax": lambda x, n: x.argmax(-1) + x.max(-1, keepdim=True).indices,
    "softmax": lambda x, n: x.softmax(-1) + x.softmax(1) + x.log_softmax(-1),
    "norms": lambda x, n: (
        F.layer_norm(x, (6,)) + F.rms_norm(x, (6,), eps=1e-5) + F.normalize(x, dim=-1)
    ),
    "matmul": lambda x, n: x @ x.transpose(1, 2),
    "matmul_stored": lambda x, n: x @ torch.arange(12.0).reshape(6, 2) + torch.ones(2),
    "matmul_vector": lambda x, n: x @ torch.arange(6.0),
    "addmm": lambda x, n: torch.addmm(
        torch.ones(2), x[0], torch.arange(12.0).reshape(6, 2), beta=2
    ),
    "einsum": lambda x, n: torch.einsum("bsd,btd->bst", x, x),
    "bmm": lambda x, n: torch.bmm(x, x.mT),
    "outer": lambda x, n: torch.outer(x[0, 0], x[0, -1]),
    "views": lambda x, n: (
        x.unsqueeze(0).flatten(1, 2).squeeze(0).unflatten(-1, (2, 3)).reshape(-1, 3)
    ),
    "permutes": lambda x, n: x.permute(2, 0, 1).transpose(0, 2).contiguous() + x[0, :, :, None].mT,
    "slices": lambda x, n: x[:, :1, 1:5:2] + x[..., -2:] + x[:, -1:, 0:2],
    "selects": lambda x, n: x[:, 0] + x[:, -1] + x[..., 2].sum(),
    "splits": lambda x, n: sum(x.split([1, 2, 3], -1)[1].unbind(-1)) + x.chunk(2, -1)[0].sum(-1),
    "cat_stack": lambda x, n: torch.cat([x, x * 2], -1).sum(-1) + torch.stack([x, x]).sum((0, 3)),
    "expand_repeat": lambda x, n: (
        x[:, :, None].expand(-1, -1, 2, -1) + x.repeat(1, 1, 2).unflatten(2, (2, 6))
    ),
    "repeat_interleave": lambda x, n: x.repeat_interleave(2, -1),
    "index_select": lambda x, n: x.index_select(-1, torch.tensor([3, 0, 0])) + x[..., [1, 2, -1]],
    "index_range": lambda x, n: torch.arange(48.0).reshape(16, 3)[torch.arange(x.shape[1]) + n],
    "position_table": lambda x, n: F.embedding(
        torch.arange(x.shape[1]) + n, torch.arange(48.0).reshape(16, 3)
    ),
    "flip_roll": lambda x, n: x.flip(-1) + x.roll(1, -1),
    "triangles": lambda x, n: x[0].tril() + x[0].triu(1) * 2,
    "fills": lambda x, n: (
        torch.zeros_like(x) + torch.ones(x.shape[1], 1) + torch.full((6,), 2.5) + n
    ),
    "infinite_fill": lambda x, n: torch.full((x.shape[1], 6), float("-inf")).maximum(x),
    "arange_steps": lambda x, n: (
        torch.arange(2, 14, 2) + x + torch.arange(n, n + x.shape[1])[:, None]
    ),
    "attention": lambda x, n: F.scaled_dot_product_attention(
        x[None], x[None], x[None], is_causal=True
    ),
}


GROUPS = [tuple(list(OPERATORS)[i : i + 9]) for i in range(0, len(OPERATORS), 9)]


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: f"{names[0]}..{names[-1]}")
def test_operators(names: tuple[str, ...]) -> None:
    class Module(nn.Module):
        def forward(self, x: Tensor, n: int) -> dict[str, Tensor]:
            return {name: OPERATORS[name](x, n) for name in names}

    symbols = {"S": Sym(1, 7, at=("x", 1)), "n": Sym(0, 9, at="n")}
    steps = [{"S": 1, "n": 0}, {"S": 2, "n": 1}, {"S": 7, "n": 9}]
    emitted = agree(Module().eval(), (torch.zeros(1, 3, 6), 4), symbols, steps)
    check(emitted)


def test_the_comparison_can_fail() -> None:
    """Control: one weight off by 1e-3 must be seen."""
    module = nn.Linear(3, 3)
    captured = capture(module, (torch.ones(1, 3),), {})
    interpreter = Interpreter(emit(captured))
    interpreter.constants["weight"] = interpreter.constants["weight"] + 1e-3
    got = interpreter.run(tensors_only(captured, captured.arguments), {})["output"]
    assert abs(got - module(torch.ones(1, 3)).detach().numpy()).max() > 1e-3


def test_a_graph_survives_json() -> None:
    graph = agree(modules.Decoder(), attention_inputs(), ATTENTION, REPLAY[:1]).graph
    assert Graph.from_json(graph.to_json()) == graph
