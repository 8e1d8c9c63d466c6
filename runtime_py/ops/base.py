"""What an operator is: one row of the registry, and what its lowering hands to the planner.

Input:  a node of the graph, the device's capabilities, the session's options, the ranges of a
program.
Output: `Dispatch` records, pure data: which kernel key, which bindings, which parameters, which
grid.
Way of the data: `graph` -> ops -> `plan`. Read by the exporter too (`check`), so nothing here knows
a device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from runtime_py.schema import Graph, Node, Value
from runtime_py.symbols import Expr, Interval, Shape

Axis: TypeAlias = "int | float | str | bool"


@dataclass(frozen=True)
class KernelKey:
    """A template of `wgsl/` and the values of its axes; equal keys share one pipeline."""

    kernel: str
    axes: tuple[tuple[str, Axis], ...]

    def __str__(self) -> str:
        return self.kernel + "(" + ", ".join(f"{name}={value}" for name, value in self.axes) + ")"


def key(kernel: str, **axes: Axis) -> KernelKey:
    """Return the key of `kernel` at `axes`, independent of the order in which they are given."""
    return KernelKey(kernel, tuple(sorted(axes.items())))


@dataclass(frozen=True)
class Binding:
    """A storage buffer of a dispatch: a value (or scratch) name, how it is used, an optional window
    in bytes."""

    value: str
    access: str = "read"  # "read" or "read_write"
    offset_bytes: int = 0
    size_bytes: int | None = None


@dataclass(frozen=True)
class Param:
    """One 4-byte field of the kernel's uniform `Params`, in order; `kind` is u32, i32 or f32."""

    name: str
    kind: str
    value: Expr | float


@dataclass(frozen=True)
class Dispatch:
    """One call of a kernel. Bindings are @binding(0..n-1) in order; `Params`, if any, is
    @binding(n)."""

    key: KernelKey
    bindings: tuple[Binding, ...]
    grid: tuple[Expr, Expr, Expr]
    params: tuple[Param, ...] = ()
    reason: str = ""
    node: str = ""


@dataclass(frozen=True)
class Caps:
    """What the device offers, as plain data (`wgpu` limit names, feature names, subgroup sizes)."""

    features: frozenset[str] = frozenset()
    limits: Mapping[str, int] = field(default_factory=dict)
    subgroup_min: int = 0
    subgroup_max: int = 0
    vendor: str = ""
    architecture: str = ""
    description: str = ""
    subgroup_matrix: bool = False
    tuning: str = "auto"  # "cpu" or "gpu" overrides what the adapter looks like

    def limit(self, name: str) -> int:
        """Return a limit, or WebGPU's default for it."""
        return self.limits.get(name, DEFAULT_LIMITS[name])

    @property
    def has_f16(self) -> bool:
        return "shader-f16" in self.features

    @property
    def has_subgroups(self) -> bool:
        return "subgroups" in self.features

    @property
    def is_software(self) -> bool:
        """True on a CPU adapter, where workgroups are few threads and each needs real work."""
        if self.tuning != "auto":
            return self.tuning == "cpu"
        text = f"{self.vendor} {self.architecture} {self.description}".lower()
        return any(name in text for name in ("swiftshader", "llvmpipe", "lavapipe"))


DEFAULT_LIMITS: Mapping[str, int] = {
    "maxStorageBufferBindingSize": 134217728,
    "maxBufferSize": 268435456,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupSizeX": 256,
    "maxComputeWorkgroupSizeY": 256,
    "maxComputeWorkgroupSizeZ": 64,
    "maxComputeWorkgroupStorageSize": 16384,
    "maxComputeWorkgroupsPerDimension": 65535,
    "maxStorageBuffersPerShaderStage": 8,
    "minStorageBufferOffsetAlignment": 256,
    "minUniformBufferOffsetAlignment": 256,
}


class Lowering(Protocol):
    """What `lower` may ask of the planner."""

    graph: Graph
    caps: Caps
    options: Mapping[str, object]
    ranges: Mapping[str, Interval]

    def value(self, name: str) -> Value:
        """Return a value's dtype and shape as stored in this session (a cache may be f16 here)."""

    def scratch(self, node: Node, label: str, dtype: str, shape: Shape) -> str:
        """Return the name of a temporary tensor that lives only during this node."""

    def upper(self, expr: Expr) -> int:
        """Return the greatest value of `expr` in this program's ranges."""

    def lower(self, expr: Expr) -> int:
        """Return the least value of `expr` in this program's ranges."""

    def fixed(self, expr: Expr) -> int | None:
        """Return the value of `expr` if it is the same on every step of this program."""


Check: TypeAlias = Callable[[Graph, Node], "str | None"]
ShapeRule: TypeAlias = Callable[[Graph, Node], "tuple[Shape, ...]"]
Lower: TypeAlias = Callable[[Lowering, Node], "list[Dispatch]"]
TakeOver: TypeAlias = Callable[[Lowering, Node, Node], "list[Dispatch] | None"]


@dataclass(frozen=True)
class OpDef:
    """A row of the registry.

    `check` returns why a node cannot run (a sentence for a person), or None. `shape` returns the
    shapes that the
    outputs must have. `lower` returns the dispatches, in order; `alias` marks an op whose output is
    its first
    input's bytes under another shape, which needs none. `private` marks an op that writes a buffer
    for none but its own next run: nobody misses it in a step that does not want its output.
    `take_over(ctx, before, node)` returns dispatches that do the work of the node just before as
    well, or None. Only `node` reads what that one gives, so its outputs need not come to be; what
    it writes to buffers must.
    """

    name: str
    kernels: tuple[str, ...]
    dtypes: tuple[str, ...]
    summary: str
    check: Check
    shape: ShapeRule
    lower: Lower
    alias: bool = False
    mutates: bool = False
    private: bool = False
    take_over: TakeOver | None = None
