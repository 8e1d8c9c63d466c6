"""Rows of the linear tables as modules, exported many to a bundle, with their results in float64.

Input:  rows of `cases_linear`. Output: a bundle with one output a row; the inputs it takes; for each
row what it must put out, exactly or by the definition of compute="f16".
Way of the data: `cases_linear` -> linear_models -> `gpu` -> tests.

    layers = Layers(PAST[:20])
    answers = layers.run(options={"tuning": "gpu"})
    require(answers[0], layers.golden(0), PAST[0].close)
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import exporter
from exporter import QuantLinear
from tests import cases_linear, gpu, oracles_linear
from tests.cases_linear import EPS, LinearCase

Floats = oracles_linear.Floats
MAX_INPUTS = 12  # of gpu.Batch
HEAVY_TIMEOUT_S = 1800.0


@functools.lru_cache(maxsize=64)
def arrays_of(case: LinearCase) -> Mapping[str, Any]:
    """Return the arrays of a case, made once."""
    return cases_linear.arrays(case)


class Layer(nn.Module):
    """The layer of one row: norm, product, bias, activation, residual, whatever it has."""

    residual: Tensor | None
    norm_weight: Tensor | None

    def __init__(self, case: LinearCase) -> None:
        super().__init__()
        self.case = case
        data = {name: torch.from_numpy(array) for name, array in arrays_of(case).items()
                if name != "codes"}  # fmt: skip
        self.parts = nn.ModuleList(self._products(case, data))
        self.register_buffer("residual", data.get("residual"))
        self.register_buffer("norm_weight", data.get("norm_weight"))

    @staticmethod
    def _products(case: LinearCase, data: Mapping[str, Tensor]) -> list[nn.Module]:
        """Return the product, or those of gate and up."""
        if case.scheme == "f32":
            layer = nn.Linear(case.k, case.n, bias=case.bias)
            layer.weight.data = data["weight"]
            if case.bias:
                layer.bias.data = data["bias"]
            return [layer.requires_grad_(False)]
        codes = torch.from_numpy(arrays_of(case)["codes"].view(np.int32))
        bounds = range(0, case.rows, case.n)
        return [QuantLinear(codes[i : i + case.n].clone(), data["scales"][i : i + case.n].clone(),
                            case.scheme, case.group, case.k, data.get("bias"))
                for i in bounds]  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Return y `[1, M, N]` of x `[1, M, K]`."""
        if self.norm_weight is not None:
            x = nn.functional.rms_norm(x, self.norm_weight.shape, self.norm_weight, EPS)
        y: Tensor = self.parts[0](x)
        if self.case.act == "silu":
            y = nn.functional.silu(y) * self.parts[1](x)
        elif self.case.act == "gelu_tanh":
            y = nn.functional.gelu(y, approximate="tanh") * self.parts[1](x)
        return y if self.residual is None else self.residual + y


class Table(gpu.Batch):
    """The layers of several rows; rows of equal M and K read the same input."""

    def __init__(self, cases: Sequence[LinearCase]) -> None:
        super().__init__(self._outputs)
        self.layers = nn.ModuleList(Layer(case) for case in cases)
        self.sizes, self.reads = sizes(cases), [(case.m, case.k) for case in cases]

    def _outputs(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(self.sizes, inputs, strict=True))
        return tuple(
            layer(given[size]) for layer, size in zip(self.layers, self.reads, strict=True)
        )


def sizes(cases: Sequence[LinearCase]) -> list[tuple[int, int]]:
    """Return the different (M, K) of some rows, in order."""
    return list(dict.fromkeys((case.m, case.k) for case in cases))


class Layers:
    """Some rows as one bundle, exported when first run; `name` must tell it from others."""

    def __init__(self, name: str, cases: Sequence[LinearCase]) -> None:
        self.name, self.cases = name, tuple(cases)
        assert len(sizes(self.cases)) <= MAX_INPUTS

    @functools.cached_property
    def inputs(self) -> dict[str, Any]:
        """The inputs by name, x of every (M, K)."""
        of_size = {(case.m, case.k): arrays_of(case)["x"] for case in self.cases}
        return {f"x{i}": of_size[size] for i, size in enumerate(sizes(self.cases))}

    @functools.cached_property
    def folder(self) -> pathlib.Path:
        """The bundle."""
        named = {name: torch.from_numpy(x) for name, x in self.inputs.items()}
        return gpu.bundle(self.name, lambda: (Table(self.cases), named, {}, ()))

    def run(
        self, options: Mapping[str, Any] | None = None, host: str = gpu.HOST
    ) -> tuple[list[gpu.Array], list[dict[str, Any]]]:
        """Return y of every row, and the dispatches of the report (node, kernel, key, reason)."""
        with gpu.opened(self.folder, options, host) as session:
            outputs = session.run(self.inputs)
            (program,) = session.report()["programs"]
        return list(outputs.values()), program["dispatches"]

    def run_heavy(
        self, options: Mapping[str, Any] | None = None, host: str = gpu.HOST
    ) -> list[gpu.Array]:
        """Return y of every row, with time for a CPU adapter to do minutes of work."""
        steps = [{"inputs": self.inputs}]
        (outputs,) = exporter.run(
            self.folder, steps, options=options, host=host, timeout_s=HEAVY_TIMEOUT_S
        )
        return list(outputs.values())


def golden(case: LinearCase, *, f16: bool = False, data: Mapping[str, Any] | None = None) -> Floats:
    """Return y in float64 from `data` (the case's own arrays); with `f16` of x (after its norm) and a
    weight that were rounded to f16.
    """
    data = arrays_of(case) if data is None else data
    x = data["x"].astype(np.float64)
    if case.norm:
        x = oracles_linear.rms_norm(x, data["norm_weight"], EPS)
    weight = data["weight"] if case.scheme == "f32" else oracles_linear.dequantise(
        data["codes"], data["scales"], case.scheme, case.group, case.k)  # fmt: skip
    if f16:
        x, weight = oracles_linear.in_f16(x), oracles_linear.in_f16(weight)
    if case.act != "none":
        return oracles_linear.gated(x, weight, case.act)
    return oracles_linear.linear(x, weight, data.get("bias"), data.get("residual"))
