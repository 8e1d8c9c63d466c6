"""Linear layers and embeddings as dispatches: routes, keys, windows, grids. No browser, no weights."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from runtime_py.errors import OutOfMemoryError
from runtime_py.kernels import KernelLibrary
from runtime_py.ops import registry
from runtime_py.ops.base import DEFAULT_LIMITS, Binding, Caps, Dispatch
from runtime_py.ops.weights import Weight
from runtime_py.plan import Planner
from runtime_py.schema import DTYPE_BYTES, Graph, Node, Symbol, SymbolAttr, Value
from runtime_py.symbols import bounds, evaluate, product
from tests import cases_linear, oracles_linear
from tests.cases_linear import F16, F16_SUMS, PAST, REFERENCE, LinearCase, case_id

LIBRARY = KernelLibrary()
SOFTWARE = Caps(frozenset({"subgroups"}), subgroup_min=4, subgroup_max=4, description="SwiftShader")
GPU = Caps(frozenset({"subgroups"}), subgroup_min=32, subgroup_max=32, vendor="nvidia")
PLAIN = Caps(description="a GPU without subgroups")
DEVICES = {"software": SOFTWARE, "gpu": GPU, "plain": PLAIN}
CASES = (*REFERENCE, *PAST)


def limited(caps: Caps, **limits: int) -> Caps:
    return dataclasses.replace(caps, limits=limits)


def graph_of(case: LinearCase) -> Graph:
    weight = Weight(
        case.scheme, case.group, case.k, case.rows, case.scale_dtype, ("codes", "scales")
    )
    shape = weight.scale_shape if case.scheme != "f32" else ()
    return cases_linear.graph(case, weight.words, shape)


def planned(
    case: LinearCase, caps: Caps, least: int, most: int, **options: Any
) -> tuple[Planner, list[Dispatch]]:
    """Return the planner and the dispatches of a case for `least` to `most` rows, with its options."""
    graph = graph_of(case)
    (node,) = graph.nodes
    assert registry[node.op].check(graph, node) is None
    assert registry[node.op].shape(graph, node) == (graph.values["y"].shape,)
    planner = Planner(graph, caps, {**case.options, **options}, {"S": (least, most)})
    return planner, planner.dispatches()


def kernels(dispatches: list[Dispatch]) -> list[str]:
    return [d.key.kernel for d in dispatches]


def check_dispatch(planner: Planner, dispatch: Dispatch) -> None:
    """Check what WebGPU and the kernel's header demand of any dispatch."""
    LIBRARY.check(dispatch.key)
    text = LIBRARY.render(dispatch.key)
    assert text.count("var<storage") == len(dispatch.bindings)
    assert text.count("@binding") == len(dispatch.bindings) + 1
    limit = planner.caps.limit("maxStorageBufferBindingSize")
    for binding in dispatch.bindings:
        value = planner.value(binding.value)
        size = planner.upper(product(value.shape)) * DTYPE_BYTES[value.dtype]
        assert binding.offset_bytes % 256 == 0
        assert (binding.size_bytes or size) <= limit
        assert binding.offset_bytes + (binding.size_bytes or size) <= max(size, 4)
    for side in dispatch.grid:
        least, most = bounds(side, planner.ranges)
        assert least > 0
        assert most <= planner.caps.limit("maxComputeWorkgroupsPerDimension")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_every_case_lowers_to_legal_dispatches(case: LinearCase, device: str) -> None:
    for least in {1, case.m}:
        planner, dispatches = planned(case, DEVICES[device], least, case.m)
        for dispatch in dispatches:
            check_dispatch(planner, dispatch)


@pytest.mark.parametrize(
    ("device", "most", "kernel"),
    [
        ("gpu", 1, "linear_gemv"), ("gpu", 15, "linear_gemv"), ("gpu", 16, "linear_gemv"),
        ("gpu", 17, "linear_gemm"), ("plain", 1, "linear_gemv"), ("plain", 512, "linear_gemm"),
        ("software", 1, "linear_quad_gemv"), ("software", 4, "linear_quad_gemv"),
        ("software", 5, "linear_quad_gemm"), ("software", 512, "linear_quad_gemm"),
    ],
)  # fmt: skip
def test_the_route_follows_the_device_and_the_greatest_m(
    device: str, most: int, kernel: str
) -> None:
    case = LinearCase("c", most, 576, 960, 32)
    assert kernels(planned(case, DEVICES[device], 1, most)[1]) == [kernel]
    normed = dataclasses.replace(case, norm=True)
    before = [] if "gemv" in kernel else ["rms_norm"]
    assert kernels(planned(normed, DEVICES[device], 1, most)[1]) == [*before, kernel]


def test_one_dispatch_a_layer_in_decode_and_no_subgroups_unless_offered() -> None:
    mlp = LinearCase("mlp", 1, 576, 1536, 32, "q4gaw", norm=True, act="silu")
    for caps in DEVICES.values():
        assert len(planned(mlp, caps, 1, 1)[1]) == 1
    for most in (1, 9, 64):
        for dispatch in planned(mlp, PLAIN, 1, most)[1]:
            assert "enable subgroups" not in LIBRARY.render(dispatch.key)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("most", [1, 2, 16, 512])
