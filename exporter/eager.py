"""Run a module eagerly, step after step, without leaving a trace on it: the oracle for probes and
golden steps.

Input:  a module, arguments by name (or golden steps).
Output: every output and every buffer that changed, as a flat mapping of tensors.
Way of the data: beside `capture`; `golden` stores what `run_steps` returns.

    outputs = run_module(model, {"tokens": ids, "input_pos": 0, "L": 1})
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.export.graph_signature import OutputKind

from exporter import ops
from exporter.capture import Captured
from exporter.golden import GoldenStep
from runtime_py.errors import ExportError, InputError

OUTPUT = "output"


def flatten_outputs(result: Any, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a module's result as named leaves: `names`, a dict's keys, `output`, or `output_0`,
    `output_1`, ...
    """
    if isinstance(result, Mapping):
        return dict(result)
    leaves = list(result) if isinstance(result, (tuple, list)) else [result]
    if names is not None and len(names) != len(leaves):
        raise ExportError(
            f"output_names has {len(names)} names, forward returns {len(leaves)} values"
        )
    default = [OUTPUT] if len(leaves) == 1 else [f"{OUTPUT}_{i}" for i in range(len(leaves))]
    return dict(zip(names or default, leaves, strict=True))


@contextmanager
def preserved(module: nn.Module, names: Iterable[str]) -> Iterator[None]:
    """Put the buffers `names` of `module` back, bit for bit, on leaving."""
    saved = {name: module.get_buffer(name).detach().clone() for name in names}
    try:
        yield
    finally:
        restore(module, saved)


def restore(module: nn.Module, saved: Mapping[str, torch.Tensor]) -> None:
    """Overwrite buffers with saved contents."""
    with torch.no_grad():
        for name, content in saved.items():
            module.get_buffer(name).copy_(content)


def mutated_buffers(captured: Captured) -> list[str]:
    """Return the names of the buffers that one call changes."""
    return sorted(set(captured.program.graph_signature.buffers_to_mutate.values()))


def run_module(
    module: nn.Module, arguments: Mapping[str, Any], mutated: Sequence[str] = ()
) -> dict[str, torch.Tensor]:
    """Return outputs and, under `buffer:NAME`, the `mutated` buffers after one call.

    The module is left as it was.
    """
    with torch.no_grad(), preserved(module, mutated), ops.cached_weights():
        result = flatten_outputs(module(**_cloned(arguments)))
        tensors = {name: _tensor(leaf) for name, leaf in result.items() if leaf is not None}
        buffers = {f"buffer:{n}": module.get_buffer(n).detach().clone() for n in mutated}
    return {**tensors, **buffers}


def _cloned(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}


def _tensor(leaf: Any) -> torch.Tensor:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else torch.tensor(leaf)


def run_steps(
    module: nn.Module,
    captured: Captured,
    steps: Sequence[Mapping[str, Any]],
    names: Sequence[str] | None = None,
) -> list[GoldenStep]:
    """Return what `module` answers to `steps`, its buffers carried from one to the next, then put
    back.

    A step is `{"inputs": {...}, "symbols": {...}}`; symbols that an input's shape tells may be left
    out.
    """
    result = []
    mutated = mutated_buffers(captured)
    with torch.no_grad(), preserved(module, mutated), ops.cached_weights():
        start = {name: module.get_buffer(name).clone() for name in mutated}
        for index, step in enumerate(steps):
            if step.get("reset"):
                restore(module, start)
            inputs, symbols = _complete(captured, step, index)
            arguments = {**captured.arguments, **inputs, **_numbers(captured, symbols)}
            passed = _cloned(arguments)
            outputs = flatten_outputs(module(**passed), _returned(captured, names))
            outputs |= {name: passed[name] for name in names or () if name not in outputs}
            result.append(
                GoldenStep(
                    inputs={name: inputs[name] for name in _ports(captured)},
                    symbols=symbols,
                    outputs={
                        name: _tensor(leaf) for name, leaf in outputs.items() if leaf is not None
                    },
                    **{k: v for k, v in step.items() if k in ("reset", "atol", "rtol", "name")},
                )
            )
    return result


def _returned(captured: Captured, ports: Sequence[str] | None) -> Sequence[str] | None:
    """Return the ports of what forward returns; those of arguments that it writes to come after."""
    outputs = captured.program.graph_signature.output_specs
    count = sum(spec.kind == OutputKind.USER_OUTPUT for spec in outputs)
    return ports[:count] if ports is not None else None


def _ports(captured: Captured) -> list[str]:
    return [
        name
        for name, value in captured.arguments.items()
        if isinstance(value, torch.Tensor) and name not in captured.scalars
    ]


def _complete(
    captured: Captured, step: Mapping[str, Any], index: int
) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    inputs, symbols = dict(step.get("inputs", {})), dict(step.get("symbols", {}))
    missing = [name for name in _ports(captured) if name not in inputs]
    if missing:
        raise ExportError(f"golden step {index} lacks inputs {missing}")
    for name, sym in captured.symbols.items():
        for place in sym.places:
            if isinstance(place, tuple):
                extent = int(inputs[place[0]].shape[place[1]])
                if symbols.setdefault(name, extent) != extent:
                    raise ExportError(
                        f"golden step {index}: {name}={symbols[name]}, but {place} is {extent}"
                    )
            elif place in inputs:
                symbols.setdefault(name, int(inputs.pop(place)))
        if name not in symbols:
            raise InputError(f"golden step {index}: symbol {name!r} has no value")
    if not captured.domain.allows(symbols):
        raise ExportError(
            f"golden step {index}: {symbols} is outside the declared ranges and constraints"
        )
    return inputs, symbols


def _numbers(captured: Captured, symbols: Mapping[str, int]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, sym in captured.symbols.items():
        for place in sym.places:
            if isinstance(place, str):
                value = captured.arguments[place]
                is_tensor = isinstance(value, torch.Tensor)
                result[place] = (
                    torch.full_like(value, symbols[name]) if is_tensor else symbols[name]
                )
    return result
