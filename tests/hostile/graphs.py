"""Bad graphs and manifests, one per rule of docs/FORMAT.md: a good one, and a change that breaks it.

Each row is (name, change, words that the error must contain). A change edits parsed JSON in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Json: TypeAlias = "dict[str, Any]"
Change: TypeAlias = "Callable[[Json], object]"
FILES = {"weights-00001.bin": 1024}


def good_graph() -> Json:
    """Return a graph of two adds over a weight and a buffer, with a symbolic row count."""
    row = [1, "S", 8]
    return {
        "symbols": [{"name": "S", "min": 1, "max": 16}, {"name": "pos", "min": 0, "max": 31}],
        "constraints": [{"expr": ["+", "S", "pos"], "max": 32}],
        "values": [
            {"name": "x", "dtype": "f32", "shape": row},
            {"name": "w", "dtype": "f32", "shape": [8]},
            {"name": "state", "dtype": "f32", "shape": [8]},
            {"name": "y", "dtype": "f32", "shape": row},
            {"name": "z", "dtype": "f32", "shape": row},
        ],
        "constants": [
            {
                "value": "w",
                "parts": [{"file": "weights-00001.bin", "offset_bytes": 256, "size_bytes": 32}],
            }
        ],
        "buffers": [{"value": "state", "init": "w"}],
        "nodes": [
            {"name": "a", "op": "add", "inputs": ["x", "w"], "outputs": ["y"], "attrs": {}},
            {"name": "b", "op": "add", "inputs": ["y", "state"], "outputs": ["z"], "attrs": {}},
        ],
        "inputs": [{"name": "x", "value": "x"}],
        "outputs": [{"name": "z", "value": "z"}],
        "specializations": [{"S": [1, 1]}],
    }


def _value(graph: Json, name: str) -> Json:
    found: Json = next(v for v in graph["values"] if v["name"] == name)
    return found


def _rows(graph: Json, rows: object) -> None:
    """Give x, y and z another number of rows."""
    for name in ("x", "y", "z"):
        _value(graph, name).update(shape=[1, rows, 8])


def _part(graph: Json) -> Json:
    part: Json = graph["constants"][0]["parts"][0]
    return part


GRAPHS: list[tuple[str, Change, str]] = [
    ("no_symbols_object", lambda g: g.update(symbols={}), "symbols"),
    ("symbol_without_range", lambda g: g["symbols"][0].pop("max"), "max"),
    ("symbol_range_reversed", lambda g: g["symbols"][0].update(min=9, max=3), "range 9..3"),
    ("symbol_negative", lambda g: g["symbols"][0].update(min=-1), "range -1..16"),
    ("symbol_twice", lambda g: g["symbols"].append(g["symbols"][0]), "declared twice"),
    ("symbol_past_int32", lambda g: g["symbols"][0].update(max=2**31), "range"),
    ("unknown_symbol", lambda g: _value(g, "x").update(shape=[1, "T", 8]), "'T' is not declared"),
    ("expression_text", lambda g: _value(g, "x").update(shape=[1, "S+1", 8]), "symbol name"),
    (
        "expression_operator",
        lambda g: _value(g, "x").update(shape=[["**", 2, 8]]),
        "not an expression",
    ),
    ("expression_below_zero", lambda g: _rows(g, ["-", "S", 2]), "(S - 2), 8] can be empty"),
    ("expression_past_int32", lambda g: _rows(g, ["*", "S", 2**31 - 1]), "the most is 2147483647"),
    ("constraint_unknown", lambda g: g["constraints"][0].update(expr=["+", "Q", 1]), "'Q'"),
    ("divisor_zero", lambda g: _value(g, "x").update(shape=[["//", 8, "pos"]]), "can be zero"),
    ("dtype", lambda g: _value(g, "x").update(dtype="f64"), "dtype 'f64'"),
    ("negative_extent", lambda g: _value(g, "w").update(shape=[-8]), "extent -8"),
    ("value_twice", lambda g: g["values"].append(g["values"][0]), "defined twice"),
    ("too_large", lambda g: _value(g, "w").update(shape=[46341, 46341]), "32-bit limit"),
    ("constant_bytes", lambda g: _part(g).update(size_bytes=28), "needs 32 bytes"),
    ("constant_file", lambda g: _part(g).update(file="other.bin"), "unknown file"),
    ("constant_alignment", lambda g: _part(g).update(offset_bytes=260), "not aligned"),
    ("constant_past_end", lambda g: _part(g).update(offset_bytes=1024), "past the end"),
    ("constant_symbolic", lambda g: _value(g, "w").update(shape=["S"]), "symbolic shape"),
    ("constant_no_value", lambda g: g["constants"][0].update(value="v"), "no entry in values"),
    ("buffer_init_missing", lambda g: g["buffers"][0].update(init="v"), "no constant"),
    ("buffer_init_shape", lambda g: _value(g, "state").update(shape=[4]), "differ in shape"),
    ("undefined_value", lambda g: g["nodes"][0].update(inputs=["x", "nowhere"]), "never defined"),
    ("cycle", lambda g: g["nodes"][0].update(inputs=["x", "z"]), "a cycle"),
    ("output_twice", lambda g: g["nodes"][1].update(outputs=["y"]), "defined twice"),
    ("output_undeclared", lambda g: g["nodes"][1].update(outputs=["q"]), "no entry in values"),
    ("port_undefined", lambda g: g["outputs"][0].update(value="q"), "never defined"),
    (
        "port_name",
        lambda g: g["outputs"][0].update(name="a:b"),
        "no name for an input or output",
    ),
    (
        "mutates_a_weight",
        lambda g: g["nodes"][0].update(mutates=["w"]),
        "no buffer among its inputs",
    ),
    (
        "mutates_unread",
        lambda g: g["nodes"][0].update(mutates=["state"]),
        "no buffer among its inputs",
    ),
    ("wrong_shape", lambda g: _value(g, "z").update(shape=[1, "S", 9]), "is declared"),
    ("literal_for_symbol", lambda g: _value(g, "y").update(shape=[1, 1, 8]), "is declared"),
    ("unknown_op", lambda g: g["nodes"][0].update(op="frobnicate"), "no operator 'frobnicate'"),
    ("specialization_unknown", lambda g: g["specializations"].append({"T": [1, 1]}), "'T'"),
    (
        "specialization_outside",
        lambda g: g["specializations"].append({"S": [1, 99]}),
        "leaves 1..16",
    ),
    ("attr_object", lambda g: g["nodes"][0].update(attrs={"a": {"code": "1"}}), "attribute object"),
    ("node_inputs", lambda g: g["nodes"][0].update(inputs=[1]), "value names"),
]


def good_manifest() -> Json:
    """Return the manifest of a bundle with one file."""
    return {
        "format": "tabfire",
        "version": 1,
        "model": {"name": "tiny"},
        "files": [{"path": "graph.json", "size_bytes": 2, "sha256": "00" * 32}],
    }


MANIFESTS: list[tuple[str, Change, str]] = [
    ("other_format", lambda m: m.update(format="gguf"), "format is 'gguf'"),
    ("later_version", lambda m: m.update(version=2), "version 2"),
    ("no_version", lambda m: m.pop("version"), "version None"),
    ("file_outside", lambda m: m["files"][0].update(path="../secret"), "leads out of the bundle"),
    (
        "file_absolute",
        lambda m: m["files"][0].update(path="/etc/passwd"),
        "leads out of the bundle",
    ),
    (
        "file_other_site",
        lambda m: m["files"][0].update(path="https://x/y"),
        "leads out of the bundle",
    ),
    ("file_size", lambda m: m["files"][0].update(size_bytes="2"), "size_bytes"),
    ("files_object", lambda m: m.update(files={}), "files"),
]
