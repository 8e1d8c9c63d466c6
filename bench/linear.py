"""Times every route of a linear layer at the shapes of Llama-3.2-1B and SmolLM2, on one adapter.

Input:  shapes, rows (M), options; a host. Output: a table, and one JSON document as the last line.
Way of the data: `timing` has the method. Weights are random: nothing is exported or downloaded, so
a bare checkout with numpy and jinja2 is enough.

GB/s counts codes and scales once, x and y; beside it stands the ratio to a copy kernel's bandwidth
(its reads and writes), beside GFLOP/s the ratio to a multiply-add loop's in f32, both measured in
the same run.

    python -m bench.linear [--host chromium] [--match TEXT] [--quick] [--overlap] [--tuning auto]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.timing import Peaks, Timer, Timing
from exporter.hosts.host import KINDS, get_host
from runtime_py.errors import FeatureMissingError, TabfireError
from runtime_py.ops.weights import Weight
from runtime_py.schema import Attr, Graph, Node, Symbol, Value
from runtime_py.symbols import Interval

GROUP = 32
MANY = 1024
ROWS = (1, 4, 16, 128, 512, MANY)
HEAD_ROWS = (1, 4)  # of a head's rows a session wants one, or a few
# The ranges for which a session plans its programs: decoding, a short turn, a prompt.
RANGES: tuple[Interval, ...] = ((1, 1), (2, 16), (17, MANY))
COLD_BYTES = 256 << 20  # weights that take turns, several times the cache of a large GPU
MOST_COPIES = 1500
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "f32": {},
    "f16": {"compute": "f16"},
    "f16 tiled": {"compute": "f16", "linear": "tiled"},
    "f16 nibble": {"compute": "f16", "linear": "nibble"},
    "f16 sums": {"compute": "f16", "f16_accumulate_gemm": True},
}


@dataclass(frozen=True)
class Shape:
    """A layer: K in, N out; `gate` makes it gate and up with SiLU, 2 N rows of weight."""

    name: str
    k: int
    n: int
    gate: bool = False
    head: bool = False
    scheme: str = "q4gsw"

    @property
    def weight(self) -> Weight:
        rows = 2 * self.n if self.gate else self.n
        return Weight(self.scheme, GROUP, self.k, rows, "f16", ("codes", "scales"))

    @property
    def weight_bytes(self) -> int:
        return sum(self.weight.row_bytes) * self.weight.rows

    def flops(self, m: int) -> int:
        """Multiplications and additions of M rows."""
        return 2 * m * self.k * self.weight.rows

    def bytes(self, m: int) -> int:
        """Bytes that M rows must move: the weight once, x, y."""
        return self.weight_bytes + 4 * m * (self.k + self.n)

    def rows(self, quick: bool) -> tuple[int, ...]:
        """The M to measure."""
        if self.head:
            return HEAD_ROWS[:1] if quick else HEAD_ROWS
        return (1, 4, 128) if quick else ROWS

    def graph(self) -> Graph:
        """Return the graph of the one layer, M = S."""
        attrs: dict[str, Attr] = {
            "scheme": self.scheme,
            "group": GROUP,
            "in_features": self.k,
            **({"act": "silu"} if self.gate else {}),
        }
        values = {
            "x": Value("x", "f32", (1, "S", self.k)),
            "y": Value("y", "f32", (1, "S", self.n)),
            "codes": Value("codes", "u32", (self.weight.rows, self.weight.words)),
            "scales": Value("scales", "f16", self.weight.scale_shape),
        }
        op = "gate_up_q" if self.gate else "linear_q"
        node = Node("layer", op, ("x", "codes", "scales"), ("y",), attrs)
        return Graph((Symbol("S", 1, MANY),), (), values, {}, {}, (node,), (), ())


SHAPES = (
    Shape("llama1b q, o", 2048, 2048),
    Shape("llama1b k, v", 2048, 512),
    Shape("llama1b qkv", 2048, 3072),
    Shape("llama1b gate up", 2048, 8192, gate=True),
    Shape("llama1b down", 8192, 2048),
    Shape("llama1b head", 2048, 128256, head=True),
    Shape("smollm2 qkv", 576, 960),
    Shape("smollm2 o", 576, 576),
    Shape("smollm2 gate up", 576, 1536, gate=True),
    Shape("smollm2 down", 1536, 576),
    Shape("smollm2 head", 576, 49152, head=True, scheme="q8gsw"),
)
QUICK = ("smollm2 o", "smollm2 gate up")


def measure(
    timer: Timer, shape: Shape, peaks: Peaks, *, overlap: bool, only: Sequence[int] = ()
) -> Iterator[dict[str, Any]]:
    """Yield a row for every M (of `only`) and every set of options that leads to other kernels."""
    copies = max(2, min(MOST_COPIES, -(-COLD_BYTES // shape.weight_bytes)))
    if timer.quick:
        copies = 2
    for m in shape.rows(timer.quick):
        if only and m not in only:
            continue
        ranges = next(span for span in RANGES if m <= span[1])
        seen: set[tuple[str, ...]] = set()
        for name, options in OPTIONS.items():
            try:
                plan = timer.plan(shape.graph(), options, ranges)
            except FeatureMissingError:
                continue
            keys = tuple(str(dispatch.key) for dispatch in plan.dispatches)
            if keys in seen:
                continue
            seen.add(keys)
            found = timer.node(shape.graph(), options, m, ranges, copies=copies, overlap=overlap)
            yield row(shape, m, name, found, peaks, copies)


def row(
    shape: Shape, m: int, options: str, found: Timing, peaks: Peaks, copies: int
) -> dict[str, Any]:
    """Return the figures of one measurement."""
    gflop_s, gb_s = shape.flops(m) / found.us / 1e3, shape.bytes(m) / found.us / 1e3
    return {
        "shape": shape.name,
        "m": m,
        "k": shape.k,
        "n": shape.n,
        "options": options,
        "kernels": found.kernels,
        "keys": found.keys,
        "us": found.us,
        "gflop_s": gflop_s,
        "of_fma": gflop_s / peaks.fma_gflop_s,
        "gb_s": gb_s,
        "of_copy": gb_s / peaks.copy_gb_s,
        "copies": copies,
    }


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the rows as text."""
    head = f"{'shape':16} {'K x N':>13} {'M':>5} {'options':10} {'kernels':26}"
    lines = [f"{head} {'us':>10} {'GFLOP/s':>9} {'/fma':>6} {'GB/s':>8} {'/copy':>6}"]
    for one in rows:
        kernels = " + ".join(one["kernels"])
        size = f"{one['k']} x {one['n']}"
        lines.append(
            f"{one['shape']:16} {size:>13} {one['m']:5} {one['options']:10} {kernels:26}"
            f" {one['us']:10.1f} {one['gflop_s']:9.1f} {one['of_fma']:6.2f} {one['gb_s']:8.1f}"
            f" {one['of_copy']:6.2f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure every shape whose name holds `--match`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--host", choices=KINDS, default="chromium")
    parser.add_argument("--match", default="")
    parser.add_argument("--rows", type=int, nargs="*", default=[], metavar="M", help="these M only")
    parser.add_argument("--quick", action="store_true", help="two small shapes, short runs")
    parser.add_argument("--overlap", action="store_true", help="layers do not wait for each other")
    parser.add_argument("--tuning", choices=("auto", "cpu", "gpu"), default="auto")
    arguments = parser.parse_args()
    timer = Timer(get_host(arguments.host), tuning=arguments.tuning, quick=arguments.quick)
    print({name: timer.hello[name] for name in ("browser", "pyodide")}, timer.hello["adapter"])
    peaks = timer.peaks()
    print(f"peaks, measured: {asdict(peaks)}", flush=True)
    rows: list[dict[str, Any]] = []
    for shape in SHAPES:
        if arguments.match not in shape.name or (arguments.quick and shape.name not in QUICK):
            continue
        try:
            options = {"overlap": arguments.overlap, "only": arguments.rows}
            for one in measure(timer, shape, peaks, **options):
                rows.append(one)
                print(
                    f"{one['shape']} M={one['m']} {one['options']}: {one['us']:.1f} us", flush=True
                )
        except TabfireError as error:
            print(f"{shape.name}: {error.message.splitlines()[0]}", flush=True)
    print(table(rows))
    document = {
        "bench": "linear",
        "adapter": timer.hello["adapter"],
        "browser": timer.hello["browser"],
        "overlap": arguments.overlap,
        "peaks": asdict(peaks),
        "rows": rows,
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
