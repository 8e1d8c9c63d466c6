"""A plan bound to a device: buffers, pipelines and bind groups made once, replayed by every step.

Input:  a `Plan`, the session's buffers and compiled pipelines. Output: a `Program` whose step costs
a few calls.
Way of the data: `plan` -> program -> `session.run`.

All that changes from step to step is `words`, one flat int32 array:
    [parameter blocks | grids, 3 words each | output byte counts | input word counts | input words |
     outputs wanted, one bit each]
A step runs the dispatches that serve a wanted output or write a buffer of the model (`reach`).
Python fills `words`, JS gets them in one call and replays the prepared lists (web/replay.js). With
replay="python" the same lists are driven call by call from Python; both give identical bits.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from runtime_py import symbols
from runtime_py.device import STAGING, UNIFORM, Device
from runtime_py.graph import value_bytes
from runtime_py.ops.base import Dispatch, KernelKey
from runtime_py.plan import Plan
from runtime_py.reach import ALWAYS, output_bit
from runtime_py.schema import Port
from runtime_py.symbols import Expr

BLOCK_BYTES = 256
INLINE_BYTES = 16384
EVERYTHING = (1 << 31) - 1  # the bits of all outputs
KINDS = {"u32": "I", "i32": "i", "f32": "f"}


class Words:
    """Lays out `words`: constant words are written once, the others when a symbol changes."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.updates = 0
        self._seen: dict[object, int] = {}
        self._places: dict[Expr, list[tuple[str, int]]] = {}  # by expression: kind, word index
        self._fields: list[tuple[Expr, frozenset[str], list[tuple[Any, int]]]] = []
        self._values: Mapping[str, int] = {}

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

    def freeze(self) -> None:
        """End the layout: from now on words are only filled in."""
        data = memoryview(self.data)
        views: dict[str, Any] = {"I": data.cast("I"), "i": data.cast("i"), "f": data.cast("f")}
        for expr, places in self._places.items():
            targets = [(views[kind], at) for kind, at in places]
            self._fields.append((expr, symbols.names(expr), targets))

    def put(self, at: int, value: int) -> None:
        """Write one word."""
        struct.pack_into("<i", self.data, 4 * at, value)

    def update(self, values: Mapping[str, int]) -> None:
        """Compute what depends on a symbol that changed, each expression once."""
        if values == self._values:
            return
        old = self._values
        changed = {name for name, value in values.items() if old.get(name) != value}
        self._values = {}  # an error below leaves some words new, some old
        for expr, names, targets in self._fields:
            if not names.isdisjoint(changed):
                value = symbols.evaluate(expr, values)
                for view, at in targets:
                    view[at] = value
        self._values = dict(values)
        self.updates += 1

    def _add(self, words: Sequence[tuple[str, Any]]) -> None:
        for kind, value in words:
            constant = value if isinstance(value, (int, float)) else 0
            if not isinstance(value, (int, float)):
                place = (KINDS[kind], len(self.data) // 4)
                self._places.setdefault(value, []).append(place)
            self.data += struct.pack("<" + KINDS[kind], constant)


class Program:
    """The prepared lists of one plan. `inline` inputs travel in `words`; others are written
    apart."""

    def __init__(
        self,
        plan: Plan,
        device: Device,
        buffers: Mapping[str, Any],
        inputs: Sequence[Port],
        outputs: Sequence[Port],
    ) -> None:
        self.plan, self.device, self.buffers = plan, device, buffers
        self.outputs = tuple(outputs)
        self.inline: dict[str, int] = {}
        self._under_way = False  # a step whose outputs did not come to who asked
        self._words = Words()
        blocks = [self._words.block(d.params) if d.params else -1 for d in plan.dispatches]
        self._param_bytes = len(self._words.data)
        self._params = device.buffer("params", max(BLOCK_BYTES, self._param_bytes), UNIFORM)
        self._spec = {
            "params": self._params,
            "paramWords": self._param_bytes // 4,
            "groups": device.groups(
                [self._group(d, at) for d, at in zip(plan.dispatches, blocks, strict=True)]
            ),
            "grids": [self._words.grid(d.grid) for d in plan.dispatches],
        }
        self._spec["outputs"], staging_bytes = self._output_specs()
        self._spec["inputs"] = self._input_specs(inputs)
        self._spec["serves"] = list(plan.serves)
        self._spec["wantedAt"] = self._wanted_at = self._words.room(4)
        self._spec["wordCount"] = len(self._words.data) // 4
        self._words.freeze()
        self._spec["staging"] = self._staging = device.buffer("staging", staging_bytes, STAGING)

    def link(self, pipelines: Mapping[KernelKey, Any]) -> None:
        """Give the program its pipelines, without which no step runs: they may come last."""
        self._spec["pipelines"] = [pipelines[d.key] for d in self.plan.dispatches]
        self.js = self.device.program(self._spec)
        self._js_words, self._js_run = self.js.bytes, self.js.run
        self._js_results = [self.js.view(spec["at"], spec["size"]) for spec in self._fixed()]

    @property
    def updates(self) -> int:
        """How often parameters, grids and sizes were computed: once per change of the symbols."""
        return self._words.updates

    def set_input(self, name: str, data: bytes) -> None:
        """Put a small input's bytes into `words`."""
        at = self.inline[name] * 4
        self._words.data[at : at + len(data)] = data

    def step_words(self, values: Mapping[str, int], wanted: int) -> bytearray:
        """Return `words` for a step at `values` that computes the outputs with the bits `wanted`;
        valid until the next.
        """
        self._words.update(values)
        self._words.put(self._wanted_at, wanted | ALWAYS)
        return self._words.data

    @property
    def word_bytes(self) -> int:
        """The size of `words`."""
        return len(self._words.data)

    async def run(self, values: Mapping[str, int], replay: str, wanted: int = EVERYTHING) -> None:
        """Run one step at these symbol values; the outputs with the bits `wanted` lie in
        `output_bytes` afterwards.
        """
        device = self.device
        await self._begin(values, wanted)
        if replay == "python":
            self._submit_from_python()
            await device.guard(self.js.read())
            device.calls += 9 + 3 * len(self.plan.dispatches)
        else:
            await device.ask(self._js_run)
            device.calls += 1  # assign
        self._under_way = False

    async def profile(self, values: Mapping[str, int], wanted: int = EVERYTHING) -> list[float]:
        """Run one step with timestamps and return the nanoseconds of every dispatch, 0 for those
        that it does not need.
        """
        await self._begin(values, wanted)
        times = list(await self.device.profile(self.js))
        self._under_way = False
        return times

    async def _begin(self, values: Mapping[str, int], wanted: int) -> None:
        """Hand over `words`, after the outputs of a step that nobody waits for any more: a task
        that was cancelled leaves them on their way.
        """
        if self._under_way:
            await self.js.reading
        self._under_way = True
        self._js_words.assign(self.step_words(values, wanted))

    def output_bytes(self, index: int, size_bytes: int) -> memoryview:
        """Return the bytes of output `index` of the last step, which wanted it."""
        if not self._js_results:
            return memoryview(self.output_js(index).to_bytes())
        result = bytearray(size_bytes)
        self._js_results[index].assign_to(result)
        self.device.calls += 1
        return memoryview(result)

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
        wanted = grid_words[self._wanted_at]
        for pipeline, group, at, serves in zip(
            spec["pipelines"], spec["groups"], spec["grids"], spec["serves"], strict=True
        ):
            if not serves & wanted or not grid_words[at]:
                continue
            compute.setPipeline(pipeline)
            compute.setBindGroup(0, group)
            compute.dispatchWorkgroups(grid_words[at], grid_words[at + 1], grid_words[at + 2])
        compute.end()
        self.js.finish(encoder)

    def _group(
        self, dispatch: Dispatch, block: int
    ) -> tuple[Any, list[tuple[Any, int, int | None]]]:
        layout, _ = self.device.layouts([b.access for b in dispatch.bindings], block >= 0)
        resources: list[tuple[Any, int, int | None]] = [
            (self.buffer(b.value), b.offset_bytes, b.size_bytes) for b in dispatch.bindings
        ]
        if block >= 0:
            resources.append((self._params, block, BLOCK_BYTES))
        return layout, resources

    def buffer(self, name: str) -> Any:
        """Return the GPU buffer that holds value `name` in this program."""
        return self.buffers[self.plan.root(name)]

    def _output_specs(self) -> tuple[list[dict[str, Any]], int]:
        specs, at = [], 0
        for index, port in enumerate(self.outputs):
            value = self.plan.values[port.value]
            size = value_bytes(value, _upper(self.plan, value.shape))
            size_expr = symbols.combine(
                "*", symbols.combine("//", symbols.combine("+", _bytes(value), 3), 4), 4
            )
            specs.append(
                {
                    "buffer": self.buffer(port.value),
                    "at": at,
                    "size": size,
                    "bit": output_bit(index),
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

    def _fixed(self) -> list[dict[str, Any]]:
        """Return the specs of the outputs if every step gives the same sizes, else nothing."""
        dims = [d for port in self.outputs for d in self.plan.values[port.value].shape]
        spans = [symbols.bounds(d, self.plan.ranges) for d in dims]
        specs: list[dict[str, Any]] = self._spec["outputs"]
        return specs if all(low == high for low, high in spans) else []


def _bytes(value: Any) -> Expr:
    return symbols.combine("*", symbols.product(value.shape), {"f16": 2}.get(value.dtype, 4))


def _upper(plan: Plan, shape: Sequence[Expr]) -> int:
    elems = 1
    for dim in shape:
        elems *= symbols.bounds(dim, plan.ranges)[1]
    return elems
