"""A model on a GPU: owns weights, state and programs, and runs steps.

Input:  the URL of a bundle, options; then named inputs and symbol values for every step.
Output: named `Tensor`s. Mutable buffers (the KV cache) stay on the GPU between steps.
Way of the data: `bundle` + `plan` + `program` meet here; `engine` stands on it.

    session = await Session.load("/models/smollm2")
    out = await session.run({"tokens": [1, 2, 3]}, S=3, input_pos=0, L=1)
    out["logits"].shape                                   # (1, 1, 49152)
"""

from __future__ import annotations

import asyncio
import dataclasses
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runtime_py import device as gpu
from runtime_py import symbols
from runtime_py.bundle import Bundle
from runtime_py.device import STORAGE, Device
from runtime_py.errors import AbortedError, InputError
from runtime_py.graph import check_step, index_limits, value_bytes
from runtime_py.kernels import KernelLibrary
from runtime_py.memory import SlotPool
from runtime_py.ops.base import KernelKey
from runtime_py.options import SessionOptions
from runtime_py.plan import Plan, make_plan, stored_values
from runtime_py.program import Program
from runtime_py.report import session_report
from runtime_py.schema import Value
from runtime_py.symbols import Interval
from runtime_py.tensor import Tensor, pack

Progress = Callable[[str, int, int], None]


