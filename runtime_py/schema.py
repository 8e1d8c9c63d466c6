"""The one contract between exporter and runtime: what `graph.json` and `manifest.json` hold.

Input:  parsed JSON. Output: frozen dataclasses, and JSON again (`to_json`). docs/FORMAT.md tells it
in prose.
Way of the data: written by `exporter.bundle`, read by `runtime_py.bundle`; both import this file
and nothing else of
each other. This module checks the *form* (types, names, versions); `runtime_py.graph` checks the
*meaning*.

    graph = Graph.from_json(json.loads(text))
    graph.values["x"].shape            # (1, "S", 576)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from runtime_py import symbols
from runtime_py.errors import BadBundleError
from runtime_py.json_reader import JsonReader
from runtime_py.symbols import Expr, Shape

FORMAT_NAME = "tabfire"
FORMAT_VERSION = 1
ALIGNMENT_BYTES = 256
MAX_SHARD_BYTES = 64 * 1024 * 1024
DTYPE_BYTES = {"f32": 4, "f16": 2, "i32": 4, "u32": 4}

Attr: TypeAlias = "bool | int | float | str | Expr | SymbolAttr | tuple[Any, ...] | None"


@dataclass(frozen=True)
class Symbol:
    """A runtime integer with an inclusive range, given by the caller on every step."""

    name: str
    min: int
    max: int


@dataclass(frozen=True)
class Constraint:
    """`expr <= max`, checked on every step."""

    expr: Expr
    max: int


@dataclass(frozen=True)
class Value:
    """A tensor of the graph: dtype (a key of `DTYPE_BYTES`) and symbolic shape; stored
    row-major."""

    name: str
    dtype: str
    shape: Shape


@dataclass(frozen=True)
class Part:
    """A run of bytes in a shard."""

    file: str
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class Constant:
    """A value whose bytes are the concatenation of `parts`, in order."""

    value: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Buffer:
    """A value that keeps its content between steps; `init` names a constant, None means zeros."""

    value: str
    init: str | None


@dataclass(frozen=True)
class Source:
    """Where the model's author wrote what became a node."""

    file: str
    line: int
    code: str
    module: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.file else "(unknown line)"
        return f"{where}  {self.code}" + (f"  [{self.module}]" if self.module else "")


@dataclass(frozen=True)
class Node:
    """One operation. Nodes stand in execution order; only `mutates` are written in place."""

    name: str
    op: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    mutates: tuple[str, ...] = ()
    source: Source = Source("", 0, "")


@dataclass(frozen=True)
class Port:
    """A named input or output of the graph and the value that carries it."""

    name: str
    value: str


