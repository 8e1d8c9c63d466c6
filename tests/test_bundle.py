"""Writing bundles: layout of the shards, sharing, integrity, and what is left behind after a failure.

Input:  small graphs with constants. Output: none.
Way of the data: `exporter.bundle` and `exporter.golden`, read back with `runtime_py.schema` and plain `open`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from exporter import bundle as bundle_module
from exporter.bundle import read_manifest, write_bundle
from exporter.golden import GoldenStep, read_golden
from runtime_py.errors import BadBundleError, ExportError, InternalError
from runtime_py.schema import Constant, Graph, Manifest, Node, Port, Value


def graph_of(**constants: tuple[str, tuple[int, ...]]) -> Graph:
    values = {name: Value(name, dtype, shape) for name, (dtype, shape) in constants.items()}
    values["y"] = Value("y", "f32", (1,))
    return Graph(
        symbols=(),
        constraints=(),
        values=values,
        constants={name: Constant(name, ()) for name in constants},
        buffers={},
        nodes=(Node("n", "copy", tuple(constants), ("y",)),),
        inputs=(),
        outputs=(Port("y", "y"),),
    )


def read_graph(folder: Path) -> Graph:
    return Graph.from_json(json.loads((folder / "graph.json").read_text()))


def read_constant(folder: Path, constant: Constant) -> bytes:
    pieces = []
    for part in constant.parts:
        with open(folder / part.file, "rb") as file:
            file.seek(part.offset_bytes)
            pieces.append(file.read(part.size_bytes))
    return b"".join(pieces)


def content(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_tensors_come_back_from_aligned_parts(tmp_path: Path) -> None:
    tensors = {
        "a": torch.tensor([1.0, -2.5, 3.0]),
        "b": torch.tensor([1.0, 2.0, 3.0], dtype=torch.float16),
        "c": torch.tensor([[-1, 2**31 - 1]]),
        "d": torch.tensor([True, False]),
        "e": torch.tensor([-1], dtype=torch.int32),
        "f": torch.arange(12.0).view(3, 4).T,
        "g": torch.zeros(0, 4),
    }
    kinds = {"a": "f32", "b": "f16", "c": "i32", "d": "u32", "e": "u32", "f": "f32", "g": "f32"}
    graph = graph_of(**{name: (kinds[name], tuple(t.shape)) for name, t in tensors.items()})
    write_bundle(tmp_path / "m", graph, tensors)
    found = read_graph(tmp_path / "m").constants
    assert all(p.offset_bytes % 256 == 0 for c in found.values() for p in c.parts)
    assert found["g"].parts == ()
    read = {name: read_constant(tmp_path / "m", c) for name, c in found.items()}
    assert read["a"] == tensors["a"].numpy().tobytes()
    assert read["b"] == tensors["b"].numpy().tobytes()
    assert read["c"] == b"\xff\xff\xff\xff\xff\xff\xff\x7f"
    assert read["d"] == b"\1\0\0\0\0\0\0\0"
    assert read["e"] == b"\xff\xff\xff\xff"
    assert read["f"] == tensors["f"].contiguous().numpy().tobytes()
    assert (tmp_path / "m" / "weights-00001.bin").stat().st_size == 6 * 256


@pytest.mark.parametrize(
    "sizes", [(64,), (63, 2), (256,), (300,), (128, 128, 1), (200, 900, 1, 50)], ids=str
)
def test_shards_are_bounded_and_parts_consecutive(
    sizes: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With shards of 1 KiB a tensor of 256 floats fills one."""
    monkeypatch.setattr(bundle_module, "MAX_SHARD_BYTES", 1024)
    tensors = {f"t{i}": torch.rand(size) for i, size in enumerate(sizes)}
    write_bundle(
        tmp_path / "m",
        graph_of(**{n: ("f32", tuple(t.shape)) for n, t in tensors.items()}),
        tensors,
    )
    taken: dict[str, int] = {}
    for name, constant in read_graph(tmp_path / "m").constants.items():
        assert read_constant(tmp_path / "m", constant) == tensors[name].numpy().tobytes()
        for part in constant.parts:
            assert part.offset_bytes >= taken.get(part.file, 0)
            taken[part.file] = part.offset_bytes + part.size_bytes
        assert all(part.offset_bytes == 0 for part in constant.parts[1:])
    sizes_on_disk = [p.stat().st_size for p in sorted((tmp_path / "m").glob("weights-*.bin"))]
    assert max(sizes_on_disk) <= 1024
    assert all(size == 1024 for size in sizes_on_disk[:-1])


def test_equal_bytes_are_stored_once(tmp_path: Path) -> None:
    table = torch.rand(7, 11)
    tensors = {"table": table, "head": table, "copy": table.clone(), "other": torch.rand(7, 11)}
    write_bundle(tmp_path / "m", graph_of(**dict.fromkeys(tensors, ("f32", (7, 11)))), tensors)
    found = read_graph(tmp_path / "m").constants
    assert (
        found["table"].parts == found["head"].parts == found["copy"].parts != found["other"].parts
    )


