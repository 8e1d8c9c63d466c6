"""Tensor operators as dispatches: shapes, strides, keys, folded grids, refusals. No browser."""

from __future__ import annotations

import math

import pytest

from runtime_py.ops import layout, registry
from runtime_py.ops.base import Dispatch
from runtime_py.schema import Attr, Constraint, SymbolAttr
from runtime_py.symbols import Expr, Op, Shape, evaluate
from tests.cases import (
    BROADCAST_OPS,
    BROADCASTS,
    RMS_NORMS,
    ROPES,
    TOO_MANY_ELEMENTS,
    UPDATES,
    RmsNorm,
    Rope,
    Update,
)
from tests.lowering import Single, single

S = SymbolAttr("S")
SPAN = {"S": (1, 128)}


def number(dispatch: Dispatch, name: str, **values: int) -> float:
    (value,) = (p.value for p in dispatch.params if p.name == name)
    return value if isinstance(value, float) else evaluate(value, values)


def only(one: Single) -> Dispatch:
    (dispatch,) = one.dispatches()
    return dispatch


def axes(dispatch: Dispatch) -> dict[str, object]:
    return dict(dispatch.key.axes)


# -- layout


def test_strides_and_their_symbols() -> None:
    assert layout.strides((2, "S", 64)) == (Op("*", "S", 64), 64, 1)
    assert layout.strides(()) == ()


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        (Op("+", "S", "S"), Op("*", 2, "S"), True),
        (Op("*", Op("+", "S", 1), 3), Op("+", 3, Op("*", "S", 3)), True),
        (Op("//", "S", 2), Op("//", Op("+", "S", 0), 2), True),
        (Op("//", "S", 2), Op("//", "S", 3), False),
        ("S", "P", False),
        (Op("-", "S", "S"), 0, True),
    ],
)
def test_equal_expressions_are_recognised(a: Expr, b: Expr, want: bool) -> None:
    assert layout.same(a, b) is want


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        ((8, 32), (8, 32), (8, 32)), ((4,), (3, 4), (3, 4)), ((1, "S", 1), (7,), (1, "S", 7)),
        ((2, 3), (3, 2), None), (("S",), ("P",), None), ((), (2,), (2,)),
    ],
)  # fmt: skip
def test_broadcasting(a: Shape, b: Shape, want: Shape | None) -> None:
    assert layout.broadcast(a, b) == want


def test_dimensions_that_all_step_over_evenly_merge() -> None:
    shape: Shape = ("S", 8, 1, 64)
    assert layout.collapse(shape, [layout.strides(shape)] * 2) == (
        (Op("*", Op("*", "S", 8), 64),),
        [(1,), (1,)],
    )
    row = layout.broadcast_strides((64,), shape)
    sizes, steps = layout.collapse(shape, [layout.strides(shape), row])
    assert (sizes, steps) == ((Op("*", "S", 8), 64), [(64, 1), (0, 1)])
    assert layout.collapse((1, 1), [(1, 1)]) == ((1,), [(0,)])


@pytest.mark.parametrize("groups", [1, 65535, 65536, 131071, 2**21 - 1])
def test_grids_fold_past_the_limit_and_waste_little(groups: int) -> None:
    one = single("add", {"a": (4,)}, (4,), {"scalar": 1})
    one.dispatches()
    x, y, z = (evaluate(side, {}) for side in layout.fold(one.planner, groups))
    assert max(x, y) <= 65535
    assert z == 1
    assert groups <= x * y < groups + y


def test_an_indicator_is_zero_or_one() -> None:
    one = single("add", {"a": ("S",)}, ("S",), {"scalar": 1}, {"S": (1, 512)})
    one.dispatches()
    many = layout.indicator(one.planner, Op("//", "S", 16))
    assert [evaluate(many, {"S": s}) for s in (1, 15, 16, 17, 512)] == [0, 0, 1, 1, 1]


def test_a_tensor_past_int32_is_refused() -> None:
    reason = single("neg", {"a": TOO_MANY_ELEMENTS}, TOO_MANY_ELEMENTS).check()
    assert reason is not None
    assert str(math.prod(TOO_MANY_ELEMENTS)) in reason
    assert single("neg", {"a": (46341, 46340)}, (46341, 46340)).check() is None
    assert "empty" in str(single("neg", {"a": (3, 0)}, (3, 0)).check())


# -- elementwise


