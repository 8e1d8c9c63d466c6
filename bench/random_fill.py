"""Fills the weight shards of a skeleton bundle with random numbers of a trained model's magnitudes.

Input:  a folder with graph.json and manifest.json, whose shards are missing; a seed.
Output: weights-*.bin, and their sizes and hashes in manifest.json. Same seed, same bytes.
Way of the data: `random_llama --skeleton` -> a small folder that is easily carried -> fill -> a
bundle. numpy is all it needs, so the large half can be made where there is no torch.

Every weight has the deviation K ** -0.5 (K its input width), those that write to the residual
(2 * layers) ** -0.5 of it, the embedding 0.02: activations keep their size through any depth.

    fill(pathlib.Path("models/random"), seed=0)
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

CODE_DEVIATION = {"q4gsw": 4.637, "q8gsw": 73.9}  # of uniform codes
EMBEDDING_DEVIATION = 0.02
RESIDUAL = (".out.", ".down.")
ALIGNMENT_BYTES = 256


@dataclass(frozen=True)
class Product:
    """What a constant's reader says of it: the scheme of its codes, K, and the deviation wanted."""

    scheme: str
    deviation: float


def fill(folder: pathlib.Path, seed: int = 0) -> int:
    """Write all shards of the skeleton in `folder` and return their bytes.

    Raises `ValueError` on a constant that is neither codes, scales, a norm nor the frequencies.
    """
    graph = json.loads((folder / "graph.json").read_text(encoding="utf-8"))
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    values = {value["name"]: value for value in graph["values"]}
    products = _products(graph, manifest["model"]["layers"])
    files: dict[str, BinaryIO] = {}
    try:
        for index, constant in enumerate(graph["constants"]):
            name = constant["value"]
            rng = np.random.default_rng([seed, index])
            data = _content(values[name], products.get(name), manifest["model"], rng)
            _place(folder, files, constant["parts"], data)
    finally:
        for file in files.values():
            file.close()
    sizes = {name: _seal(folder / name) for name in files}
    _describe(folder, manifest, sizes)
    return sum(size for size, _ in sizes.values())


def _products(graph: Mapping[str, Any], layers: int) -> dict[str, Product]:
    """Return constant -> what the node that reads it as codes or scales says."""
    found: dict[str, Product] = {}
    for node in graph["nodes"]:
        attrs = node.get("attrs", {})
        if "scheme" not in attrs:
            continue
        for name in node["inputs"]:
            embedding = node["op"] == "embedding_q"
            if name is None or (name in found and not embedding):
                continue  # a tied head reads the embedding's constants
            width = attrs.get("in_features") or attrs["width"]
            deviation = EMBEDDING_DEVIATION if embedding else width**-0.5
            if any(word in name for word in RESIDUAL):
                deviation *= (2 * layers) ** -0.5
            found[name] = Product(attrs["scheme"], deviation)
    return found


def _content(
    value: Mapping[str, Any],
    product: Product | None,
    model: Mapping[str, Any],
    rng: np.random.Generator,
) -> bytes:
    """Return a constant's bytes, little-endian."""
    dtype, count = value["dtype"], int(np.prod(value["shape"]))
    numbers: np.ndarray[Any, Any]
    if value["name"] == "inv_freq":
        exponent = np.arange(0, model["head_dim"], 2) / model["head_dim"]
        numbers = (model["rope_base"] ** -exponent).astype("<f4")
        return numbers.tobytes()
    if dtype == "u32":
        return rng.bytes(4 * count)
    if dtype == "f16" and product is not None:
        # Signs are random too: uniform nibbles have a mean of -0.5 around their offset.
        size = rng.uniform(0.8, 1.2, count) * product.deviation / CODE_DEVIATION[product.scheme]
        numbers = (size * rng.choice([-1.0, 1.0], count)).astype("<f2")
        return numbers.tobytes()
    if dtype == "f32" and len(value["shape"]) == 1:
        return (1 + 0.05 * rng.standard_normal(count)).astype("<f4").tobytes()
    raise ValueError(f"constant {value['name']} ({dtype} {value['shape']}) has no known content")


def _place(
    folder: pathlib.Path, files: dict[str, BinaryIO], parts: list[dict[str, Any]], data: bytes
) -> None:
    at = 0
    for part in parts:
        name = part["file"]
        if name not in files:
            files[name] = (folder / name).open("wb")
        files[name].seek(part["offset_bytes"])
        files[name].write(data[at : at + part["size_bytes"]])
        at += part["size_bytes"]
    if at != len(data):
        raise ValueError(f"{len(data)} bytes for parts of {at}")


def _seal(path: pathlib.Path) -> tuple[int, str]:
    """Pad a shard to whole alignments, as the exporter writes it; return its size and sha256."""
    with path.open("ab") as file:
        file.write(bytes(-file.tell() % ALIGNMENT_BYTES))
    with path.open("rb") as file:
        return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()


def _describe(
    folder: pathlib.Path, manifest: dict[str, Any], sizes: Mapping[str, tuple[int, str]]
) -> None:
    others = [entry for entry in manifest["files"] if entry["path"] not in sizes]
    shards = [
        {"path": name, "size_bytes": size, "sha256": digest}
        for name, (size, digest) in sizes.items()
    ]
    manifest["files"] = sorted(others + shards, key=lambda entry: str(entry["path"]))
    text = json.dumps(manifest, indent=1, ensure_ascii=False)
    (folder / "manifest.json").write_text(text + "\n", encoding="utf-8", newline="")
