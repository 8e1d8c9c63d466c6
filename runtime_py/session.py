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
import functools
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from runtime_py import debug, symbols
from runtime_py import device as gpu
from runtime_py.bundle import Bundle
from runtime_py.device import Device
from runtime_py.errors import AbortedError, InputError
from runtime_py.graph import check_step, index_limits, value_bytes
from runtime_py.options import SessionOptions
from runtime_py.profile import DispatchTime, profile_program
from runtime_py.program import EVERYTHING, Program
from runtime_py.reach import output_bit
from runtime_py.report import session_report
from runtime_py.resources import Progress, Resources, static_bytes
from runtime_py.schema import Graph
from runtime_py.tensor import Tensor, pack


class Session:
    """One loaded bundle. Make it with `load`; `close()` frees everything it holds."""

    def __init__(self, bundle: Bundle, device: Device, options: SessionOptions) -> None:
        self.bundle, self.device, self.graph = bundle, device, bundle.graph
        self.options, self.fallbacks = options.resolve(device.caps)
        self.resources = Resources(bundle, device, self.options)
        self.values, self.timings = self.resources.values, self.resources.timings
        self.debug = self.resources.debug
        self._limits = index_limits(self.graph)
        self._ports = {port.name: port.value for port in self.graph.inputs}
        self._output_bits = {p.name: output_bit(i) for i, p in enumerate(self.graph.outputs)}
        self._busy = asyncio.Lock()
        self._closed = False

    @staticmethod
    async def load(
        url: str,
        options: Mapping[str, Any] | SessionOptions | None = None,
        progress: Progress | None = None,
        extend: Callable[[Graph], Graph] | None = None,
        meanwhile: Callable[[Bundle], Awaitable[None]] | None = None,
    ) -> Session:
        """Return a session for the bundle at `url`, its weights on the GPU, pipelines compiled.

        `progress(stage, done, total)` hears "weights" in bytes and "compile" in pipelines.
        `extend` may add to the graph before it is planned; `meanwhile` is called with the bundle
        while the pipelines compile, and its error ends the load. Raises the typed errors of
        `errors.py`; whatever a failed load had made is freed.
        """
        parsed, start = SessionOptions.parse(options), gpu.now_ms()
        bundle = await Bundle.open(gpu.bundle_reader(url))
        if extend is not None:
            bundle = dataclasses.replace(bundle, graph=extend(bundle.graph))
        if parsed.debug == debug.COMPARE:
            bundle = dataclasses.replace(bundle, graph=debug.with_every_value(bundle.graph))
        opened = gpu.now_ms()
        device = await Device.request(parsed.power_preference, url)
        try:
            session = Session(bundle, device, parsed)
            session.resources.note_phase("manifest", start, opened)
            session.resources.note_phase("device", opened)
            beside = None if meanwhile is None else functools.partial(meanwhile, bundle)
            await session.resources.fill(url, progress, beside)
            session.reset()
        except BaseException:
            device.destroy()
            raise
        session.resources.note_phase("load", start)
        session.debug.tell(debug.STAGES, lambda: debug.load_lines(bundle.graph, session.report()))
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
        outputs  the names to return (default: all); what only others need is not computed
        raw      True: JS Uint8Arrays that never enter the Python heap; the caller destroys them
        values   the symbols of this step, such as S=3, input_pos=0
        """
        self._check_open()
        check_step(self.graph, values)
        wanted = self.wanted(outputs)
        async with self._busy:
            program = await self.resources.program_for(values)
            self._set_inputs(program, inputs, values)
            await self._step(program, values, wanted)
            return self._collect(program, outputs, raw, values)

    def wanted(self, names: Sequence[str] | None) -> int:
        """Return the bits of the outputs `names`, for None of all; raises `InputError` for a name
        that is none.
        """
        if names is None:
            return EVERYTHING
        unknown = sorted(set(names) - set(self._output_bits))
        if unknown:
            known = list(self._output_bits)
            raise InputError(f"unknown outputs {unknown}", hint=f"the outputs are {known}")
        return sum({self._output_bits[name] for name in names})

    async def profile(
        self, inputs: Mapping[str, Any], *, outputs: Sequence[str] | None = None, **values: int
    ) -> list[DispatchTime]:
        """Run one step with a GPU timestamp around every dispatch that `outputs` need (None: all)
        and return the times, in order.

        The step counts: state changes as in `run`. Raises `FeatureMissingError` without
        timestamps.
        """
        self._check_open()
        check_step(self.graph, values)
        wanted = self.wanted(outputs)
        async with self._busy:
            program = await self.resources.program_for(values)
            self._set_inputs(program, inputs, values)
            return await profile_program(program, values, wanted)

    def reset(self) -> None:
        """Put every mutable buffer back to its initial content."""
        self._check_open()
        buffers = self.graph.buffers.values()
        self.device.fill(
            [
                (self.resources.fixed[b.value], self.resources.fixed[b.init] if b.init else None)
                for b in buffers
            ]
        )

    async def state(self) -> dict[str, Tensor]:
        """Return a copy of every mutable buffer, by name."""
        self._check_open()
        result = {}
        for name in self.graph.buffers:
            value = self.values[name]
            shape = tuple(symbols.evaluate(d, {}) for d in value.shape)
            data = await self.device.read(self.resources.fixed[name], static_bytes(value))
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
            self.device.write(self.resources.fixed[name], content)

    def report(self) -> dict[str, Any]:
        """Return what runs and why: adapter, options, programs (node, kernel, key, reason), memory,
        timings."""
        return session_report(self)

    def close(self) -> None:
        """Free all GPU memory; the session cannot be used afterwards."""
        if not self._closed:
            self._closed = True
            self.device.destroy()

    async def _step(self, program: Program, values: Mapping[str, int], wanted: int) -> None:
        start, times = gpu.now_ms(), list[DispatchTime]()
        if self.debug.wants(debug.TIMES):
            times = await profile_program(program, values, wanted)
        else:
            await program.run(values, self.options.replay, wanted)
        elapsed_ms = gpu.now_ms() - start
        self.debug.tell(debug.STAGES, lambda: f"step {debug.spell(values)}: {elapsed_ms:.1f} ms")
        self.debug.tell(debug.TIMES, lambda: debug.time_lines(times))

    def _set_inputs(
        self, program: Program, inputs: Mapping[str, Any], values: Mapping[str, int]
    ) -> None:
        ports = self._ports
        if inputs.keys() != ports.keys():
            raise InputError(f"the inputs are {sorted(ports)}, found {sorted(inputs)}")
        for name, data in inputs.items():
            value = self.values[ports[name]]
            elems = symbols.evaluate(symbols.product(value.shape), values)
            if gpu.is_js(data) and (name in program.inline or ports[name] in self._limits):
                data = data.to_bytes()
            if gpu.is_js(data):
                if data.byteLength != value_bytes(value, elems):
                    raise InputError(
                        f"input {name!r} has {data.byteLength} bytes, not {elems} elements"
                    )
            else:
                data = pack(name, value.dtype, data, elems)
                self._check_indices(name, ports[name], data)
            if name in program.inline:
                program.set_input(name, data)
            else:
                self.device.write(program.buffer(ports[name]), data)

    def _check_indices(self, name: str, value: str, data: bytes) -> None:
        limit = self._limits.get(value)
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

    def _check_open(self) -> None:
        if self._closed:
            raise AbortedError("the session is closed", hint="load the model again")
        self.device.check_alive()