@pytest.mark.parametrize("op", BROADCAST_OPS)
@pytest.mark.parametrize(("a", "b"), BROADCASTS, ids=str)
def test_broadcast_operators(op: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    shape = layout.broadcast(a, b)
    assert shape is not None
    one = single(op, {"a": a, "b": b}, shape)
    assert one.shapes() == (shape,)
    assert number(only(one), "n") == math.prod(evaluate(d, {}) for d in shape)
    rank = 1 if a == b else 4 if len(a) == 4 and a[0] > 1 else 2
    assert axes(only(one))["rank"] == rank


def test_one_pipeline_serves_all_lengths_and_shapes() -> None:
    keys = {
        only(single("add", {"a": shape, "b": shape}, shape, {}, SPAN)).key
        for shape in ((7,), (3, 5), ("S", 64), (2, "S", 3, 4))
    }
    assert len(keys) == 1


def test_a_number_or_an_expression_as_operand() -> None:
    found = only(single("sub", {"a": ("S",)}, ("S",), {"scalar": S, "reverse": True}, SPAN))
    assert axes(found)["reverse"] is True
    assert number(found, "scalar", S=5) == 5


@pytest.mark.parametrize(
    ("power", "kernel"), [(2, "square"), (0.5, "sqrt"), (-1, "reciprocal"), (3, None)]
)
def test_powers_with_a_function_of_their_own(power: float, kernel: str | None) -> None:
    found = only(single("pow", {"a": (4,)}, (4,), {"scalar": power}))
    assert axes(found)["op"] == (kernel or "pow")


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "says"),
    [
        ("add", {"a": (2, 3), "b": (3, 2)}, {}, "do not broadcast"),
        ("add", {"a": (2,), "b": ("i32", (2,))}, {}, "cast one"),
        ("div", {"a": ("i32", (2,)), "b": ("i32", (2,))}, {}, "integers"),
        ("add", {"a": (2,)}, {}, "needs a number"),
        ("exp", {"a": ("i32", (2,))}, {}, "cast to f32"),
        ("neg", {"a": ("u32", (2,))}, {}, "truth"),
        ("where", {"c": (2,), "a": (2,), "b": (2,)}, {}, "expected u32"),
        ("where", {"c": ("u32", (3,)), "a": (2,), "b": (2,)}, {}, "do not broadcast"),
        ("softmax", {"a": (2, 3)}, {"dim": 0}, "only the last"),
        ("mean", {"a": ("i32", (2, 3))}, {}, "cast first"),
        ("matmul", {"a": (2, 3), "b": (4, 5)}, {}, "matmul of"),
        ("matmul", {"a": (2, 2, 3), "b": (3, 3, 5)}, {}, "stacks do not broadcast"),
        ("matmul", {"a": (2, 3), "b": ("f16", (3, 5))}, {}, "twice"),
        ("permute", {"a": (2, 3)}, {"dims": (0, 0)}, "permute by"),
        ("view", {"a": (2, 3)}, {}, "another number"),
        ("expand", {"a": (2, 3)}, {}, "expand of"),
        ("cast", {"a": (2, 0)}, {}, "empty"),
        ("index_select", {"a": (2, 3), "i": (2,)}, {}, "expected i32"),
        ("rms_norm", {"a": (2, 3), "w": (4,)}, {}, "expected f32"),
        ("rms_norm", {"a": ("i32", (2, 3))}, {}, "cast to f32"),
        ("layer_norm", {"a": (2, "S")}, {}, "fixed size"),
        ("rope", {"a": (1, 2, 3, 7), "f": (2,)}, {}, "even"),
        ("rope", {"a": (1, 2, 3, 4), "f": (3,)}, {}, "turn more"),
        ("rope", {"a": (1, 2, 4), "f": (2,)}, {}, "expected f32"),
        ("rope", {"a": (1, 2, 3, 4), "f": (2,)}, {"input_pos": Op("-", "S", 9)}, "negative"),
        ("copy", {"a": (2, 3), "b": (3, 2)}, {}, "copy of"),
        ("cat", {"a": (2, 3), "b": (3, 2)}, {"dim": 0}, "along dimension"),
    ],
)
def test_what_is_refused(
    op: str, inputs: dict[str, Shape], attrs: dict[str, Attr], says: str
) -> None:
    assert says in str(single(op, inputs, (5, 7), attrs, SPAN).check())


# -- moving elements


def test_view_is_an_alias() -> None:
    one = single("view", {"a": (1, "S", 64)}, ("S", 8, 8), {}, SPAN)
    assert registry["view"].alias
    assert one.dispatches() == []


def test_slice_by_expressions() -> None:
    one = single("slice", {"a": (2, 128, 3)}, (2, "S", 3), {"dim": 1, "start": SymbolAttr("p"), "step": 1},
                 {"S": (1, 128), "p": (0, 127)}, constraints=(Constraint(Op("+", "p", "S"), 128),))  # fmt: skip
    found = only(one)
    assert number(found, "x_start", S=3, p=5) == 15
    assert number(found, "n", S=3, p=5) == 18


def test_slice_past_the_end_is_refused() -> None:
    spans = {"S": (1, 128), "p": (0, 127)}
    attrs: dict[str, Attr] = {"dim": 1, "start": SymbolAttr("p")}
    assert "past the 128" in str(single("slice", {"a": (2, 128)}, (2, "S"), attrs, spans).check())
    assert "positive" in str(
        single("slice", {"a": (2, 128)}, (2, 4), {"dim": 1, "step": 0}, spans).check()
    )


