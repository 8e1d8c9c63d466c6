"""What a session holds on the GPU: weights and state, slots, pipelines, programs.

Input:  an opened bundle, a device, resolved options. Output: programs ready to run.
Way of the data: `bundle` + `plan` + `kernels` meet in resources; `session` asks it for a program.

    resources = Resources(bundle, device, options)
    await resources.fill(url, progress)
    program = await resources.program_for({"S": 1, "input_pos": 7})
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from runtime_py import debug, symbols
from runtime_py import device as gpu
from runtime_py.bundle import Bundle
from runtime_py.compiling import Compiling
from runtime_py.device import STORAGE, Device
from runtime_py.errors import TabfireError
from runtime_py.graph import value_bytes
from runtime_py.kernels import KernelLibrary
from runtime_py.memory import SlotPool
from runtime_py.ops.base import KernelKey
from runtime_py.options import SessionOptions
from runtime_py.plan import Plan, make_plan, stored_values
from runtime_py.program import Program
from runtime_py.schema import Value
from runtime_py.symbols import Interval

Progress = Callable[[str, int, int], None]
Meanwhile = Callable[[], Awaitable[None]]


class Resources:
    """Everything that `Device.destroy` frees when the session closes."""

    def __init__(self, bundle: Bundle, device: Device, options: SessionOptions) -> None:
        self.bundle, self.device, self.options = bundle, device, options
        self.graph = bundle.graph
        self.debug = debug.Debug(options.debug)
        self.values = stored_values(self.graph, dataclasses.asdict(options))
        self.timings: dict[str, float] = {}
        self.phases: dict[str, tuple[float, float]] = {}
        self.programs: list[Program] = []
        self.pipelines: dict[KernelKey, Any] = {}
        self.library = KernelLibrary(known=device.known_texts())
        self.pool = SlotPool(reuse=options.scratch_pool)
        self.fixed: dict[str, Any] = {}
        self._slots: list[Any] = []

    async def fill(
        self, url: str, progress: Progress | None, meanwhile: Meanwhile | None = None
    ) -> None:
        """Stream the weights and make the programs of a load; `meanwhile` begins once all
        pipelines have been asked for, when this thread has nothing to do but wait for them.
        """
        with self.device.errors.noted("creating the weight and state buffers"):
            for name in [*self.graph.constants, *self.graph.buffers]:
                size = static_bytes(self.values[name])
                self.fixed[name] = self.device.buffer(name, size, STORAGE)
        asked = asyncio.Event()
        streaming = self._stream(url, progress, asked)
        preparing = self._prepare(progress, meanwhile, asked)
        await asyncio.gather(streaming, preparing, self.device.errors.raise_noted())

    async def _prepare(
        self, progress: Progress | None, meanwhile: Meanwhile | None, asked: asyncio.Event
    ) -> None:
        self.debug.tell(debug.PLAN, lambda: debug.graph_lines(self.graph))
        at_load: Sequence[Mapping[str, Interval]] = self.graph.specializations
        if self.options.debug == debug.COMPARE:
            at_load = ()  # every value of a long step would be an output: only what is asked for
        elif not at_load and not self._sizing_symbols():
            at_load = [{}]  # no extent ever changes: one program serves every step
        try:
            await self._make_programs(at_load, progress, meanwhile, asked)
        finally:
            asked.set()

    async def _stream(self, url: str, progress: Progress | None, asked: asyncio.Event) -> None:
        """Stream the weights; where no kernel is known from before, once the pipelines are `asked`
        for: to write shards that wait here already keeps this thread and the GPU's busy.
        """
        if not self.library.known:
            await asked.wait()
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
                        "buffer": self.fixed[name],
                        "at": at,
                    }
                )
                at += part.size_bytes
        tell = (lambda done, total: progress("weights", done, total)) if progress else None
        await self.device.stream(url, list(files.values()), tell)
        self.note_phase("weights", start)

    async def program_for(self, values: Mapping[str, int]) -> Program:
        for program in self.programs:
            spans = program.plan.ranges
            if all(spans[name][0] <= value <= spans[name][1] for name, value in values.items()):
                return program
        return await self.make_program(self._ranges_around(values), None)

    def _ranges_around(self, values: Mapping[str, int]) -> dict[str, Interval]:
        """Ranges for a program made on demand: sizes up to the next power of two, positions in
        full."""
        for special in self.graph.specializations:
            if all(low <= values[name] <= high for name, (low, high) in special.items()):
                return dict(special)
        sized = self._sizing_symbols()
        ranges = {}
        for symbol in self.graph.symbols:
            if symbol.name in sized:
                ceiling = 1 << max(0, values[symbol.name] - 1).bit_length()
                ranges[symbol.name] = (symbol.min, min(symbol.max, max(ceiling, symbol.min)))
        return ranges

    def _sizing_symbols(self) -> set[str]:
        """The symbols on which an extent depends."""
        shapes = (value.shape for value in self.graph.values.values())
        return {name for shape in shapes for dim in shape for name in symbols.names(dim)}

    async def make_program(
        self, ranges: Mapping[str, Interval], progress: Progress | None
    ) -> Program:
        [program] = await self._make_programs([ranges], progress)
        return program

    async def _make_programs(
        self,
        at: Sequence[Mapping[str, Interval]],
        progress: Progress | None,
        meanwhile: Meanwhile | None = None,
        asked: asyncio.Event | None = None,
    ) -> list[Program]:
        """Return a program for each of `at`. The kernels of one plan compile while the next is
        made, and all of them while the programs are bound to their buffers.
        """
        caps = dataclasses.replace(self.device.caps, tuning=self.options.tuning)
        options = dataclasses.asdict(self.options)
        plans: list[Plan] = []
        compiling = Compiling(self.device, self.library, self.pipelines, self.debug, progress)
        try:
            for ranges in at:
                start = gpu.now_ms()
                plans.append(make_plan(self.graph, caps, options, ranges, self.pool))
                self.note_phase("plan", start)
                await compiling.ask_for(plans[-1].dispatches, is_last=len(plans) == len(at))
            if asked is not None:
                asked.set()
            made = self._bind(plans)
            if meanwhile is not None:
                start = gpu.now_ms()
                await meanwhile()
                self.note_phase("text", start)
            await compiling.end()
            self.timings["render_ms"] = self.timings.get("render_ms", 0.0) + compiling.render_ms
            self.note_phase("compile", *compiling.span)
        except BaseException:
            compiling.cancel()
            with contextlib.suppress(TabfireError):  # nothing of it may be told to the next program
                await self.device.errors.raise_noted()
            raise
        await self.device.errors.raise_noted()
        for program in made:
            program.link(self.pipelines)
        self.programs += made
        for plan in plans:
            self.debug.tell(debug.PLAN, lambda plan=plan: debug.plan_lines(plan))  # type: ignore[misc]
            self.debug.tell(debug.STAGES, lambda plan=plan: self._sizes(plan))  # type: ignore[misc]
        return made

    def _sizes(self, plan: Plan) -> str:
        sizes = f"{len(plan.dispatches)} dispatches, {self.pool.total_bytes} bytes of scratch"
        return f"program for {debug.spell(plan.ranges)}: {sizes}"

    def _bind(self, plans: Sequence[Plan]) -> list[Program]:
        start = gpu.now_ms()
        inputs, outputs = self.graph.inputs, self.graph.outputs
        with self.device.errors.noted(
            f"creating the buffers of programs for {[p.ranges for p in plans]}"
        ):
            while len(self._slots) < len(self.pool.sizes_bytes):
                size = self.pool.sizes_bytes[len(self._slots)]
                self._slots.append(self.device.buffer(f"slot {len(self._slots)}", size, STORAGE))
            made = [Program(p, self.device, self._buffers(p), inputs, outputs) for p in plans]
        self.note_phase("bind", start)
        return made

    async def bind(self, ranges: Mapping[str, Interval], buffers: Mapping[str, Any]) -> Program:
        """Return one more program over the plan for `ranges`, with the values named in `buffers`
        in the caller's buffers, and without inputs and outputs of its own.
        """
        plans = [program.plan for program in self.programs]
        fitting = [p for p in plans if all(p.ranges[n] == span for n, span in ranges.items())]
        plan = fitting[0] if fitting else (await self.make_program(ranges, None)).plan
        bound = {**self._buffers(plan), **buffers}
        made = Program(plan, self.device, bound, (), ())
        made.link(self.pipelines)
        return made

    def _buffers(self, plan: Plan) -> dict[str, Any]:
        return {**self.fixed, **{name: self._slots[slot] for name, slot in plan.places.items()}}

    def note_phase(self, name: str, start_ms: float, end_ms: float | None = None) -> None:
        """Add a piece of work, ended now unless told, to `timings`, and to the span of `phases`."""
        end_ms = gpu.now_ms() if end_ms is None else end_ms
        first, last = self.phases.get(name, (start_ms, end_ms))
        self.phases[name] = (min(first, start_ms), max(last, end_ms))
        self.timings[f"{name}_ms"] = self.timings.get(f"{name}_ms", 0.0) + end_ms - start_ms


def static_bytes(value: Value) -> int:
    """Return the bytes of a value whose shape has no symbols."""
    return value_bytes(value, symbols.evaluate(symbols.product(value.shape), {}))
