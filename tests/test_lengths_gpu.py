"""One graph serves every length, up and down; sizes that are awkward for WebGPU are exact or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import exporter
from exporter import QuantLinear, Sym, ops
from runtime_py.errors import FeatureMissingError, InputError, UserError
from tests import gpu, oracles, tolerances
from tests.cases import (
    DYNAMIC_BACK,
    DYNAMIC_DOWN,
    DYNAMIC_LINEAR_F32,
    DYNAMIC_LINEAR_Q4,
    DYNAMIC_SDPA,
    ramp,
)
from tests.tolerances import require

pytestmark = pytest.mark.gpu


# -- one graph, many lengths


def check_lengths(
    name: str,
    module: nn.Module,
    width: int,
    want: Callable[[np.ndarray[Any, Any]], Any],
    pair: tolerances.Pair,
    host: str = gpu.HOST,
) -> None:
    """Run S = 128, 64, 8, 1 and 128, 1, 64, 8, 128 on one graph of x `[1, S, width]`."""
    rows = {"S": Sym(1, 128, at=("x", 1))}
    folder = gpu.bundle(name, lambda: (module, {"x": torch.zeros(1, 3, width)}, rows, ()))
    lengths = (*DYNAMIC_DOWN, *DYNAMIC_BACK)
    inputs = [ramp((1, s, width), 17, 8, 16, i) for i, s in enumerate(lengths)]
    steps = [gpu.step({"x": x}, S=s) for x, s in zip(inputs, lengths, strict=True)]
    for x, s, got in zip(inputs, lengths, exporter.run(folder, steps, host=host), strict=True):
        require(got["output"], want(x), pair, f"S = {s}")


def test_lengths_rms_norm() -> None:
    weight = gpu.tensor(64, mod=11, off=-3, den=8).numpy()
    module = gpu.Norm(64)
    check_lengths(
        "lengths-norm", module, 64, lambda x: oracles.rms_norm(x, weight, gpu.EPS), tolerances.NORM
    )


@pytest.mark.parametrize(("n", "k"), DYNAMIC_LINEAR_F32)
def test_lengths_linear(n: int, k: int) -> None:
    torch.manual_seed(0)
    module = nn.Linear(k, n).requires_grad_(False)
    weight, bias = module.weight.double().numpy(), module.bias.double().numpy()

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.inner(x)
            return y

    check_lengths(
        f"lengths-linear-{k}", Wrapped(), k, lambda x: x @ weight.T + bias, tolerances.LINEAR
    )


def check_linear_q4(k: int, n: int, group: int, host: str) -> None:
    torch.manual_seed(0)
    plain = nn.Linear(k, n, bias=False)
    module = QuantLinear.from_float(plain.weight.detach(), None, "q4gsw", group)
    dense = module.dense().double().numpy()
    check_lengths(f"lengths-q4-{k}", module, k, lambda x: x @ dense.T, tolerances.LINEAR, host)


@pytest.mark.parametrize(("k", "n", "group"), DYNAMIC_LINEAR_Q4)
def test_lengths_linear_q4(k: int, n: int, group: int) -> None:
    check_linear_q4(k, n, group, gpu.HOST)


@pytest.mark.parametrize(("k", "n", "group"), DYNAMIC_LINEAR_Q4)
def test_lengths_linear_q4_in_subgroups_of_another_size(k: int, n: int, group: int) -> None:
    """The kernels that use subgroups, on SwiftShader (4 threads) above and lavapipe (8) here (34 h)."""
    check_linear_q4(k, n, group, gpu.f16_host())


def test_lengths_sdpa() -> None:
    heads, kv_heads, head_dim, context, lengths = DYNAMIC_SDPA
    folder = gpu.cached_bundle(heads, kv_heads, head_dim, context)
    inputs = [
        {
            "q": ramp((1, s, heads, head_dim), 17, 8, 16, i),
            "k": ramp((1, s, kv_heads, head_dim), 13, 6, 16, i),
            "v": ramp((1, s, kv_heads, head_dim), 11, 5, 16, i),
        }
        for i, s in enumerate(lengths)
    ]
    steps = [gpu.step(x, S=s, input_pos=0) for x, s in zip(inputs, lengths, strict=True)]
    for x, s, got in zip(inputs, lengths, exporter.run(folder, steps, reset=True), strict=True):
        require(
            got["output"], oracles.sdpa(x["q"], x["k"], x["v"], 0), tolerances.SDPA_F32, f"S = {s}"
        )


class Chain(nn.Module):
    """linear, add, sdpa: x `[1, S, 32]` becomes q, k and v of 4 and 2 heads of 8."""

    k_cache: Tensor
    v_cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv = nn.Linear(32, 64, bias=False)
        self.shift = nn.Parameter(gpu.tensor(64, den=64))
        self.register_buffer("k_cache", torch.zeros(1, 128, 2, 8))
        self.register_buffer("v_cache", torch.zeros(1, 128, 2, 8))

    def forward(self, x: Tensor) -> Tensor:
        mixed = (self.qkv(x) + self.shift).unflatten(-1, (8, 8))
        q, k, v = mixed[:, :, :4], mixed[:, :, 4:6], mixed[:, :, 6:]
        y: Tensor = ops.sdpa_with_kv_cache(q, k, v, self.k_cache, self.v_cache, 0)
        return y


def test_lengths_chain() -> None:
    module = Chain().requires_grad_(False)
    weight, shift = module.qkv.weight.double().numpy(), module.shift.double().numpy()

    def want(x: np.ndarray[Any, Any]) -> Any:
        mixed = (x.astype(np.float64) @ weight.T + shift).reshape(1, -1, 8, 8)
        return oracles.sdpa(mixed[:, :, :4], mixed[:, :, 4:6], mixed[:, :, 6:], 0)

    check_lengths("lengths-chain", module, 32, want, tolerances.SDPA_F32)


# -- sizes that are awkward for WebGPU


def test_odd_counts_of_half_precision() -> None:
    """Buffers and copies are multiples of 4 bytes; 3 elements of 2 bytes are not (34 j)."""
    inputs = [
        gpu.tensor(3).half(),
        gpu.tensor(1).half(),
        gpu.tensor(5, 1).half(),
        gpu.tensor(7).half(),
    ]

    def convert(*given: Tensor) -> Any:
        return tuple(x.float() * 2 for x in given)

    if "shader-f16" not in gpu.features():
        with pytest.raises(FeatureMissingError, match="shader-f16"):
            gpu.run_batch("odd-f16", convert, inputs)
    got = gpu.run_batch("odd-f16", convert, inputs, host=gpu.f16_host())
    for x, y in zip(inputs, got, strict=True):
        require(y, x.double() * 2, tolerances.EXACT)


@pytest.mark.parametrize("count", [1, 3, 5, 63, 65])
def test_odd_counts(count: int) -> None:
    x = gpu.tensor(count)
    got = gpu.run_batch(f"odd-{count}", lambda x: (x + 1, x.reshape(count, 1) * 2), [x])
    require(got[0], x + 1, tolerances.EXACT)
    require(got[1], x.reshape(count, 1) * 2, tolerances.EXACT)


def test_no_tokens_is_a_typed_error() -> None:
    """A binding of size 0 is invalid in WebGPU; S = 0 never gets that far (34 i)."""
    heads, kv_heads, head_dim, context, _ = DYNAMIC_SDPA
    q, kv = (np.zeros((1, 0, h, head_dim), np.float32) for h in (heads, kv_heads))
    folder = gpu.cached_bundle(heads, kv_heads, head_dim, context)
    with pytest.raises(InputError, match="S = 0 is outside its range"):
        exporter.run(folder, [gpu.step({"q": q, "k": kv, "v": kv}, S=0, input_pos=0)])
    with pytest.raises(UserError, match="empty"):
        exporter.export(gpu.Norm(4), {"x": torch.zeros(1, 0, 4)}, "/nowhere/empty", symbols={})