def test_cat_is_a_copy_for_each_input() -> None:
    one = single("cat", {"a": (2, 3), "b": (2, "S")}, (2, Op("+", 3, "S")), {"dim": -1}, SPAN)
    assert one.shapes() == ((2, Op("+", 3, "S")),)
    first, second = one.dispatches()
    assert [number(d, "y_start", S=4) for d in (first, second)] == [0, 3]
    assert number(second, "y0", S=4) == 7


def test_slice_scatter_copies_the_base_then_the_slice() -> None:
    attrs: dict[str, Attr] = {"dim": 0, "start": 2, "step": 1}
    one = single("slice_scatter", {"a": (8, 4), "b": (3, 4)}, (8, 4), attrs)
    base, part = one.dispatches()
    assert (number(base, "n"), number(part, "n"), number(part, "y_start")) == (32, 12, 8)


def test_constants() -> None:
    full = only(single("full", {}, ("S", 4), {"value": 2.5}, SPAN))
    assert (number(full, "start", S=2), number(full, "step", S=2), number(full, "n", S=2)) == (
        2.5,
        0,
        8,
    )
    steps = only(single("arange", {}, ("i32", ("S",)), {"start": S, "step": 3}, SPAN))
    assert (number(steps, "start", S=7), number(steps, "step", S=7)) == (7, 3)


# -- reductions


@pytest.mark.parametrize(
    ("dims", "keepdim", "shape", "kept", "gone"),
    [
        ((-1,), True, ("S", 3, 1), 1, 1), ((0,), False, (3, 5), 1, 1), ((1,), False, ("S", 5), 2, 1),
        ((0, 2), False, (3,), 1, 2), ((), False, (), 1, 1),
    ],
)  # fmt: skip
def test_reductions(
    dims: tuple[int, ...], keepdim: bool, shape: Shape, kept: int, gone: int
) -> None:
    one = single("sum", {"a": ("S", 3, 5)}, shape, {"dims": dims, "keepdim": keepdim}, SPAN)
    assert one.shapes() == (shape,)
    assert (axes(only(one))["kept"], axes(only(one))["gone"]) == (kept, gone)


@pytest.mark.parametrize(("m", "rows"), [(1, 1), (8, 1), (9, 4), (300, 4)])
def test_matmul_tiles(m: int, rows: int) -> None:
    found = only(single("matmul", {"a": (2, 1, m, 17), "b": (3, 17, 40)}, (2, 3, m, 40)))
    assert axes(found)["rows"] == rows
    assert number(found, "tiles") == 6 * -(-m // (8 * rows)) * 2
    assert (number(found, "a1"), number(found, "b0")) == (0, 0)


# -- norms, rotary embedding, caches


@pytest.mark.parametrize(
    "case", RMS_NORMS, ids=lambda case: "x".join(map(str, case.shape)) + case.values
)
def test_a_norm_of_one_row_takes_the_same_kernel(case: RmsNorm) -> None:
    width = case.shape[-1]
    found = [
        only(single("rms_norm", {"x": shape, "w": (width,)}, shape, {"eps": 1e-5}))
        for shape in (case.shape, (1, width))
    ]
    assert found[0].key == found[1].key
    assert [number(d, "rows") for d in found] == [math.prod(case.shape[:-1]), 1]


@pytest.mark.parametrize("case", ROPES, ids=str)
def test_rope_of_the_reference(case: Rope) -> None:
    for heads in (case.hq, case.hkv):
        shape = (1, case.s, heads, case.d)
        attrs: dict[str, Attr] = {"input_pos": case.pos, "interleaved": case.interleaved}
        found = only(single("rope", {"x": shape, "f": (case.d // 2,)}, shape, attrs))
        assert axes(found)["interleaved"] is case.interleaved
        assert number(found, "n") == math.prod(shape) // 2


def test_rope_qkv_update_is_one_dispatch() -> None:
    cache = (1, 64, 3, 64)
    one = single(
        "rope_qkv_update",
        {"qkv": (1, "S", 15 * 64), "f": (32,), "k": cache, "v": cache},
        (1, "S", 9, 64),
        {"input_pos": SymbolAttr("p"), "heads": 9, "kv_heads": 3, "head_dim": 64},
        {"S": (1, 64), "p": (0, 63)},
        mutates=("k", "v"),
        constraints=(Constraint(Op("+", "S", "p"), 64),),
    )
    assert one.shapes() == ((1, "S", 9, 64),)
    assert number(only(one), "n", S=2, p=0) == 2 * 15 * 32


@pytest.mark.parametrize("case", UPDATES, ids=str)
def test_update_cache_of_the_reference(case: Update) -> None:
    one = single(
        "update_cache",
        {"v": (1, case.s, case.h, case.d), "c": (1, case.c, case.h, case.d)},
        None,
        {"input_pos": case.pos},
        mutates=("c",),
    )
    assert number(only(one), "row") == case.h * case.d