class Session:
    """One loaded bundle. Make it with `load`; `close()` frees everything it holds."""

    def __init__(self, bundle: Bundle, device: Device, options: SessionOptions) -> None:
        self.bundle, self.device = bundle, device
        self.options, self.fallbacks = options.resolve(device.caps)
        self.graph = bundle.graph
        self.timings: dict[str, float] = {}
        self.programs: list[Program] = []
        self.pipelines: dict[KernelKey, Any] = {}
        self.library = KernelLibrary()
        self.pool = SlotPool(reuse=self.options.scratch_pool)
        self.values = stored_values(self.graph, dataclasses.asdict(self.options))
        self.limits = index_limits(self.graph)
        self._fixed: dict[str, Any] = {}
        self._slots: list[Any] = []
        self._busy = asyncio.Lock()
        self._closed = False

    @staticmethod
    async def load(
        url: str,
        options: Mapping[str, Any] | SessionOptions | None = None,
        progress: Progress | None = None,
    ) -> Session:
        """Return a session for the bundle at `url`, with weights on the GPU and pipelines compiled.

        `progress(stage, done, total)` hears "weights" in bytes and "compile" in pipelines. Raises
        the typed errors of
        `errors.py`; whatever a failed load had made is freed.
        """
        parsed, start = SessionOptions.parse(options), gpu.now_ms()
        bundle = await Bundle.open(gpu.bundle_reader(url))
        opened = gpu.now_ms()
        device = await Device.request(parsed.power_preference)
        try:
            session = Session(bundle, device, parsed)
            session.timings |= {"manifest_ms": opened - start, "device_ms": gpu.now_ms() - opened}
            await session._fill(url, progress)
        except BaseException:
            device.destroy()
            raise
        session.timings["load_ms"] = gpu.now_ms() - start
        return session

    async def run(
        self,
        inputs: Mapping[str, Any],
        *,
        outputs: Sequence[str] | None = None,
        raw: bool = False,
        **values: int,
    ) -> dict[str, Any]:
        """Run one step and return its outputs by name.

        inputs   name -> list, buffer, numpy array or JS typed array, of the graph's dtype and shape
        at `values`
        outputs  the names to return (default: all)
        raw      True: JS Uint8Arrays that never enter the Python heap; the caller destroys them
        values   the symbols of this step, such as S=3, input_pos=0
        """
        self._check_open()
        check_step(self.graph, values)
        async with self._busy:
            program = await self._program_for(values)
            self._set_inputs(program, inputs, values)
            await program.run(values, self.options.replay)
            return self._collect(program, outputs, raw, values)

    def reset(self) -> None:
        """Put every mutable buffer back to its initial content."""
        self._check_open()
        buffers = self.graph.buffers.values()
        self.device.fill(
            [(self._fixed[b.value], self._fixed[b.init] if b.init else None) for b in buffers]
        )

    async def state(self) -> dict[str, Tensor]:
        """Return a copy of every mutable buffer, by name."""
        self._check_open()
        result = {}
        for name in self.graph.buffers:
            value = self.values[name]
            shape = tuple(symbols.evaluate(d, {}) for d in value.shape)
            data = await self.device.read(self._fixed[name], _static_bytes(value))
            result[name] = Tensor(value.dtype, shape, memoryview(data))
        return result

    def restore(self, state: Mapping[str, Any]) -> None:
        """Write buffers back as `state()` gave them; raises `InputError` on an unknown name or
        size."""
        self._check_open()
        packed = {}
        for name, data in state.items():
            if name not in self.graph.buffers:
                raise InputError(
                    f"unknown buffer {name!r}", hint=f"have {sorted(self.graph.buffers)}"
                )
            value = self.values[name]
            elems = symbols.evaluate(symbols.product(value.shape), {})
            source = data.data if isinstance(data, Tensor) else data
            packed[name] = pack(name, value.dtype, source, elems)
        for name, content in packed.items():
            self.device.write(self._fixed[name], content)

    def report(self) -> dict[str, Any]:
        """Return what runs and why: adapter, options, programs (node, kernel, key, reason), memory,
        timings."""
        return session_report(self)

    def close(self) -> None:
        """Free all GPU memory; the session cannot be used afterwards."""
        if not self._closed:
            self._closed = True
            self.device.destroy()

    async def _fill(self, url: str, progress: Progress | None) -> None:
        async with self.device.scope("creating the weight and state buffers"):
            for name in [*self.graph.constants, *self.graph.buffers]:
                size = _static_bytes(self.values[name])
                self._fixed[name] = self.device.buffer(name, size, STORAGE)
        weights = asyncio.ensure_future(self._stream(url, progress))
        try:
            for ranges in self.graph.specializations:
                await self._make_program(ranges, progress)
            await weights
        except BaseException:
            weights.cancel()
            raise
        self.reset()

    async def _stream(self, url: str, progress: Progress | None) -> None:
        start = gpu.now_ms()
        files: dict[str, dict[str, Any]] = {}
        for name, constant in self.graph.constants.items():
            at = 0
            for part in constant.parts:
                entry = self.bundle.manifest.files[part.file]
                file = files.setdefault(
                    part.file,
                    {
                        "url": f"{url.rstrip('/')}/{part.file}",
                        "path": part.file,
                        "sizeBytes": entry.size_bytes,
                        "sha256": entry.sha256,
                        "targets": [],
                    },
                )
                file["targets"].append(
                    {
                        "offset": part.offset_bytes,
                        "size": part.size_bytes,
                        "buffer": self._fixed[name],
                        "at": at,
                    }
                )
                at += part.size_bytes
        tell = (lambda done, total: progress("weights", done, total)) if progress else None
        await self.device.stream(list(files.values()), tell)
        self.timings["weights_ms"] = gpu.now_ms() - start

    async def _program_for(self, values: Mapping[str, int]) -> Program:
        for program in self.programs:
            spans = program.plan.ranges
            if all(spans[name][0] <= value <= spans[name][1] for name, value in values.items()):
                return program
        return await self._make_program(self._ranges_around(values), None)

    def _ranges_around(self, values: Mapping[str, int]) -> dict[str, Interval]:
        """Ranges for a program made on demand: sizes up to the next power of two, positions in
        full."""
        for special in self.graph.specializations:
            if all(low <= values[name] <= high for name, (low, high) in special.items()):
                return dict(special)
        sized = {n for v in self.graph.values.values() for d in v.shape for n in symbols.names(d)}
        ranges = {}
        for symbol in self.graph.symbols:
            if symbol.name in sized:
                ceiling = 1 << max(0, values[symbol.name] - 1).bit_length()
                ranges[symbol.name] = (symbol.min, min(symbol.max, max(ceiling, symbol.min)))
        return ranges

    async def _make_program(
        self, ranges: Mapping[str, Interval], progress: Progress | None
    ) -> Program:
        start = gpu.now_ms()
        caps, options = self.device.caps, dataclasses.asdict(self.options)
        plan = make_plan(self.graph, caps, options, ranges, self.pool)
        planned = gpu.now_ms()
        await self._compile(plan, progress)
        compiled = gpu.now_ms()
        async with self.device.scope(f"creating the buffers of a program for {dict(ranges)}"):
            while len(self._slots) < len(self.pool.sizes_bytes):
                size = self.pool.sizes_bytes[len(self._slots)]
                self._slots.append(self.device.buffer(f"slot {len(self._slots)}", size, STORAGE))
            slots = {name: self._slots[slot] for name, slot in plan.places.items()}
            program = Program(
                plan,
                self.device,
                {**self._fixed, **slots},
                self.pipelines,
                self.graph.inputs,
                self.graph.outputs,
            )
        self.programs.append(program)
        self._add_time("plan_ms", planned - start)
        self._add_time("compile_ms", compiled - planned)
        self._add_time("bind_ms", gpu.now_ms() - compiled)
        return program

    async def _compile(self, plan: Plan, progress: Progress | None) -> None:
        todo: dict[KernelKey, Any] = {}
        for dispatch in plan.dispatches:
            if dispatch.key not in self.pipelines and dispatch.key not in todo:
                accesses = [b.access for b in dispatch.bindings]
                todo[dispatch.key] = self.device.layouts(accesses, bool(dispatch.params))[1]
        done = 0

        async def compile_one(key: KernelKey, layout: Any) -> None:
            nonlocal done
            text = self.library.render(key)
            self.pipelines[key] = await self.device.pipeline(str(key), text, layout)
            done += 1
            if progress:
                progress("compile", done, len(todo))

        await asyncio.gather(*(compile_one(key, layout) for key, layout in todo.items()))

    def _set_inputs(
        self, program: Program, inputs: Mapping[str, Any], values: Mapping[str, int]
    ) -> None:
        ports = {port.name: port for port in self.graph.inputs}
        if set(inputs) != set(ports):
            raise InputError(f"the inputs are {sorted(ports)}, found {sorted(inputs)}")
        for name, data in inputs.items():
            value = self.values[ports[name].value]
            elems = symbols.evaluate(symbols.product(value.shape), values)
            if gpu.is_js(data) and (name in program.inline or ports[name].value in self.limits):
                data = data.to_bytes()
            if gpu.is_js(data):
                if data.byteLength != value_bytes(value, elems):
                    raise InputError(
                        f"input {name!r} has {data.byteLength} bytes, not {elems} elements"
                    )
            else:
                data = pack(name, value.dtype, data, elems)
                self._check_indices(name, ports[name].value, data)
            if name in program.inline:
                program.set_input(name, data)
            else:
                self.device.write(program.buffer(ports[name].value), data)

    def _check_indices(self, name: str, value: str, data: bytes) -> None:
        limit = self.limits.get(value)
        if limit is None:
            return
        for at, index in enumerate(struct.unpack(f"<{len(data) // 4}i", data)):
            if not 0 <= index < limit:
                raise InputError(f"{name}[{at}] = {index} is outside the vocabulary of {limit}")

    def _collect(
        self,
        program: Program,
        names: Sequence[str] | None,
        raw: bool,
        values: Mapping[str, int],
    ) -> dict[str, Any]:
        known = [port.name for port in self.graph.outputs]
        unknown = sorted(set(names or ()) - set(known))
        if unknown:
            raise InputError(f"unknown outputs {unknown}", hint=f"the outputs are {known}")
        result: dict[str, Any] = {}
        for index, port in enumerate(self.graph.outputs):
            if names is not None and port.name not in names:
                continue
            value = program.plan.values[port.value]
            shape = tuple(symbols.evaluate(d, values) for d in value.shape)
            if raw:
                result[port.name] = program.output_js(index)
                continue
            elems = symbols.evaluate(symbols.product(value.shape), values)
            data = program.output_bytes(index, value_bytes(value, elems))
            result[port.name] = Tensor(value.dtype, shape, data)
        return result

    def _add_time(self, name: str, elapsed_ms: float) -> None:
        self.timings[name] = self.timings.get(name, 0.0) + elapsed_ms

    def _check_open(self) -> None:
        if self._closed:
            raise AbortedError("the session is closed", hint="load the model again")
        self.device.check_alive()


def _static_bytes(value: Value) -> int:
    return value_bytes(value, symbols.evaluate(symbols.product(value.shape), {}))
