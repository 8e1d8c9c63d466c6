"""Where attention takes over the rotation before it, and what becomes of the plan. No browser."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from runtime_py.debug import with_every_value
from runtime_py.memory import SlotPool
from runtime_py.ops import attention_split
from runtime_py.ops.attention_split import DecodeTuning
from runtime_py.ops.base import Dispatch
from runtime_py.plan import make_plan
from runtime_py.reach import ALWAYS, output_bit
from runtime_py.schema import Graph, Node, Value
from runtime_py.symbols import Interval
from tests.lowering import GPU, LIBRARY, SOFTWARE, workgroup_bytes
from tests.rotary_decode import Pair, graph, lower

LLAMA = Pair("llama", 9, 3, 64, 2048)
APART = ["rope_qkv_update", "attention_decode", "attention_combine"]
MERGED = APART[1:]


def kernels(found: Sequence[Dispatch]) -> list[str]:
    return [dispatch.key.kernel for dispatch in found]


def test_a_step_of_one_token_is_a_dispatch_shorter() -> None:
    _, found = lower(graph(LLAMA))
    assert kernels(found) == MERGED
    assert kernels(lower(graph(LLAMA, apart=True))[1]) == APART
    first = found[0]
    assert first.node == "attend"
    assert [(b.value, b.access) for b in first.bindings[:4]] == [
        ("qkv", "read"), ("inv_freq", "read"), ("k", "read_write"), ("v", "read_write"),
    ]  # fmt: skip
    assert "rotates q and k" in first.reason


@pytest.mark.parametrize("interleaved", [False, True])
def test_the_rotation_is_the_nodes(interleaved: bool) -> None:
    pair = Pair("part", 6, 2, 40, 300, 16, interleaved, magnitude=1.25)
    first = lower(graph(pair))[1][0]
    axes, params = dict(first.key.axes), {p.name: p.value for p in first.params}
    assert axes["rotary"] == ("interleaved" if interleaved else "half")
    assert axes["rotary_dim"] == 16
    assert params["magnitude"] == 1.25


Change = Callable[[Graph], Graph]


def attend(**changes: Any) -> Change:
    """Return a change of the attention node."""

    def change(given: Graph) -> Graph:
        turn, node = given.nodes
        return dataclasses.replace(given, nodes=(turn, dataclasses.replace(node, **changes)))

    return change


def between(given: Graph) -> Graph:
    """Another node between the two; it reads neither."""
    turn, node = given.nodes
    values = {**given.values, "w": Value("w", "f32", (4,))}
    other = Node("other", "add", ("inv_freq", "inv_freq"), ("w",))
    return dataclasses.replace(given, nodes=(turn, other, node), values=values)


def reader(given: Graph) -> Graph:
    """A node behind attention that reads the rotated q as well."""
    values = {**given.values, "w": given.values["q"]}
    other = Node("other", "add", ("q", "y"), ("w",))
    return dataclasses.replace(given, nodes=(*given.nodes, other), values=values)


def other_caches(given: Graph) -> Graph:
    values = {**given.values, "k2": given.values["k"]}
    return attend(inputs=("q", "k2", "v"))(dataclasses.replace(given, values=values))


KEPT_APART: Mapping[str, tuple[Change, Interval]] = {
    "q is an output": (with_every_value, (1, 1)),
    "q has another reader": (reader, (1, 1)),
    "q is the mask as well": (attend(inputs=("q", "k", "v", "q")), (1, 1)),
    "a node between": (between, (1, 1)),
    "other caches": (other_caches, (1, 1)),
    "caches the wrong way round": (attend(inputs=("q", "v", "k")), (1, 1)),
    "another position": (attend(attrs={"input_pos": LLAMA.cmax - 1}), (1, 1)),
    "two tokens": (lambda given: given, (2, 2)),
    "one or two tokens": (lambda given: given, (1, 2)),
}


@pytest.mark.parametrize("why", KEPT_APART)
def test_what_keeps_them_apart(why: str) -> None:
    change, tokens = KEPT_APART[why]
    ranges = {"S": tokens, "pos": (0, LLAMA.cmax - tokens[1])}
    found = make_plan(change(graph(LLAMA)), GPU, {}, ranges, SlotPool()).dispatches
    assert [kernel for kernel in kernels(found) if kernel in APART] == APART


@pytest.mark.parametrize(
    ("pair", "kernel"),
    [
        (Pair("odd_half", 8, 8, 80, 300, 20), "attention_decode"),
        (Pair("odd_width", 4, 2, 12, 300, 8), "attention_decode"),
        (Pair("wide", 4, 2, 256, 300), "attention_split"),
        (Pair("no_vectors", 4, 2, 6, 300), "attention_split"),
    ],
    ids=lambda one: getattr(one, "name", one),
)
def test_widths_that_stay_apart(pair: Pair, kernel: str) -> None:
    assert kernels(lower(graph(pair))[1]) == ["rope_qkv_update", kernel, "attention_combine"]


def test_routes_that_stay_apart() -> None:
    assert kernels(lower(graph(LLAMA), caps=SOFTWARE)[1])[0] == "rope_qkv_update"
    plain = lower(graph(LLAMA), options={"attention": "materialized"})[1]
    assert kernels(plain)[:2] == ["rope_qkv_update", "attention_scores"]


def test_the_rotated_q_takes_no_memory_and_the_caches_are_written_in_every_step() -> None:
    for apart in (False, True):
        options: dict[str, object] = {"kv_dtype": "f16"}
        ranges = {"S": (1, 1)}
        plan = make_plan(graph(LLAMA, apart=apart), GPU, options, ranges, SlotPool())
        assert ("q" in plan.places) is apart
        writes, *others = plan.serves
        assert writes & ALWAYS
        assert writes & output_bit(0)
        assert not any(bits & ALWAYS for bits in others)
        cache = dict(next(d for d in plan.dispatches if d.node == "attend").key.axes)["cache"]
        assert cache == "f16"


def test_a_mask_still_fits_the_default_number_of_buffers() -> None:
    _, found = lower(graph(Pair("masked", 6, 2, 64, 300, mask="additive")))
    assert kernels(found) == MERGED
    assert len(found[0].bindings) == 7


@pytest.mark.parametrize("d", [8, 16, 40, 64, 80, 96, 128])
@pytest.mark.parametrize("heads", [1, 3, 4, 8, 11])
def test_the_tuning_counts_the_bytes_of_the_text(d: int, heads: int) -> None:
    planner, found = lower(graph(Pair("bytes", heads, 1, d, 300)))
    axes: dict[str, Any] = dict(found[0].key.axes)
    tuning = DecodeTuning(axes["heads"], 64, axes["threads"], axes["tile"])
    assert workgroup_bytes(LIBRARY.render(found[0].key)) == tuning.workgroup_bytes(d)
    assert tuning.workgroup_bytes(d) <= attention_split.WORKGROUP_BYTES
    assert planner.scratches