@pytest.mark.parametrize("options", [{}, F16, F16_SUMS], ids=["f32", "f16", "f16-sums"])
def test_workgroup_memory_fits_the_default_limit(
    device: str, most: int, options: dict[str, Any]
) -> None:
    for act, norm in (("none", True), ("silu", True), ("none", False)):
        for k in (64, 576, 8192):
            case = LinearCase("c", most, k, 4096, 32, act=act, norm=norm, options=options)
            for dispatch in planned(case, DEVICES[device], 1, most)[1]:
                assert workgroup_bytes(LIBRARY.render(dispatch.key)) <= 16384


def workgroup_bytes(text: str) -> int:
    total = 0
    for line in text.splitlines():
        if line.startswith("var<workgroup>"):
            kind, count = line.split("array<")[1].split(">;")[0].rsplit(", ", 1)
            total += int(count) * (16 if kind.startswith("vec4") or kind == "Chunk" else 4)
    return total


@pytest.mark.parametrize("scheme", ["q4gsw", "q4gaw", "q8gsw", "q8gaw", "f32"])
@pytest.mark.parametrize("scale_dtype", ["f16", "f32"])
def test_a_weight_past_one_binding_is_read_in_windows(scheme: str, scale_dtype: str) -> None:
    k = 96
    case = LinearCase("c", 1, k, 1000, k if scheme == "f32" else 32, scheme, bias=True,
                      scale_dtype=scale_dtype)  # fmt: skip
    caps = limited(SOFTWARE, maxStorageBufferBindingSize=30_000)
    planner, dispatches = planned(case, caps, 1, 1)
    assert len(dispatches) > 1
    covered: list[int] = []
    for dispatch in dispatches:
        check_dispatch(planner, dispatch)
        fields = {p.name: p.value for p in dispatch.params}
        covered += range(
            int(str(fields["first"])), int(str(fields["first"])) + int(str(fields["cols"]))
        )
    assert covered == list(range(1000))


def test_gate_and_up_in_different_windows_are_computed_apart() -> None:
    case = LinearCase("c", 7, 96, 500, 32, act="silu", norm=True)
    caps = limited(SOFTWARE, maxStorageBufferBindingSize=30_000)
    planner, dispatches = planned(case, caps, 1, 7)
    assert kernels(dispatches) == ["rms_norm", "linear_quad_gemm", "linear_quad_gemm", "gated"]
    for dispatch in dispatches:
        check_dispatch(planner, dispatch)


def test_the_reference_head_fits_one_default_binding_and_two_of_half_the_size() -> None:
    weight = Weight("q4gsw", 32, 2048, 128256, "f32", ("codes", "scales"))
    limit = DEFAULT_LIMITS["maxStorageBufferBindingSize"]
    assert weight.windows(limit) == ((0, 128256),)
    assert weight.windows(limit // 2) == ((0, 65536), (65536, 62720))


def test_rows_of_x_and_y_past_one_binding_are_computed_in_windows() -> None:
    case = LinearCase("c", 300, 64, 128, 32, residual=True)
    caps = limited(SOFTWARE, maxStorageBufferBindingSize=70_000)
    planner, dispatches = planned(case, caps, 1, 300)
    starts = [d.bindings[-1].offset_bytes // (4 * 128) for d in dispatches]
    assert starts == [0, 128, 256]
    for dispatch, start in zip(dispatches, starts, strict=True):
        check_dispatch(planner, dispatch)
        rows = dispatch.params[0].value
        assert not isinstance(rows, float)
        assert evaluate(rows, {"S": 5}) == 5 - start


def test_grids_fold_past_the_limit_of_a_dimension() -> None:
    case = LinearCase("c", 1, 64, 5000, 32)
    for caps in DEVICES.values():
        small = limited(caps, maxComputeWorkgroupsPerDimension=64)
        planner, (dispatch,) = planned(case, small, 1, 1)
        check_dispatch(planner, dispatch)
        x, y, _ = (evaluate(side, {"S": 1}) for side in dispatch.grid)
        axes = dict(dispatch.key.axes)
        teams = 4 if "quad" in dispatch.key.kernel else 1
        if axes.get("reduce") == "team":
            teams = int(axes["threads"]) // int(axes["lanes"])
        per_group = int(axes["cols"]) * teams
        assert x * y * per_group >= 5000 > (x * y - y) * per_group


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"group": 12}, "multiple of 8"),
        ({"scheme": "q3"}, "scheme 'q3'"),
        ({"in_features": 95}, "in_features 95"),
        ({"group": 0}, "positive"),
        ({"group": 8}, "expected [64, 12]"),
    ],
)
def test_attributes_that_do_not_suit_are_refused(changes: dict[str, Any], words: str) -> None:
    graph = graph_of(LinearCase("c", 1, 96, 64, 32))
    (node,) = graph.nodes
    bad = dataclasses.replace(node, attrs={**node.attrs, **changes})
    assert words in str(registry["linear_q"].check(graph, bad))


