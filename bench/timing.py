"""Times dispatches on a real adapter, without a bundle, and the adapter's peaks.

Input:  a graph of one node, options, M; or WGSL. Output: microseconds a round.
Way of the data: `plan` + `kernels` (the very dispatches that a session would run) -> timing ->
web/host/timing.js -> `linear`.

Numbers are random. A run is one compute pass of many rounds between two timestamps. Rounds take
turns at copies of the weights, together larger than a cache, and write the same output: each waits
for the one before, as layers do (`overlap`: each has an output of its own, and they run side by
side). So a round's time is that of one layer in a step: its latency, where that is more than its
work.

    timer = Timer(get_host("chromium"))
    timer.peaks().copy_gb_s
"""

from __future__ import annotations

import math
import statistics
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from exporter.hosts.host import Host
from runtime_py import symbols
from runtime_py.errors import HostError, ShaderError, TabfireError
from runtime_py.graph import value_bytes
from runtime_py.kernels import KernelLibrary
from runtime_py.memory import SlotPool
from runtime_py.ops.base import Caps, Dispatch
from runtime_py.options import SessionOptions
from runtime_py.plan import Plan, make_plan
from runtime_py.schema import Graph
from runtime_py.symbols import Interval

FEATURES = ("shader-f16", "subgroups", "timestamp-query", "chromium-experimental-subgroup-matrix")
KINDS = {"u32": "<I", "i32": "<i", "f32": "<f"}
FILLS = {"f32": "numbers", "f16": "halves"}
TIMEOUT_S = 600.0
SETTLE_MS = 300  # a GPU that was idle needs a while to reach its clock; a CPU adapter has none

COPY = """
@group(0) @binding(0) var<storage, read> a: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> b: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let stride = groups.x * 256;
  for (var i = id.x; i < arrayLength(&b); i += stride) { b[i] = a[i]; }
}
"""
COPY_GROUPS = 16384
# Chains of 4 lanes a thread: enough to hide the latency of a multiply-add.
FMA_CHAINS = 4
FMA = """
{enable}
@group(0) @binding(0) var<storage, read_write> b: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
  let unknown = {T}(b[id.x]);  // next to nothing, but no compiler can tell and fold the loop
  let seed = vec4<{T}>({T}(f32(id.x & 7u) * 0.01), {T}(0.25), {T}(0.5), {T}(0.75)) + unknown;
  let factor = vec4<{T}>({T}(0.5)) + unknown;
{starts}
  for (var i = 0u; i < {steps}u; i++) {{
{lines}
  }}
  let sum = {sum};
  b[id.x] = 1e-20 * f32(sum.x + sum.y + sum.z + sum.w);
}}
"""


@dataclass(frozen=True)
class Peaks:
    """What small kernels reach on the adapter: bytes read plus written, and 2 flops a
    multiply-add. `fma_f16_gflop_s` is None without shader-f16.
    """

    copy_gb_s: float
    copy_bytes: int
    fma_gflop_s: float
    fma_f16_gflop_s: float | None


@dataclass(frozen=True)
class Timing:
    """Microseconds a round, and the kernels that it ran."""

    us: float
    kernels: tuple[str, ...]
    keys: tuple[str, ...]


