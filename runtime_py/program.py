"""A plan bound to a device: buffers, pipelines and bind groups made once, replayed by every step.

Input:  a `Plan`, the session's buffers and compiled pipelines. Output: a `Program` whose step costs
a few calls.
Way of the data: `plan` -> program -> `session.run`.

All that changes from step to step is `words`, one flat int32 array:
    [parameter blocks | grids, 3 words each | output byte counts | input word counts | input words]
Python fills it, JS gets it in one call and replays the prepared lists (web/replay.js). With
replay="python" the same
lists are driven call by call from Python; both give identical bits.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime_py import symbols
from runtime_py.device import STAGING, UNIFORM, Device
from runtime_py.graph import value_bytes
from runtime_py.ops.base import Dispatch, KernelKey
from runtime_py.plan import Plan
from runtime_py.schema import Port
from runtime_py.symbols import Expr

BLOCK_BYTES = 256
INLINE_BYTES = 16384
KINDS = {"u32": "I", "i32": "i", "f32": "f"}


@dataclass(frozen=True)
class Field:
    """One word that is computed from symbols on every step."""

    at_bytes: int
    kind: str
    expr: Expr


class Words:
    """Lays out `words`: constant words are written once, the others become `Field`s."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.fields: list[Field] = []
        self.updates = 0
        self._seen: dict[object, int] = {}
        self._values: Mapping[str, int] | None = None

    def block(self, params: tuple[Any, ...]) -> int:
        """Add a parameter block (once for equal ones) and return its byte offset."""
        spelled = tuple((p.kind, p.value) for p in params)
        if spelled not in self._seen:
            self._seen[spelled] = len(self.data)
            self._add(spelled)
            self.data += bytes(-len(self.data) % BLOCK_BYTES)
        return self._seen[spelled]

    def grid(self, grid: tuple[Expr, Expr, Expr]) -> int:
        """Add a grid (once for equal ones) and return its word index."""
        if ("grid", grid) not in self._seen:
            self._seen["grid", grid] = len(self.data) // 4
            self._add([("u32", dim) for dim in grid])
        return self._seen["grid", grid]

    def count(self, expr: Expr) -> int:
        """Add one word and return its index."""
        self._add([("u32", expr)])
        return len(self.data) // 4 - 1

    def room(self, size_bytes: int) -> int:
        """Reserve bytes and return their word index."""
        at = len(self.data) // 4
        self.data += bytes((size_bytes + 3) // 4 * 4)
        return at

    def update(self, values: Mapping[str, int]) -> None:
        """Compute every field for these symbol values; nothing if they are the last step's."""
        if values == self._values:
            return
        self._values = None  # an error below leaves some fields new, some old
        for field in self.fields:
            struct.pack_into(
                "<" + KINDS[field.kind],
                self.data,
                field.at_bytes,
                symbols.evaluate(field.expr, values),
            )
        self._values = dict(values)
        self.updates += 1

    def _add(self, words: Sequence[tuple[str, Any]]) -> None:
        for kind, value in words:
            constant = value if isinstance(value, (int, float)) else 0
            if not isinstance(value, (int, float)):
                self.fields.append(Field(len(self.data), kind, value))
            self.data += struct.pack("<" + KINDS[kind], constant)


class Program:
    """The prepared lists of one plan. `inline` inputs travel in `words`; others are written
    apart."""

    def __init__(
        self,
        plan: Plan,
        device: Device,
        buffers: Mapping[str, Any],
        pipelines: Mapping[KernelKey, Any],
        inputs: Sequence[Port],
        outputs: Sequence[Port],
    ) -> None:
        self.plan, self.device, self.buffers = plan, device, buffers
        self.outputs = tuple(outputs)
        self.inline: dict[str, int] = {}
        self._words = Words()
        blocks = [self._words.block(d.params) if d.params else -1 for d in plan.dispatches]
        self._param_bytes = len(self._words.data)
        self._params = device.buffer("params", max(BLOCK_BYTES, self._param_bytes), UNIFORM)
        self._spec = {
            "params": self._params,
            "paramWords": self._param_bytes // 4,
            "pipelines": [pipelines[d.key] for d in plan.dispatches],
            "groups": [self._group(d, at) for d, at in zip(plan.dispatches, blocks, strict=True)],
            "grids": [self._words.grid(d.grid) for d in plan.dispatches],
        }
        self._spec["outputs"], staging_bytes = self._output_specs()
        self._spec["inputs"] = self._input_specs(inputs)
        self._spec["wordCount"] = len(self._words.data) // 4
        self._spec["staging"] = self._staging = device.buffer("staging", staging_bytes, STAGING)
        self.js = device.program(self._spec)
        self._js_words, self._js_result = self.js.bytes, self.js.result
        self.result = bytearray()
        self.fixed_outputs = self._outputs_are_fixed()

    @property
    def updates(self) -> int:
        """How often parameters, grids and sizes were computed: once per change of the symbols."""
        return self._words.updates

    def set_input(self, name: str, data: bytes) -> None:
        """Put a small input's bytes into `words`."""
        at = self.inline[name] * 4
        self._words.data[at : at + len(data)] = data

    def step_words(self, values: Mapping[str, int]) -> bytearray:
        """Return `words` for a step at `values` (as they are, for none); valid until the next."""
        if values:
            self._words.update(values)
        return self._words.data

    async def run(self, values: Mapping[str, int], replay: str) -> None:
        """Run one step at these symbol values; its outputs lie in `output_bytes` afterwards."""
        self._words.update(values)
        self._js_words.assign(self._words.data)
        device = self.device
        if replay == "python":
            self._submit_from_python()
            await device.guard(self.js.read())
            device.calls += 9 + 3 * len(self.plan.dispatches)
        else:
            await device.guard(self.js.run())
            device.calls += 3  # assign, run, the promise's then

    async def profile(self, values: Mapping[str, int]) -> list[float]:
        """Run one step with timestamps and return the nanoseconds of every dispatch."""
        self._words.update(values)
        self._js_words.assign(self._words.data)
        return list(await self.device.profile(self.js))

    def fetch(self) -> None:
        """Copy the outputs of the last step into the Python heap, if their sizes are fixed."""
        if self.fixed_outputs:
            self.result = self.result or bytearray(self._js_result.byteLength)
            self._js_result.assign_to(self.result)
            self.device.calls += 1

    def output_bytes(self, index: int, size_bytes: int) -> memoryview:
        """Return the bytes of output `index`; after `fetch` where sizes are fixed."""
        if self.fixed_outputs:
            at = self._spec["outputs"][index]["at"]
            return memoryview(bytes(self.result[at : at + size_bytes]))
        return memoryview(self.output_js(index).to_bytes())

    def output_js(self, index: int) -> Any:
        """Return a JS Uint8Array of its own with output `index` of the last step."""
        self.device.calls += 1
        return self.js.output(index)

    def destroy(self) -> None:
        """Free what the program owns; the session owns the rest."""
        for buffer in (self._params, self._staging):
            buffer.destroy()

    def _submit_from_python(self) -> None:
        self.js.upload()
        encoder = self.device.handle.createCommandEncoder()
        compute = encoder.beginComputePass()
        spec, grid_words = self._spec, memoryview(self._words.data).cast("I")
        for pipeline, group, at in zip(
            spec["pipelines"], spec["groups"], spec["grids"], strict=True
        ):
            compute.setPipeline(pipeline)
            compute.setBindGroup(0, group)
            compute.dispatchWorkgroups(grid_words[at], grid_words[at + 1], grid_words[at + 2])
        compute.end()
        self.js.finish(encoder)

    def _group(self, dispatch: Dispatch, block: int) -> Any:
        layout, _ = self.device.layouts([b.access for b in dispatch.bindings], block >= 0)
        resources: list[tuple[Any, int, int | None]] = [
            (self.buffer(b.value), b.offset_bytes, b.size_bytes) for b in dispatch.bindings
        ]
        if block >= 0:
            resources.append((self._params, block, BLOCK_BYTES))
        return self.device.group(layout, resources)

    def buffer(self, name: str) -> Any:
        """Return the GPU buffer that holds value `name` in this program."""
        return self.buffers[self.plan.root(name)]

    def _output_specs(self) -> tuple[list[dict[str, Any]], int]:
        specs, at = [], 0
        for port in self.outputs:
            value = self.plan.values[port.value]
            size = value_bytes(value, _upper(self.plan, value.shape))
            size_expr = symbols.combine(
                "*", symbols.combine("//", symbols.combine("+", _bytes(value), 3), 4), 4
            )
            specs.append(
                {
                    "buffer": self.buffer(port.value),
                    "at": at,
                    "bytesAt": self._words.count(size_expr),
                }
            )
            at += (size + 7) // 8 * 8
        return specs, max(16, at)

    def _input_specs(self, inputs: Sequence[Port]) -> list[dict[str, Any]]:
        specs = []
        for port in inputs:
            value = self.plan.values[port.value]
            size = value_bytes(value, _upper(self.plan, value.shape))
            if size > INLINE_BYTES:
                continue
            words = symbols.combine("//", symbols.combine("+", _bytes(value), 3), 4)
            count_at, at = self._words.count(words), self._words.room(size)
            self.inline[port.name] = at
            specs.append({"buffer": self.buffer(port.value), "at": at, "countAt": count_at})
        return specs

    def _outputs_are_fixed(self) -> bool:
        dims = [d for port in self.outputs for d in self.plan.values[port.value].shape]
        spans = [symbols.bounds(d, self.plan.ranges) for d in dims]
        return all(low == high for low, high in spans)


def _bytes(value: Any) -> Expr:
    return symbols.combine("*", symbols.product(value.shape), {"f16": 2}.get(value.dtype, 4))


def _upper(plan: Plan, shape: Sequence[Expr]) -> int:
    elems = 1
    for dim in shape:
        elems *= symbols.bounds(dim, plan.ranges)[1]
    return elems
