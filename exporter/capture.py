"""Capture: any `nn.Module` becomes a functional ATen graph in which the declared integers stay
symbolic.

Input:  the module, example inputs, `symbols` (name -> `Sym`), constraints between them.
Output: a `Captured`: the ExportedProgram after decomposition, and which torch symbol is which
declared one.
Way of the data: nn.Module -> capture -> `emit`. `probe` then runs the corners that torch.export
takes on trust.

torch.export freezes a dimension whose example is 0 or 1; examples are therefore made again with
sizes of 2 and more, and a declared symbol that torch froze all the same is refused by name.

    captured = capture(model, {"x": torch.zeros(1, 3, 8), "pos": 5},
                       {"S": Sym(1, 16, at=("x", 1)), "pos": Sym(0, 15, at="pos")})
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram, default_decompositions
from torch.overrides import TorchFunctionMode

from exporter.examples import (
    Arguments,
    check_symbols,
    make_domain,
    name_arguments,
    pick_values,
    separated,
    set_symbols,
)
from exporter.symbolic import Domain, Place, Sym
from runtime_py.errors import ExportError

# Operators that `emit` takes whole; torch would take them apart into dozens of small ones.
KEPT = frozenset(
    [
        "linear",
        "rms_norm",
        "layer_norm",
        "embedding",
        "silu",
        "gelu",
        "scaled_dot_product_attention",
        "softmax",
        "matmul",
        "slice_scatter",
        "select_scatter",
        "index_put",
        "repeat",
    ]
)


@dataclass(frozen=True)
class Captured:
    """A captured module. `names` maps torch's symbols (`s27`) to declared ones (`S`)."""

    program: ExportedProgram
    arguments: Arguments
    symbols: Mapping[str, Sym]
    names: Mapping[str, str]
    domain: Domain
    scalars: Mapping[str, str]  # one-element tensor argument -> the symbol that is its value


def capture(
    module: nn.Module,
    example_inputs: Sequence[Any] | Mapping[str, Any],
    symbols: Mapping[str, Sym],
    constraints: Sequence[tuple[object, int]] = (),
) -> Captured:
    """Return the captured graph of `module`; raises `ExportError`, naming the symbol, if one cannot
    stay free.
    """
    arguments = name_arguments(module, example_inputs)
    check_symbols(symbols, arguments)
    domain = make_domain(symbols, constraints)
    values = pick_values(arguments, symbols, domain)
    arguments = separated(set_symbols(arguments, symbols, values))
    scalars = {
        place: name
        for name, sym in symbols.items()
        for place in sym.places
        if isinstance(place, str) and isinstance(arguments[place], torch.Tensor)
    }
    with numbers_for_tensors(module, {name: arguments[name] for name in scalars}):
        program = _export(module, as_traced(arguments, scalars), symbols)
    names = _bind(program, arguments, symbols)
    return Captured(program, arguments, symbols, names, domain, scalars)


def as_traced(arguments: Arguments, scalars: Iterable[str]) -> Arguments:
    """Return the arguments as the captured graph takes them: bound one-element tensors as ints."""
    return {**arguments, **{name: int(arguments[name]) for name in scalars}}