def test_manifest_states_every_file(tmp_path: Path) -> None:
    step = GoldenStep(
        {"x": torch.tensor([[1, 2]])},
        {"S": 2},
        {"y": torch.tensor([0.5])},
        True,
        1e-4,
        0.0,
        "first",
    )
    stated = write_bundle(
        tmp_path / "m",
        graph_of(w=("f32", (2,))),
        {"w": torch.ones(2)},
        text_files={"tokenizer.json": "{}", "chat_template.jinja": "{{ 'é\r\n' }}"},
        text={"tokenizer": "tokenizer.json"},
        model_card={"name": "tiny"},
        generation={"eos_token_id": [1]},
        features=("subgroups",),
        exporter={"stamp": "s"},
        golden=[step],
    )
    files = content(tmp_path / "m")
    found = read_manifest(tmp_path / "m")
    assert found == stated == Manifest.from_json(json.loads(files.pop("manifest.json")))
    assert set(found.files) == set(files)
    for path, data in files.items():
        assert found.files[path].size_bytes == len(data)
        assert found.files[path].sha256 == hashlib.sha256(data).hexdigest()
    assert files["chat_template.jinja"] == "{{ 'é\r\n' }}".encode()
    (again,) = read_golden(tmp_path / "m")
    assert torch.equal(again.inputs["x"], step.inputs["x"])
    assert torch.equal(again.outputs["y"], step.outputs["y"])
    assert (again.symbols, again.reset, again.atol, again.rtol, again.name) == (
        {"S": 2},
        True,
        1e-4,
        0.0,
        "first",
    )


@pytest.mark.parametrize(
    ("kind", "shape", "tensor", "error", "match"),
    [
        ("f32", (2,), torch.ones(2, dtype=torch.bfloat16), ExportError, "bfloat16"),
        ("f32", (2,), torch.ones(2, dtype=torch.float64), ExportError, "float64"),
        ("f16", (2,), torch.ones(2), ExportError, "float32"),
        ("f32", (3,), torch.ones(2), ExportError, r"shape \[2\], its value \[3\]"),
        ("i32", (1,), torch.tensor([2**31]), ExportError, "beyond int32"),
        ("f32", (2,), None, InternalError, "differ"),
    ],
)
def test_tensors_that_do_not_fit_leave_nothing(
    kind: str,
    shape: tuple[int, ...],
    tensor: torch.Tensor | None,
    error: type[Exception],
    match: str,
    tmp_path: Path,
) -> None:
    given = {} if tensor is None else {"w": tensor}
    with pytest.raises(error, match=match):
        write_bundle(tmp_path / "m", graph_of(w=(kind, shape)), given)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_keeps_the_old_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bundle(tmp_path / "m", graph_of(w=("f32", (2,))), {"w": torch.ones(2)})
    before = content(tmp_path / "m")

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(bundle_module, "write_golden", fail)
    with pytest.raises(OSError, match="disk full"):
        write_bundle(tmp_path / "m", graph_of(w=("f32", (2,))), {"w": torch.zeros(2)})
    assert content(tmp_path / "m") == before
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_bundle_replaces_a_bundle_whole(tmp_path: Path) -> None:
    write_bundle(
        tmp_path / "m",
        graph_of(w=("f32", (2,))),
        {"w": torch.ones(2)},
        text_files={"tokenizer.json": "{}"},
    )
    write_bundle(tmp_path / "m", graph_of(w=("f32", (2,))), {"w": torch.zeros(2)})
    assert set(content(tmp_path / "m")) == {"manifest.json", "graph.json", "weights-00001.bin"}
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json"])
def test_a_folder_that_is_no_bundle_is_never_replaced(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"format": "other"}')
    with pytest.raises(ExportError, match="is not a bundle"):
        write_bundle(tmp_path, graph_of(), {})
    assert (tmp_path / name).read_text() == '{"format": "other"}'


def test_what_is_no_bundle_has_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="is not a bundle"):
        read_manifest(tmp_path)
    with pytest.raises(ExportError, match="no golden steps"):
        read_golden(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(BadBundleError, match="format"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("damage", ["{", '{"steps": [{}]}', "[]"], ids=["json", "fields", "list"])
def test_damaged_golden_steps_are_an_export_error(damage: str, tmp_path: Path) -> None:
    step = GoldenStep({"x": torch.ones(1)}, {}, {"y": torch.ones(1)})
    write_bundle(tmp_path / "m", graph_of(), {}, golden=[step])
    (tmp_path / "m" / "golden" / "steps.json").write_text(damage)
    with pytest.raises(ExportError, match="cannot be read"):
        read_golden(tmp_path / "m")