class Timer:
    """Times kernels in one host. `quick` measures less, to see that all works."""

    def __init__(self, host: Host, *, tuning: str = "auto", quick: bool = False) -> None:
        self.host, self.quick, self.tuning = host, quick, tuning
        self.hello = host.call("hello")[0]
        self.caps = caps_of(self.hello["adapter"], tuning)
        self.library = KernelLibrary()
        self.aim_us = 2e4 if quick else 5e4

    def peaks(self) -> Peaks:
        """Measure the adapter's copy bandwidth and its multiply-adds."""
        limit = self.caps.limit("maxStorageBufferBindingSize")
        size = min(limit, (32 if self.quick else 512) << 20)
        buffers = [buffer("a", size, "bits"), buffer("b", size, "zeros")]
        bindings = [binding("a", "read"), binding("b", "read_write")]
        grid = [min(COPY_GROUPS, size // 4096), 1, 1]
        copy_us = self.measure(buffers, [dispatch("copy", COPY, bindings, grid)], "b")
        f16 = self._fma("f16") if self.caps.has_f16 else None
        return Peaks(2 * size / copy_us / 1e3, size, self._fma("f32"), f16)

    def node(
        self,
        graph: Graph,
        options: Mapping[str, Any],
        rows: int,
        ranges: Interval,
        *,
        copies: int,
        overlap: bool = False,
    ) -> Timing:
        """Return the time of the one node of `graph` at S = `rows`, planned for S in `ranges`.

        Raises the typed error of planning; `ShaderError` if a kernel does not compile, or if what
        it computed is zeros or no numbers.
        """
        plan = self.plan(graph, options, ranges)
        buffers = [
            buffer(
                name,
                _upper_bytes(plan, name),
                FILLS.get(plan.values[name].dtype, "bits"),
                copies if name in ("codes", "scales") or (overlap and name == "y") else 1,
            )
            for name in sorted({plan.root(b.value) for d in plan.dispatches for b in d.bindings})
        ]
        dispatches = [self._spell(d, {"S": rows}) for d in plan.dispatches]
        us = self.measure(buffers, dispatches, "y", least_rounds=copies)
        keys = [d.key for d in plan.dispatches]
        return Timing(us, tuple(k.kernel for k in keys), tuple(str(k) for k in keys))

    def plan(self, graph: Graph, options: Mapping[str, Any], ranges: Interval) -> Plan:
        """Return the plan of `graph` on this adapter."""
        chosen, _ = SessionOptions.parse({**options, "tuning": self.tuning}).resolve(self.caps)
        return make_plan(graph, self.caps, asdict(chosen), {"S": ranges}, SlotPool())

    def measure(
        self,
        buffers: Sequence[dict[str, Any]],
        dispatches: Sequence[dict[str, Any]],
        sample: str,
        *,
        least_rounds: int = 1,
    ) -> float:
        """Return the median microseconds of a round, in passes that are long enough to time."""
        job = {
            "features": [name for name in FEATURES if name in self.caps.features],
            "buffers": list(buffers),
            "dispatches": list(dispatches),
            "sample": sample,
        }
        first = {**job, "rounds": least_rounds, "runs": 2, "settle_ms": 0}
        once = self._run(first)[-1] / least_rounds
        whole = math.ceil(self.aim_us / max(once, 1.0) / least_rounds)
        rounds = least_rounds * max(1, min(whole, 4096 // least_rounds))
        settle_ms = 0 if self.caps.is_software else SETTLE_MS
        runs = 3 if self.quick else 6
        times = self._run({**job, "rounds": rounds, "runs": runs, "settle_ms": settle_ms})
        return statistics.median(times[1:]) / rounds

    def _run(self, job: dict[str, Any]) -> list[float]:
        """Return the microseconds of each run."""
        try:
            found = self.host.call("time_kernels", job, timeout_s=TIMEOUT_S)[0]
        except HostError:
            raise
        except TabfireError as error:
            labels = ", ".join(d["label"] for d in job["dispatches"])
            raise ShaderError(f"{labels}: {error.message}") from error
        sample = found["sample"]
        if None in sample or not any(sample):
            raise ShaderError(f"{job['dispatches'][-1]['label']} computed {sample[:4]}")
        return [ns / 1e3 for ns in found["ns"]]

    def _spell(self, dispatch: Dispatch, values: Mapping[str, int]) -> dict[str, Any]:
        def number(value: Any) -> Any:
            return value if isinstance(value, float) else symbols.evaluate(value, values)

        words = b"".join(struct.pack(KINDS[p.kind], number(p.value)) for p in dispatch.params)
        return {
            "label": str(dispatch.key),
            "code": self.library.render(dispatch.key),
            "bindings": [
                {
                    "buffer": b.value,
                    "access": b.access,
                    "offset": b.offset_bytes,
                    "size": b.size_bytes,
                }
                for b in dispatch.bindings
            ],
            "params": list(struct.unpack(f"<{len(words) // 4}I", words)),
            "grid": [number(side) for side in dispatch.grid],
        }

    def _fma(self, dtype: str) -> float:
        groups, steps = (256, 64) if self.quick else (8192, 512)
        chains = range(FMA_CHAINS)
        code = FMA.format(
            T=dtype,
            enable="enable f16;" if dtype == "f16" else "",
            steps=steps,
            starts="\n".join(f"  var s{k} = seed + vec4<{dtype}>({dtype}({k}));" for k in chains),
            lines="\n".join(f"    s{k} = fma(s{k}, factor, seed);" for k in chains),
            sum=" + ".join(f"s{k}" for k in chains),
        )
        buffers = [buffer("b", 4 * 256 * groups, "zeros")]
        step = dispatch(f"fma {dtype}", code, [binding("b", "read_write")], [groups, 1, 1])
        us = self.measure(buffers, [step], "b")
        return 2 * 4 * FMA_CHAINS * steps * 256 * groups / us / 1e3


def caps_of(adapter: Mapping[str, Any], tuning: str) -> Caps:
    """Return the caps of an adapter as `hello` describes it."""
    low, high = adapter["subgroup_sizes"]
    features = frozenset(adapter["features"])
    return Caps(
        features=features,
        limits=adapter["limits"],
        subgroup_min=low,
        subgroup_max=high,
        vendor=adapter["vendor"],
        architecture=adapter["architecture"],
        description=adapter["description"],
        subgroup_matrix=adapter["subgroup_matrix"],
        tuning=tuning,
    )


def _upper_bytes(plan: Plan, name: str) -> int:
    value = plan.values[name]
    return value_bytes(value, math.prod(symbols.bounds(dim, plan.ranges)[1] for dim in value.shape))


def buffer(name: str, size: int, fill: str, copies: int = 1) -> dict[str, Any]:
    """Return a `BufferSpec` of web/host/timing.js."""
    return {"name": name, "bytes": size, "fill": fill, "copies": copies}


def binding(name: str, access: str) -> dict[str, Any]:
    """Return a `BindingSpec` of web/host/timing.js over a whole buffer."""
    return {"buffer": name, "access": access, "offset": 0, "size": None}


def dispatch(
    label: str, code: str, bindings: Sequence[dict[str, Any]], grid: Sequence[int]
) -> dict[str, Any]:
    """Return a `DispatchSpec` of web/host/timing.js without parameters."""
    return {
        "label": label,
        "code": code,
        "bindings": list(bindings),
        "params": [],
        "grid": list(grid),
    }
