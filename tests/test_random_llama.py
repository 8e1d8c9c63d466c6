"""Bundles of random weights: the fill writes what the manifest says, the same every time, and the bundle generates."""

from __future__ import annotations

import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from bench.random_fill import fill
from bench.random_llama import SHAPES, make_skeleton
from exporter.headless import open_model
from runtime_py.schema import Graph

TINY = SHAPES["tiny"]
pytestmark = pytest.mark.tools  # a skeleton takes torch.export


@pytest.fixture(scope="module")
def skeleton(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("random") / "tiny"
    make_skeleton(TINY, folder, name="tiny")
    return folder


@pytest.fixture(scope="module")
def bundle(skeleton: pathlib.Path) -> pathlib.Path:
    folder = skeleton.parent / "filled"
    shutil.copytree(skeleton, folder)
    fill(folder, seed=1)
    return folder


def digests(folder: pathlib.Path) -> dict[str, str]:
    return {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.glob("weights-*.bin")
    }


def constant(folder: pathlib.Path, name: str) -> np.ndarray[Any, Any]:
    graph = Graph.from_json(json.loads((folder / "graph.json").read_text()))
    data = b""
    for part in graph.constants[name].parts:
        data += (folder / part.file).read_bytes()[
            part.offset_bytes : part.offset_bytes + part.size_bytes
        ]
    return np.frombuffer(data, {"f16": "<f2", "f32": "<f4", "u32": "<u4"}[graph.values[name].dtype])


def test_a_skeleton_has_no_shards(skeleton: pathlib.Path) -> None:
    assert sorted(p.name for p in skeleton.iterdir()) == [
        "graph.json",
        "manifest.json",
        "tokenizer.json",
    ]


def test_files_are_as_the_manifest_says(bundle: pathlib.Path) -> None:
    listed = {f["path"]: f for f in json.loads((bundle / "manifest.json").read_text())["files"]}
    assert {p.name for p in bundle.iterdir()} == {*listed, "manifest.json"}
    for name, entry in listed.items():
        data = (bundle / name).read_bytes()
        assert (entry["size_bytes"], entry["sha256"]) == (
            len(data),
            hashlib.sha256(data).hexdigest(),
        ), name


@pytest.mark.parametrize(("seed", "same"), [(1, True), (2, False)])
def test_the_seed_decides_every_byte(
    skeleton: pathlib.Path, bundle: pathlib.Path, tmp_path: pathlib.Path, seed: int, same: bool
) -> None:
    shutil.copytree(skeleton, tmp_path / "again")
    fill(tmp_path / "again", seed)
    assert (digests(tmp_path / "again") == digests(bundle)) == same


def test_magnitudes_are_a_trained_models(bundle: pathlib.Path) -> None:
    graph = Graph.from_json(json.loads((bundle / "graph.json").read_text()))
    scales = [name for name in graph.constants if "scales" in name]
    for name in scales:
        found = constant(bundle, name).astype(np.float64)
        assert np.isfinite(found).all(), name
        assert (np.abs(found) > 2.0**-14).all(), f"{name}: a GPU may flush these to zero"
    head_dim, base = TINY.head_dim, TINY.rope_base
    assert constant(bundle, "inv_freq")[:2] == pytest.approx([1.0, base ** (-2 / head_dim)])
    down = np.abs(constant(bundle, "layers.0.mlp.down.scales")).mean()
    assert down == pytest.approx(TINY.mlp**-0.5 / 4.637 * (2 * TINY.layers) ** -0.5, rel=0.05)


def test_filling_needs_no_torch() -> None:
    words = "import sys, bench.random_llama; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", words], check=False).returncode == 0


@pytest.mark.gpu
def test_it_loads_and_generates(bundle: pathlib.Path) -> None:
    with open_model(bundle) as model:
        answer = model.generate({"prompt": [700, 800, 900], "options": {"max_tokens": 5}})
        call = {"handle": model.info["handle"], "ids": [700, 800, 900], "input_pos": 0}
        logits = model.host.call("logits", call)[1]["logits"]
    assert len(answer["ids"]) == 5
    assert logits.shape[-1] == TINY.vocabulary
    assert 0.01 < float(logits.std()) < 10, "neither vanished nor blown up (nan fails as well)"