class _ItemIsNumber(TorchFunctionMode):
    """Makes `.item()` and `int()` of given tensors yield the (symbolic) number that they were made
    from.
    """

    READERS = (torch.Tensor.item, torch.Tensor.__int__, torch.Tensor.__index__)

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[tuple[torch.Tensor, Any]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func in self.READERS:
            for tensor, number in self.numbers:
                if args[0] is tensor:
                    return number
        return func(*args, **(kwargs or {}))


@contextmanager
def numbers_for_tensors(module: nn.Module, templates: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Inside, `module.forward` takes ints in place of the one-element tensors `templates`.

    torch.export has no way to say that a tensor's content is a declared integer: `.item()` would
    give a number that it knows nothing about, and a slice from there could be anything.
    """
    if not templates:
        yield
        return
    inner = module.forward

    @functools.wraps(inner)
    def forward(**arguments: Any) -> Any:
        with _ItemIsNumber() as mode:
            for name, like in templates.items():
                number = arguments[name]
                arguments[name] = torch.full(like.shape, number, dtype=like.dtype)
                mode.numbers.append((arguments[name], number))
            return inner(**arguments)

    module.forward = forward
    try:
        yield
    finally:
        del module.forward


def _export(module: nn.Module, arguments: Arguments, symbols: Mapping[str, Sym]) -> ExportedProgram:
    shapes: dict[str, Any] = {name: None for name in arguments}
    for sym in symbols.values():
        for place in sym.places if not sym.is_fixed else ():
            free = Dim.DYNAMIC(min=sym.min, max=sym.max)
            if isinstance(place, tuple):
                shapes[place[0]] = {**(shapes[place[0]] or {}), place[1]: free}
            else:
                shapes[place] = free
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own pytree
            program = torch.export.export(module, (), dict(arguments), dynamic_shapes=shapes)
            decomposed: ExportedProgram = program.run_decompositions(decomposition_table())
            return decomposed
    except Exception as error:  # torch raises a dozen kinds, all about the user's module
        _refuse_frozen(symbols, str(error))
        raise ExportError(
            f"torch.export cannot capture {type(module).__name__}: {_first_lines(str(error))}",
            hint="a data-dependent number (`.item()`) or a branch on a symbolic size stops it; "
            "pass such numbers as int arguments declared in symbols=",
        ) from error


def _refuse_frozen(symbols: Mapping[str, Sym], message: str) -> None:
    """Raise in our words if torch says that it fixed a declared symbol to a number."""
    for line in message.splitlines():
        if "specialized it to be a constant" not in line:
            continue
        found = line.rsplit("(", 1)[-1].split(")")[0]
        for name, sym in symbols.items():
            for place in sym.places:
                spelled = (
                    f"L['{place}']"
                    if isinstance(place, str)
                    else f"L['{place[0]}'].size()[{place[1]}]"
                )
                if f"{spelled} as dynamic" in line:
                    raise _frozen(name, place, found)


def _first_lines(text: str, count: int = 8) -> str:
    return "\n  ".join(line for line in text.strip().splitlines()[:count] if line.strip())


def decomposition_table() -> dict[Any, Any]:
    """Return torch's default table without the operators that `emit` wants whole."""
    table: dict[Any, Any] = dict(default_decompositions())
    return {op: rule for op, rule in table.items() if _plain_name(op) not in KEPT}


def _plain_name(op: Any) -> str:
    return str(op).split(".")[1] if str(op).startswith("aten.") else str(op)


def _bind(
    program: ExportedProgram, arguments: Arguments, symbols: Mapping[str, Sym]
) -> dict[str, str]:
    """Return torch symbol -> declared name, from what stands at the bound places; refuses what
    became a number.
    """
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs = dict(zip(arguments, program.graph_signature.user_inputs, strict=True))
    names: dict[str, str] = {}
    for name, sym in symbols.items():
        for place in sym.places if not sym.is_fixed else ():
            argument = place if isinstance(place, str) else place[0]
            node = placeholders.get(str(inputs[argument]))
            found = node.meta["val"] if node is not None else inputs[argument]
            symbol = found if isinstance(place, str) else found.shape[place[1]]
            expr = symbol.node.expr if isinstance(symbol, torch.SymInt) else symbol
            if not getattr(expr, "is_Symbol", False):
                raise _frozen(name, place, expr)
            if names.setdefault(str(expr), name) != name:
                raise ExportError(
                    f"the model works only where symbols {names[str(expr)]!r} and {name!r} are "
                    "equal",
                    hint="bind both places to one symbol",
                )
    return names


def _frozen(name: str, place: Place, found: object) -> ExportError:
    where = f"argument {place!r}" if isinstance(place, str) else f"dim {place[1]} of {place[0]!r}"
    return ExportError(
        f"symbol {name!r} ({where}) was fixed to {found} by the model; it does not work at other "
        "values",
        hint=f"something compares or multiplies {name} with a number: look for a Python `if` on "
        "it, "
        f"`int({name})`, or a tensor whose extent must equal it",
    )