@dataclass(frozen=True)
class Graph:
    """A model as data. `specializations` are sub-ranges of symbols worth a program of their own."""

    symbols: tuple[Symbol, ...]
    constraints: tuple[Constraint, ...]
    values: Mapping[str, Value]
    constants: Mapping[str, Constant]
    buffers: Mapping[str, Buffer]
    nodes: tuple[Node, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    specializations: tuple[Mapping[str, tuple[int, int]], ...] = ()

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """The declared interval of every symbol."""
        return {symbol.name: (symbol.min, symbol.max) for symbol in self.symbols}

    @staticmethod
    def from_json(data: object) -> Graph:
        """Return the graph in parsed JSON `data`; raises `BadBundleError` naming the faulty
        place."""
        top = JsonReader("graph.json", data)
        return Graph(
            symbols=tuple(
                Symbol(s.name(), s.integer("min"), s.integer("max")) for s in top.items("symbols")
            ),
            constraints=tuple(
                Constraint(c.expr("expr"), c.integer("max")) for c in top.items("constraints")
            ),
            values=_by_name(top, "values", _read_value),
            constants=_by_name(top, "constants", _read_constant),
            buffers=_by_name(top, "buffers", _read_buffer),
            nodes=tuple(_read_node(n) for n in top.items("nodes")),
            inputs=tuple(Port(p.name(), p.text("value")) for p in top.items("inputs")),
            outputs=tuple(Port(p.name(), p.text("value")) for p in top.items("outputs")),
            specializations=tuple(_read_specialization(s) for s in top.items("specializations")),
        )

    def to_json(self) -> dict[str, Any]:
        """Return JSON data that `from_json` reads back to an equal graph."""
        return {
            "symbols": [{"name": s.name, "min": s.min, "max": s.max} for s in self.symbols],
            "constraints": [
                {"expr": symbols.to_json(c.expr), "max": c.max} for c in self.constraints
            ],
            "values": [
                {"name": v.name, "dtype": v.dtype, "shape": [symbols.to_json(d) for d in v.shape]}
                for v in self.values.values()
            ],
            "constants": [
                {"value": c.value, "parts": [vars(p) for p in c.parts]}
                for c in self.constants.values()
            ],
            "buffers": [{"value": b.value, "init": b.init} for b in self.buffers.values()],
            "nodes": [_node_to_json(node) for node in self.nodes],
            "inputs": [vars(p) for p in self.inputs],
            "outputs": [vars(p) for p in self.outputs],
            "specializations": [
                {name: list(span) for name, span in s.items()} for s in self.specializations
            ],
        }


@dataclass(frozen=True)
class File:
    """A file of the bundle, relative to the manifest."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a bundle is and which files make it up."""

    model: Mapping[str, Any]
    files: Mapping[str, File]
    text: Mapping[str, Any] = field(default_factory=dict)
    generation: Mapping[str, Any] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    exporter: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def from_json(data: object) -> Manifest:
        """Return the manifest in `data`; raises `BadBundleError` on another format or version."""
        top = JsonReader("manifest.json", data)
        if top.data.get("format") != FORMAT_NAME:
            raise BadBundleError(
                f"manifest.json: format is {top.data.get('format')!r}, expected {FORMAT_NAME!r}",
                hint="is this a folder made by `python -m exporter`?",
            )
        if top.data.get("version") != FORMAT_VERSION:
            raise BadBundleError(
                f"bundle format version {top.data.get('version')!r}, "
                f"this runtime reads {FORMAT_VERSION}",
                hint="export the model again with this version of tabfire",
            )
        files = (
            File(f.path(), f.integer("size_bytes"), f.text("sha256")) for f in top.items("files")
        )
        return Manifest(
            model=top.mapping("model"),
            files={f.path: f for f in files},
            text=top.mapping("text"),
            generation=top.mapping("generation"),
            features=tuple(str(f) for f in top.array("features")),
            exporter=top.mapping("exporter"),
        )

    def to_json(self) -> dict[str, Any]:
        """Return JSON data that `from_json` reads back to an equal manifest."""
        return {
            "format": FORMAT_NAME,
            "version": FORMAT_VERSION,
            "model": dict(self.model),
            "files": [vars(f) for f in self.files.values()],
            "text": dict(self.text),
            "generation": dict(self.generation),
            "features": list(self.features),
            "exporter": dict(self.exporter),
        }


def attr_to_json(value: Attr) -> Any:
    """Return an attribute as JSON; an expression that is not an integer becomes `{"expr": ...}`."""
    if isinstance(value, symbols.Op):
        return {"expr": symbols.to_json(value)}
    if isinstance(value, SymbolAttr):
        return {"expr": value.name}
    if isinstance(value, tuple):
        return [attr_to_json(item) for item in value]
    return value


@dataclass(frozen=True)
class SymbolAttr:
    """A bare symbol as an attribute, which tells it from a string attribute."""

    name: str


def expr_attr(node: Node, name: str, default: Expr | None = None) -> Expr:
    """Return attribute `name` of `node` as an expression; raises `BadBundleError` if it is none."""
    value = node.attrs.get(name, default)
    if isinstance(value, SymbolAttr):
        return value.name
    if isinstance(value, symbols.Op) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise BadBundleError(
        f"{node.name}: attribute {name!r} of {node.op} is {value!r}, expected an expression"
    )


def as_attr(expr: Expr) -> Attr:
    """Return `expr` in the form in which a node's attributes hold it."""
    return SymbolAttr(expr) if isinstance(expr, str) else expr


def _read_attr(data: object, where: str) -> Attr:
    if isinstance(data, dict):
        if set(data) != {"expr"}:
            raise BadBundleError(
                f"{where}: an attribute object must be {{'expr': ...}}, found {data!r}"
            )
        return as_attr(symbols.parse(data["expr"]))
    if isinstance(data, list):
        return tuple(_read_attr(item, where) for item in data)
    if data is None or isinstance(data, (bool, int, float, str)):
        return data
    raise BadBundleError(f"{where}: {data!r} is no attribute")


def _node_to_json(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": node.op,
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
        "attrs": {name: attr_to_json(value) for name, value in node.attrs.items()},
        "mutates": list(node.mutates),
        "source": vars(node.source),
    }


def _by_name(top: JsonReader, key: str, read: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for item in top.items(key):
        name, value = read(item)
        if name in result:
            raise BadBundleError(f"{item.where}: {name!r} is defined twice")
        result[name] = value
    return result


def _read_value(r: JsonReader) -> tuple[str, Value]:
    dtype = r.text("dtype")
    if dtype not in DTYPE_BYTES:
        raise BadBundleError(f"{r.where}: dtype {dtype!r}, expected one of {sorted(DTYPE_BYTES)}")
    shape = tuple(symbols.parse(dim) for dim in r.array("shape"))
    return r.name(), Value(r.name(), dtype, shape)


def _read_constant(r: JsonReader) -> tuple[str, Constant]:
    parts = tuple(
        Part(p.text("file"), p.integer("offset_bytes"), p.integer("size_bytes"))
        for p in r.items("parts")
    )
    return r.text("value"), Constant(r.text("value"), parts)


def _read_buffer(r: JsonReader) -> tuple[str, Buffer]:
    init = r.data.get("init")
    if init is not None and not isinstance(init, str):
        raise BadBundleError(f"{r.where}: init is {init!r}, expected a constant's name or null")
    return r.text("value"), Buffer(r.text("value"), init)


def _read_node(r: JsonReader) -> Node:
    attrs = {k: _read_attr(v, f"{r.where}.{k}") for k, v in r.mapping("attrs").items()}
    source = JsonReader(f"{r.where}.source", r.data.get("source", {})).data
    return Node(
        name=r.name(),
        op=r.text("op"),
        inputs=r.names("inputs", optional=True),
        outputs=r.names("outputs"),
        attrs=attrs,
        mutates=r.names("mutates"),
        source=Source(
            str(source.get("file", "")),
            int(source.get("line", 0)),
            str(source.get("code", "")),
            str(source.get("module", "")),
        ),
    )


def _read_specialization(r: JsonReader) -> dict[str, tuple[int, int]]:
    result = {}
    for name, span in r.data.items():
        if not (
            isinstance(span, list) and len(span) == 2 and all(isinstance(x, int) for x in span)
        ):
            raise BadBundleError(f"{r.where}: {name!r} is {span!r}, expected [min, max]")
        result[str(name)] = (span[0], span[1])
    return result
