"""bench/linear.py: its counts by hand, which options it measures, and one kernel timed for real."""

from __future__ import annotations

from typing import Any

import pytest

from bench import linear, timing
from bench.linear import Shape
from bench.timing import Peaks, Timer, Timing
from exporter.hosts import get_host
from runtime_py.errors import ShaderError
from runtime_py.kernels import KernelLibrary
from runtime_py.ops.base import Caps
from runtime_py.symbols import Interval

PEAKS = Peaks(copy_gb_s=100.0, copy_bytes=1, fma_gflop_s=1000.0, fma_f16_gflop_s=None)
F16_GPU = Caps(frozenset({"shader-f16", "subgroups"}), subgroup_min=32, subgroup_max=32)


class Planning(Timer):
    """A timer without a host: it plans, and every layer takes 10 us."""

    def __init__(self, caps: Caps) -> None:
        self.caps, self.quick, self.tuning, self.library = caps, False, "auto", KernelLibrary()

    def node(self, graph: Any, options: Any, rows: int, ranges: Interval, **_: Any) -> Timing:
        keys = [d.key for d in self.plan(graph, options, ranges).dispatches]
        return Timing(10.0, tuple(k.kernel for k in keys), tuple(str(k) for k in keys))


def measured(caps: Caps, shape: Shape) -> list[dict[str, Any]]:
    return list(linear.measure(Planning(caps), shape, PEAKS, overlap=False))


def test_bytes_and_flops_by_hand() -> None:
    shape = Shape("by hand", 64, 32)
    codes, scales = 32 * 64 // 2, 32 * 2 * 2
    assert shape.weight_bytes == codes + scales
    assert shape.bytes(3) == codes + scales + 4 * 3 * (64 + 32)
    assert shape.flops(3) == 2 * 3 * 64 * 32
    gate = Shape("gate", 64, 32, gate=True)
    assert gate.weight_bytes == 2 * shape.weight_bytes
    assert gate.flops(3) == 2 * shape.flops(3)
    found = Timing(10.0, ("linear_gemv",), ("key",))
    row = linear.row(shape, 3, "f32", found, PEAKS, 2)
    assert row["gflop_s"] == pytest.approx(shape.flops(3) / 10e-6 / 1e9)
    assert row["gb_s"] == pytest.approx(shape.bytes(3) / 10e-6 / 1e9)
    assert row["of_copy"] == pytest.approx(row["gb_s"] / 100)
    assert row["of_fma"] == pytest.approx(row["gflop_s"] / 1000)


@pytest.mark.parametrize("shape", linear.SHAPES, ids=lambda shape: shape.name)
def test_every_set_of_options_leads_to_other_kernels(shape: Shape) -> None:
    rows = measured(F16_GPU, shape)
    assert {row["m"] for row in rows} == set(shape.rows(quick=False))
    runs = [(row["m"], row["keys"]) for row in rows]
    assert len(set(runs)) == len(runs)
    asked = {row["options"] for row in rows if row["m"] == rows[-1]["m"]}
    assert {"f32", "f16"} <= asked
    if not shape.head:
        assert {"f16 nibble", "f16 sums"} <= asked


def test_an_adapter_without_f16_is_measured_in_f32_only() -> None:
    rows = measured(Caps(frozenset({"subgroups"})), linear.SHAPES[0])
    assert {row["options"] for row in rows} == {"f32"}


def test_the_table_has_a_line_a_row() -> None:
    rows = measured(F16_GPU, linear.SHAPES[-1])
    lines = linear.table(rows).splitlines()
    assert len(lines) == 1 + len(rows)
    assert all(line.startswith("smollm2 head") for line in lines[1:])


@pytest.fixture(scope="module")
def timer() -> Timer:
    timer = Timer(get_host("chromium"), quick=True)
    timer.aim_us = 1000.0
    return timer


@pytest.mark.gpu
def test_a_layer_is_timed(timer: Timer) -> None:
    shape = Shape("tiny", 64, 48)
    found = timer.node(shape.graph(), {}, 5, (2, 16), copies=2)
    assert found.us > 0
    assert found.kernels == tuple(
        d.key.kernel for d in timer.plan(shape.graph(), {}, (2, 16)).dispatches
    )


WRITES = "@group(0) @binding(0) var<storage, read_write> b: array<f32>;\n"
MAIN = "@compute @workgroup_size(1) fn main() {{ {} }}"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("b[0] = 0.0;", "computed"),
        ("b[0] = b[1] / b[2];", "computed"),
        ("b[0] = missing;", "missing"),
    ],
    ids=["zeros", "no number", "does not compile"],
)
def test_a_kernel_that_computes_nothing_is_no_measurement(
    timer: Timer, body: str, message: str
) -> None:
    buffers: list[dict[str, Any]] = [timing.buffer("b", 64, "zeros")]
    code = WRITES + MAIN.format(body)
    step = timing.dispatch("broken", code, [timing.binding("b", "read_write")], [1, 1, 1])
    with pytest.raises(ShaderError, match=message):
        timer.measure(buffers, [step], "b")
