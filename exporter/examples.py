"""Example inputs and declared symbols: checked, named, and brought to sizes that torch keeps free.

Input:  the example inputs as the user gave them, `symbols` (name -> `Sym`), constraints.
Output: arguments by name, with every bound place at a chosen value; the domain of the symbols.
Way of the data: before `capture`; `probe` and `eager` use `set_symbols` for other sizes.

    arguments = set_symbols(arguments, symbols, {"S": 7, "pos": 2})
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn

from exporter.symbolic import Domain, Place, Sym
from runtime_py import symbols as expressions
from runtime_py.errors import ExportError
from runtime_py.symbols import show

Arguments: TypeAlias = "dict[str, Any]"


def name_arguments(
    module: nn.Module, example_inputs: Sequence[Any] | Mapping[str, Any]
) -> Arguments:
    """Return the example inputs by the names of `forward`'s parameters, in its order."""
    parameters = [
        p
        for p in inspect.signature(module.forward).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    known = [p.name for p in parameters]
    if not isinstance(example_inputs, Mapping):
        if len(example_inputs) > len(known):
            raise ExportError(f"{len(example_inputs)} example inputs, but forward takes {known}")
        example_inputs = dict(zip(known, example_inputs, strict=False))
    unknown = [name for name in example_inputs if name not in known]
    if unknown:
        raise ExportError(
            f"example inputs {unknown} are no parameters of forward({', '.join(known)})"
        )
    missing = [p.name for p in parameters if p.default is p.empty and p.name not in example_inputs]
    if missing:
        raise ExportError(f"example inputs lack {missing}")
    return {name: example_inputs[name] for name in known if name in example_inputs}


def check_symbols(symbols: Mapping[str, Sym], arguments: Arguments) -> None:
    """Raise `ExportError` unless every symbol has a sane range and binds places that exist, each
    once.
    """
    taken: dict[Place, str] = {}
    for name, sym in symbols.items():
        if not name.isidentifier():
            raise ExportError(f"symbol {name!r} is no identifier")
        if not 0 <= sym.min <= sym.max < 2**31:
            raise ExportError(
                f"symbol {name!r} has the range {sym.min}..{sym.max}, expected 0 <= min <= max"
            )
        if sym.max < 2 and not sym.is_fixed:
            raise ExportError(
                f"symbol {name!r} has the range {sym.min}..{sym.max}: torch.export cannot keep 0 "
                "or 1 symbolic",
                hint="write it as a constant of the model, or widen the range",
            )
        if not sym.places:
            raise ExportError(
                f"symbol {name!r} is bound nowhere",
                hint="say where: Sym(..., at='arg' or ('arg', dim))",
            )
        for place in sym.places:
            _check_place(name, place, arguments)
            if place in taken:
                raise ExportError(f"{place} is bound by both {taken[place]!r} and {name!r}")
            taken[place] = name


def _check_place(name: str, place: Place, arguments: Arguments) -> None:
    argument, dim = (place, None) if isinstance(place, str) else place
    if argument not in arguments:
        raise ExportError(
            f"symbol {name!r} is bound to {argument!r}, not among the inputs {list(arguments)}"
        )
    value = arguments[argument]
    is_tensor = isinstance(value, torch.Tensor)
    if dim is not None and not (is_tensor and 0 <= dim < value.dim()):
        raise ExportError(f"symbol {name!r} is bound to dim {dim} of {argument!r}, which has none")
    whole = is_tensor and value.numel() == 1 and not value.is_floating_point()
    if dim is None and not (whole or (isinstance(value, int) and not isinstance(value, bool))):
        raise ExportError(
            f"symbol {name!r} is bound to {argument!r}, which is neither int nor one-element int "
            "tensor"
        )


def make_domain(symbols: Mapping[str, Sym], constraints: Sequence[tuple[object, int]]) -> Domain:
    """Return the box of `symbols` cut by `constraints`, pairs (expression in JSON form, greatest
    value).
    """
    domain = Domain({name: (sym.min, sym.max) for name, sym in symbols.items()})
    for data, limit in constraints:
        expr = expressions.parse(data)
        unknown = expressions.names(expr) - set(symbols)
        if unknown:
            raise ExportError(
                f"constraint {show(expr)} <= {limit} names unknown symbols {sorted(unknown)}"
            )
        domain.require(expr, limit)
    return domain


def pick_values(arguments: Arguments, symbols: Mapping[str, Sym], domain: Domain) -> dict[str, int]:
    """Return an example value per symbol: at least 2, unlike each other and unlike every fixed
    extent if possible.

    Extents are tried from 6 upwards, numbers from 2: `x[:, S - rows:]` is then traced with rows <
    S, as it is meant.
    """
    given = {name: example_value(arguments, sym) for name, sym in symbols.items()}
    fixed = {
        extent
        for argument, value in arguments.items()
        if isinstance(value, torch.Tensor)
        for dim, extent in enumerate(value.shape)
        if not any((argument, dim) in sym.places for sym in symbols.values())
    }
    for avoid in (fixed, set[int]()):
        options = {name: _candidates(sym, given[name], avoid) for name, sym in symbols.items()}
        chosen = _search(options, domain, {})
        if chosen is not None:
            return chosen
    raise ExportError(
        f"no example values of at least 2 for {list(symbols)} satisfy the ranges and constraints",
        hint="torch.export cannot keep a size of 0 or 1 symbolic; widen the ranges",
    )


def _candidates(sym: Sym, given: int, avoid: set[int]) -> list[int]:
    if sym.is_fixed:
        return [sym.min]
    is_extent = any(isinstance(place, tuple) for place in sym.places)
    few = [given, *(range(6, 14) if is_extent else ()), *range(2, 14), sym.min, sym.max]
    return [v for v in dict.fromkeys(few) if max(2, sym.min) <= v <= sym.max and v not in avoid]


def _search(
    options: Mapping[str, list[int]], domain: Domain, chosen: dict[str, int]
) -> dict[str, int] | None:
    """Depth-first over the candidates; ranges are wide, so the first tries nearly always fit."""
    rest = [name for name in options if name not in chosen]
    if not rest:
        return chosen if domain.allows(chosen) else None
    for value in options[rest[0]]:
        if value not in chosen.values() or len(options[rest[0]]) == 1:
            found = _search(options, domain, {**chosen, rest[0]: value})
            if found is not None:
                return found
    return None


def example_value(arguments: Arguments, sym: Sym) -> int:
    """Return what the example inputs say for `sym`, at the first place that it binds."""
    place = sym.places[0]
    if isinstance(place, str):
        return int(arguments[place])
    return int(arguments[place[0]].shape[place[1]])


def set_symbols(
    arguments: Arguments, symbols: Mapping[str, Sym], values: Mapping[str, int]
) -> Arguments:
    """Return the arguments with every bound place at its value in `values`; tensors are cut or
    repeated to size.
    """
    result = dict(arguments)
    for name, sym in symbols.items():
        for place in sym.places:
            if isinstance(place, tuple):
                result[place[0]] = _resize(result[place[0]], place[1], values[name])
            elif isinstance(result[place], torch.Tensor):
                result[place] = torch.full_like(result[place], values[name])
            else:
                result[place] = values[name]
    return result


def separated(arguments: Arguments) -> Arguments:
    """Return the arguments with no memory shared between two tensors: torch.export takes one object
    given twice for one input, and the graph would forget the other.
    """
    seen: set[int] = set()
    result = {}
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            memory = value.untyped_storage().data_ptr()
            value = value.clone() if memory in seen else value
            seen.add(memory)
        result[name] = value
    return result


def _resize(tensor: torch.Tensor, dim: int, extent: int) -> torch.Tensor:
    have = tensor.shape[dim]
    if have == extent:
        return tensor
    if have == 0:
        return tensor.new_zeros([*tensor.shape[:dim], extent, *tensor.shape[dim + 1 :]])
    index = torch.arange(extent, device=tensor.device) % have
    return tensor.index_select(dim, index)
