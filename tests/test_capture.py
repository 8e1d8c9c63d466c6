"""Capture: declared symbols stay symbolic at every value they are declared for, or the export is
refused by name.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from exporter.capture import capture, decomposition_table
from exporter.examples import pick_values
from exporter.symbolic import Domain, Sym, to_expr
from runtime_py.errors import ExportError
from runtime_py.schema import Constraint
from runtime_py.symbols import Op, parse
from tests import modules
from tests.graph_oracle import captured_and_settled

ROWS = {"S": Sym(1, 16, at=("x", 1)), "pos": Sym(0, 15, at="pos")}
ATTENTION = {"S": Sym(1, 16, at=[("q", 1), ("k", 1), ("v", 1)]), "pos": Sym(0, 15, at="pos")}


def attention_inputs(rows: int = 1) -> tuple[Any, ...]:
    kv = torch.zeros(1, rows, 2, 4)
    return torch.zeros(1, rows, 6, 4), kv, kv, 0


def test_an_example_of_one_row_does_not_freeze_the_extent() -> None:
    captured = captured_and_settled(modules.Decoder(), attention_inputs(1), ATTENTION)
    assert set(captured.names.values()) == {"S", "pos"}
    q = next(n for n in captured.program.graph.nodes if n.name == "q")
    assert isinstance(q.meta["val"].shape[1], torch.SymInt)
    assert captured.domain.constraints == [Constraint(Op("+", "S", "pos"), 16)]


def test_extents_are_chosen_distinct_and_at_least_two() -> None:
    arguments = {"x": torch.zeros(1, 1, 6), "n": 1}
    symbols = {"S": Sym(1, 16, at=("x", 1)), "n": Sym(1, 16, at="n")}
    domain = Domain({"S": (1, 16), "n": (1, 16)})
    values = pick_values(arguments, symbols, domain)
    assert len({*values.values(), 1, 6}) == 4
    assert min(values.values()) >= 2


@pytest.mark.parametrize(
    ("kind", "line"), [("rows > 3", "rows > 3"), ("rows > 1", ""), ("pos == 7", "pos == 7")]
)
def test_a_python_branch_on_a_symbol_is_refused(kind: str, line: str) -> None:
    with pytest.raises(
        ExportError, match="computes something else than at the traced sizes"
    ) as error:
        captured_and_settled(modules.Branching(kind), (torch.ones(1, 1, 8), 0), ROWS)
    assert line in str(error.value)


def test_a_branch_that_never_matters_is_accepted() -> None:
    captured_and_settled(modules.Branching("never"), (torch.ones(1, 1, 8), 0), ROWS)


def test_a_frozen_symbol_is_refused_by_name() -> None:
    with pytest.raises(ExportError, match="'S'"):
        captured_and_settled(
            modules.FixedRows(), (torch.ones(1, 3, 8),), {"S": Sym(1, 16, at=("x", 1))}
        )


def test_a_range_wider_than_the_buffer_is_refused() -> None:
    with pytest.raises(ExportError, match=r"'S' is declared 1\.\.99"):
        captured_and_settled(
            modules.FirstRows(), (torch.ones(1, 3, 8),), {"S": Sym(1, 99, at=("x", 1))}
        )


def test_a_model_that_fails_at_a_declared_size_is_refused() -> None:
    class Narrow(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[1] == 1:
                raise ValueError("one row is not enough")
            return x * 2

    with pytest.raises(ExportError, match=r"does not run at S=1.*one row is not enough"):
        captured_and_settled(Narrow(), (torch.ones(1, 3, 8),), {"S": Sym(1, 9, at=("x", 1))})


@pytest.mark.parametrize(
    ("symbols", "message"),
    [
        ({"S": Sym(1, 16, at=("y", 1))}, "'y', not among the inputs"),
        ({"S": Sym(1, 16, at=("x", 5))}, "dim 5 of 'x'"),
        ({"S": Sym(1, 16)}, "bound nowhere"),
        ({"S": Sym(0, 1, at=("x", 1))}, "0..1"),
        ({"S": Sym(9, 3, at=("x", 1))}, "9..3"),
        ({"a b": Sym(1, 16, at=("x", 1))}, "no identifier"),
        ({"S": Sym(1, 16, at=("x", 1)), "T": Sym(1, 16, at=("x", 1))}, "bound by both 'S' and 'T'"),
        ({"S": Sym(1, 16, at="x")}, "neither int nor one-element"),
    ],
)
def test_declarations_are_checked(symbols: dict[str, Sym], message: str) -> None:
    with pytest.raises(ExportError) as error:
        capture(modules.Branching("never"), (torch.ones(1, 3, 8), 2), symbols)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [((1, 2, 3), "3 example inputs"), ({"z": 1}, "no parameters"), ((1,), "lack ['pos']")],
)
def test_example_inputs_are_checked(inputs: Any, message: str) -> None:
    with pytest.raises(ExportError) as error:
        capture(modules.Branching("never"), inputs, {})
    assert message in str(error.value)


def test_constraints_name_declared_symbols() -> None:
    with pytest.raises(ExportError, match="unknown symbols"):
        capture(modules.Branching("never"), (torch.ones(1, 3, 8), 2), ROWS, [(["+", "S", "T"], 16)])


def test_data_dependent_models_get_one_clear_error() -> None:
    symbols = {"S": Sym(1, 16, at=("x", 1))}
    with pytest.raises(ExportError, match=r"\.item\(\)"):
        capture(modules.ItemPosition(), (torch.ones(1, 3, 8), torch.tensor(5)), symbols)


def test_the_module_keeps_its_forward_and_its_buffers() -> None:
    module = modules.ItemPosition()
    forward = type(module).forward
    symbols = {"S": Sym(1, 16, at=("x", 1)), "pos": Sym(0, 15, at="where")}
    captured_and_settled(module, (torch.ones(1, 3, 8), torch.tensor(5)), symbols)
    assert "forward" not in vars(module)
    assert type(module).forward is forward
    assert not module.k.any()


def test_large_operators_are_not_taken_apart() -> None:
    assert torch.ops.aten.scaled_dot_product_attention.default not in decomposition_table()
    assert torch.ops.aten.addcmul.default in decomposition_table()


def test_domain_asks_only_for_what_does_not_follow() -> None:
    domain = Domain({"S": (1, 8), "pos": (0, 20)})
    domain.require("S", 8)
    assert domain.constraints == []
    domain.require(parse(["-", ["+", ["*", "pos", 4], ["*", "S", 4]], 64]), 0)
    assert domain.constraints == [Constraint(Op("+", "S", "pos"), 16)]
    domain.require(parse(["+", "pos", ["-", "S", 1]]), 16)
    assert len(domain.constraints) == 1
    assert domain.allows({"S": 8, "pos": 8})
    assert not domain.allows({"S": 8, "pos": 9})


def test_expressions_floor_as_python_does() -> None:
    import sympy  # type: ignore[import-untyped]
    from torch.utils._sympy.functions import FloorDiv, PythonMod

    s, t = sympy.Symbol("s0", integer=True), sympy.Symbol("s1", integer=True)
    names = {"s0": "S", "s1": "pos"}
    assert to_expr(2 * s - t + 3, names) == parse(["-", ["+", ["*", "S", 2], 3], "pos"])
    assert to_expr(FloorDiv(t - 3, 2), names) == parse(["//", ["-", "pos", 3], 2])
    assert to_expr(PythonMod(t, 4), names) == parse(["-", "pos", ["*", ["//", "pos", 4], 4]])
    with pytest.raises(ExportError, match="none of"):
        to_expr(sympy.Max(s, t), names)
    with pytest.raises(ExportError, match="data of a tensor"):
        to_expr(sympy.Symbol("u0", integer=True), names)


def test_one_tensor_given_twice_is_two_inputs() -> None:
    class Difference(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            return a - 2 * b + 4 * c

    x = torch.ones(4, 4)
    captured = captured_and_settled(Difference(), (x, x, x.T), {})
    inputs = [node for node in captured.program.graph.nodes if node.op == "placeholder"]
    assert all(node.users for node in inputs)
