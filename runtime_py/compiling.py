"""Pipelines under way: rendered, asked for, and awaited only where nothing else is left to do.

Input:  the dispatches of plans, as they are made. Output: a pipeline a kernel key.
Way of the data: `plan` -> compiling (`kernels` -> `device`) -> `program`. Used by `resources`.

The browser compiles beside this thread, so every kernel is asked for as soon as it is known.

    compiling = Compiling(device, library, pipelines, debug, progress)
    await compiling.ask_for(plan.dispatches, is_last=True)
    ...                                                        # what needs no pipeline
    await compiling.end()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from runtime_py import debug
from runtime_py import device as gpu
from runtime_py.device import Device
from runtime_py.kernels import KernelLibrary, require_features
from runtime_py.ops.base import Dispatch, KernelKey


class Compiling:
    """One task a key, all at the same time. `span` is when the first was rendered and the last
    was there, `render_ms` the time that rendering took of this thread.
    """

    def __init__(
        self,
        device: Device,
        library: KernelLibrary,
        pipelines: dict[KernelKey, Any],
        telling: debug.Debug,
        progress: Callable[[str, int, int], None] | None,
    ) -> None:
        self._device, self._library, self._pipelines = device, library, pipelines
        self._debug, self._progress = telling, progress
        self._tasks: dict[KernelKey, asyncio.Task[None]] = {}
        self._done, self._is_whole = 0, False
        self.render_ms = 0.0
        self.span = (gpu.now_ms(), gpu.now_ms())

    async def ask_for(self, dispatches: Sequence[Dispatch], *, is_last: bool) -> None:
        """Render the kernels of `dispatches` and ask for the pipelines that are not there yet."""
        if not self._tasks:
            self.span = (gpu.now_ms(), gpu.now_ms())
        known = self._pipelines.keys() | self._tasks.keys()
        todo = {d.key: d for d in dispatches if d.key not in known}
        with self._device.errors.noted("creating the layouts"):
            for dispatch in todo.values():
                self._device.layouts(_accesses(dispatch), bool(dispatch.params))
        for key, dispatch in todo.items():
            self._tasks[key] = asyncio.create_task(self._compile(key, dispatch))
        self._is_whole = is_last
        await asyncio.sleep(0)  # each task comes as far as its request

    async def end(self) -> None:
        """Wait for all pipelines; raises what the first that fails says."""
        await asyncio.gather(*self._tasks.values())

    def cancel(self) -> None:
        """Wait for none of them any more, and hear no more of those that failed."""
        for task in self._tasks.values():
            if not task.cancel() and not task.cancelled():
                task.exception()

    async def _compile(self, key: KernelKey, dispatch: Dispatch) -> None:
        start = gpu.now_ms()
        text = self._library.render(key)
        self.render_ms += gpu.now_ms() - start
        self._debug.tell(debug.WGSL, lambda: f"kernel {key}:\n{text}")
        require_features(key, text, self._device.caps)
        accesses, params = _accesses(dispatch), bool(dispatch.params)
        self._pipelines[key] = await self._device.pipeline(str(key), text, accesses, params)
        self._done += 1
        self.span = (self.span[0], gpu.now_ms())
        if self._progress and self._is_whole:  # before, their number is not known
            self._progress("compile", self._done, len(self._tasks))


def _accesses(dispatch: Dispatch) -> list[str]:
    return [binding.access for binding in dispatch.bindings]