def test_shapes_and_sizes_that_do_not_suit_are_refused() -> None:
    graph = graph_of(LinearCase("c", 1, 96, 64, 32, bias=True))
    (node,) = graph.nodes
    for name, value, words in (
        ("bias", Value("bias", "f32", (63,)), "bias"),
        ("x", Value("x", "f16", (1, "S", 96)), "cast to f32"),
        ("x", Value("x", "f32", (1, "S", "S")), "fixed size"),
        ("codes", Value("codes", "u32", (46341, 46341)), "expected [46341, 12]"),
    ):
        values = {**graph.values, name: value}
        reason = registry["linear_q"].check(dataclasses.replace(graph, values=values), node)
        assert words in str(reason), name


def test_a_weight_whose_words_cannot_be_indexed_is_refused() -> None:
    graph = graph_of(LinearCase("c", 1, 46341 * 8, 46341, 32))
    assert "cannot be indexed" in str(registry["linear_q"].check(graph, graph.nodes[0]))


def test_a_row_larger_than_a_binding_is_an_error() -> None:
    with pytest.raises(OutOfMemoryError, match="64 rows of codes"):
        Weight("q4gsw", 32, 4096, 128, "f16", ("codes", "scales")).windows(64 * 2048 - 1)


@pytest.mark.parametrize("case", [c for c in PAST if c.scheme != "f32"], ids=case_id)
def test_the_packed_constants_have_the_layout_that_kernels_read(case: LinearCase) -> None:
    data = cases_linear.arrays(dataclasses.replace(case, m=1))
    weight = Weight(
        case.scheme, case.group, case.k, case.rows, case.scale_dtype, ("codes", "scales")
    )
    assert data["codes"].shape == (case.rows, weight.words)
    assert data["scales"].shape == weight.scale_shape
    values = oracles_linear.dequantise(
        data["codes"], data["scales"], case.scheme, case.group, case.k
    )
    assert np.abs(values).max() <= 1.1 / np.sqrt(case.k)


def embedding_graph(op: str, inputs: tuple[str, ...], **attrs: Any) -> Graph:
    values = {
        "ids": Value("ids", "i32", (1, "S")),
        "codes": Value("codes", "u32", (300, 24)),
        "scales": Value("scales", "f16", (300, 4)),
        "weight": Value("weight", "f32", (300, 63)),
        "x": Value("x", "f32", (1, "S", 64)),
        "logits": Value("logits", "f32", (1, "S", 49157)),
        "y": Value("y", "f32", (1, "S", 96 if op == "embedding_q" else 63)),
    }
    node = Node("n", op, inputs, ("y",), attrs)
    return Graph((Symbol("S", 1, 64), Symbol("L", 1, 64)), (), values, {}, {}, (node,), (), ())


@pytest.mark.parametrize("limit", [DEFAULT_LIMITS["maxStorageBufferBindingSize"], 20_000])
def test_embedding_rows_are_read_from_the_window_that_holds_them(limit: int) -> None:
    for graph in (
        embedding_graph(
            "embedding_q", ("ids", "codes", "scales"), scheme="q8gsw", group=32, width=96
        ),
        embedding_graph("embedding", ("ids", "weight")),
    ):
        (node,) = graph.nodes
        assert registry[node.op].check(graph, node) is None
        assert registry[node.op].shape(graph, node) == (graph.values["y"].shape,)
        planner = Planner(graph, limited(GPU, maxStorageBufferBindingSize=limit), {}, {"S": (1, 1)})
        dispatches = planner.dispatches()
        spans = [(d.params[1].value, d.params[2].value) for d in dispatches]
        assert sum(int(str(rows)) for _, rows in spans) == 300
        assert (len(dispatches) > 1) == (limit < 2**20)
        for dispatch in dispatches:
            check_dispatch(planner, dispatch)


def test_ids_of_another_type_are_refused() -> None:
    graph = embedding_graph("embedding", ("x", "weight"))
    assert "expected i32" in str(registry["embedding"].check(graph, graph.nodes[0]))


def test_argmax_takes_two_stages_for_a_vocabulary_and_one_for_a_short_row() -> None:
    for source, stages in (("logits", 2), ("x", 1)):
        graph = embedding_graph("argmax", (source,))
        (node,) = graph.nodes
        assert registry["argmax"].check(graph, node) is None
        assert registry["argmax"].shape(graph, node) == ((1, "S"),)
        planner = Planner(graph, SOFTWARE, {}, {})
        dispatches = planner.dispatches()
        assert kernels(dispatches) == ["argmax"] * stages
        for dispatch in dispatches:
            LIBRARY.check(dispatch.key)
        assert dispatches[-1].bindings[-1] == Binding("y", "read_write")


def test_last_rows_is_a_copy_of_the_end() -> None:
    graph = embedding_graph("last_rows", ("x",), rows=SymbolAttr("L"))
    (node,) = graph.nodes
    assert registry["last_rows"].check(graph, node) is None
    assert registry["last_rows"].shape(graph, node) == ((1, "L", 64),)
