"""Packing and quantising: bit layout, exactness, the named convention, and damaged scales.

Input:  small codes and weights. Output: none.
Way of the data: `schemes`, `quantize` and `ops` against values computed by hand.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
import torch

from exporter import ops
from exporter.quantize import QuantEmbedding, QuantLinear, dequantize, pack, quantize
from exporter.schemes import SCHEMES, effective_group, group_count, padded_width
from runtime_py.errors import ExportError, InputError
from tests import tolerances

SHAPES = [(1, 8, 8), (3, 32, 32), (7, 80, 32), (5, 33, 33), (2, 97, 16), (3, 96, 32), (4, 64, 64)]


def by_hand(
    codes: torch.Tensor, scales: torch.Tensor, mins: torch.Tensor | None, group: int, offset: int
) -> torch.Tensor:
    groups = torch.arange(codes.shape[1]) // group
    numbers = (codes.float() - offset) * scales[:, groups]
    return numbers if mins is None else numbers + mins[:, groups]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("rows", "columns", "group"), SHAPES)
def test_pack_then_dequantize_is_exact(scheme: str, rows: int, columns: int, group: int) -> None:
    kind = SCHEMES[scheme]
    torch.manual_seed(rows * columns)
    codes = torch.randint(kind.least, kind.greatest + 1, (rows, columns))
    width = effective_group(scheme, group, columns)
    scales = torch.rand(rows, -(-columns // width))
    mins = torch.rand_like(scales) if kind.affine else None
    packed, stored = pack(codes, scales, mins, scheme, group)
    assert packed.shape == (rows, padded_width(scheme, columns) // kind.codes_per_word)
    assert packed.dtype == torch.int32
    groups = group_count(scheme, group, columns)
    assert stored.shape == ((rows, groups, 2) if kind.affine else (rows, groups + groups % 2))
    found = dequantize(packed, stored, scheme, group, columns)
    assert torch.equal(found, by_hand(codes, scales, mins, width, kind.offset))


def test_example_of_the_format_page() -> None:
    text = (Path(__file__).parents[1] / "docs" / "FORMAT.md").read_text(encoding="utf-8")
    found = re.search(
        r"w = (\[.*?\]): scale .*?codes = w \+ 8 =\s(\[.*?\])\..*?u32 0x(\w+);", text, re.DOTALL
    )
    assert found is not None
    weight = torch.tensor([json.loads(found[1])], dtype=torch.float32)
    codes, scales, mins = quantize(weight, "q4gsw", 8)
    assert codes[0].tolist() == json.loads(found[2])
    packed, stored = pack(codes, scales, mins, "q4gsw", 8)
    assert packed[0].view(torch.uint32).tolist() == [int(found[3], 16), 0, 0, 0]
    assert stored.dtype == torch.float16
    assert stored[0].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert dequantize(packed, stored, "q4gsw", 8, 8).equal(weight)


def test_nibble_order_is_that_of_the_kernels() -> None:
    packed, _ = pack(torch.arange(8)[None], torch.ones(1, 1), None, "q4gsw", 8)
    word = int(packed[0, 0]) & 0xFFFFFFFF
    assert [(word & 0x0F0F0F0F) >> 8 * b & 0xFF for b in range(4)] == [0, 1, 2, 3]
    assert [(word >> 4 & 0x0F0F0F0F) >> 8 * b & 0xFF for b in range(4)] == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("group", "wanted"),
    [([1.0] * 32, [1.0] * 32), ([-1.0, 1.0] * 16, [-1.0, 1.0] * 16)],
    ids=["all-ones", "minus-one-to-one"],
)
def test_symmetric_convention_is_peak_over_seven(group: list[float], wanted: list[float]) -> None:
    layer = QuantLinear.from_float(torch.tensor([group]), None, "q4gsw", 32)
    assert layer.dense()[0].tolist() == wanted


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("value", [0.0, 1e-40, -1e-45], ids=str)
def test_rows_of_nothing_are_zero_and_finite(scheme: str, value: float) -> None:
    weight = torch.randn(3, 64)
    weight[1] = value
    layer = QuantLinear.from_float(weight, None, scheme, 32)
    assert torch.isfinite(layer.scales).all()
    assert torch.count_nonzero(layer.dense()[1]) == 0
    assert torch.isfinite(layer(torch.ones(1, 64))).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_small_weights_keep_their_precision(dtype: torch.dtype) -> None:
    weight = (torch.rand(17, 64, generator=torch.Generator().manual_seed(0)) - 0.5) * 0.02
    codes, scales, mins = quantize(weight, "q4gsw", 32, scale_dtype=dtype)
    packed = pack(codes, scales, mins, "q4gsw", 32)
    assert packed[1].dtype == dtype or dtype == torch.float16  # a subnormal scale is stored as f32
    error = (dequantize(*packed, "q4gsw", 32, 64) - weight).abs().view(17, 2, 32)
    peak = weight.abs().view(17, 2, 32).amax(-1, keepdim=True)
    assert (error <= tolerances.QUANT_STEP_OF_PEAK[4] * peak).all()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("columns", [80, 33, 64])
def test_quantised_weights_are_within_half_a_step(scheme: str, columns: int) -> None:
    weight = torch.randn(5, columns, generator=torch.Generator().manual_seed(1))
    layer = QuantLinear.from_float(weight, None, scheme, 32)
    bits = SCHEMES[scheme].bits
    peak = weight.abs().max() * (2 if SCHEMES[scheme].affine else 1)
    assert (layer.dense() - weight).abs().max() <= tolerances.QUANT_STEP_OF_PEAK[bits] * peak


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_damaged_scales_are_refused_by_name(bad: float) -> None:
    scales = torch.ones(2, 2)
    scales[1, 1] = bad
    codes = torch.zeros(2, 64, dtype=torch.int64)
    with pytest.raises(ExportError, match=r"blk\.3\.attn_q\.weight: scales hold NaN or infinity"):
        pack(codes, scales, None, "q4gsw", 32, "blk.3.attn_q.weight")
    with pytest.raises(ExportError, match="minima hold NaN"):
        pack(codes, torch.ones(2, 2), scales, "q4gaw", 32)
    with pytest.raises(ExportError, match="gate holds NaN"):
        quantize(scales, "q8gsw", 4, name="gate")


@pytest.mark.parametrize(
    ("codes", "scales", "group", "match"),
    [
        (torch.full((1, 32), 16), torch.ones(1, 1), 32, "16"),
        (torch.zeros(1, 32, dtype=torch.int64), torch.ones(1, 2), 32, r"\[1, 1\]"),
        (torch.zeros(1, 32, dtype=torch.int64), torch.ones(1, 3), 12, "multiples of 8"),
        (torch.zeros(1, 32, dtype=torch.int64), torch.ones(1, 1), 0, "multiples of 8"),
        (torch.zeros(0, 32, dtype=torch.int64), torch.ones(0, 1), 32, "expected"),
    ],
    ids=["code-16", "scale-count", "group-12", "group-0", "no-rows"],
)
def test_wrong_packing_is_refused(
    codes: torch.Tensor, scales: torch.Tensor, group: int, match: str
) -> None:
    with pytest.raises(ExportError, match=match):
        pack(codes, scales, None, "q4gsw", group)


def test_unknown_scheme_is_refused() -> None:
    with pytest.raises(ExportError, match="q3"):
        pack(torch.zeros(1, 8), torch.ones(1, 1), None, "q3", 8)


def test_scales_that_f16_cannot_hold_stay_f32() -> None:
    codes = torch.zeros(1, 64, dtype=torch.int64)
    for scale, dtype in ((0.5, torch.float16), (0.1, torch.float32), (2.0**-20, torch.float32)):
        _, stored = pack(codes, torch.full((1, 2), scale), None, "q4gsw", 32)
        assert stored.dtype == dtype
        assert float(stored[0, 0]) == float(torch.tensor(scale))


def test_only_the_scale_of_row_4_group_2_counts() -> None:
    """Odd groups a row: every row must use its own scales."""
    scales = torch.zeros(5, 3)
    scales[4, 2] = 2.0
    layer = QuantLinear.from_blocks(torch.full((5, 96), 9), scales, None, "q4gsw", 32)
    assert layer(torch.ones(1, 96))[0].tolist() == [0, 0, 0, 0, 64.0]


@pytest.mark.parametrize("group", [16, 32, 64, 128, 256, 512, 2048])
def test_every_group_size_counts(group: int) -> None:
    codes = torch.full((3, 2048), 7)
    layer = QuantLinear.from_blocks(
        codes, torch.full((3, 2048 // group), 0.5), None, "q4gsw", group
    )
    assert layer(torch.ones(1, 2048))[0].tolist() == [-1024.0] * 3


def test_linear_and_embedding_agree_with_the_dense_weight() -> None:
    torch.manual_seed(0)
    weight, bias, x = torch.randn(13, 80), torch.randn(13), torch.randn(2, 3, 80).double()
    layer = QuantLinear.from_float(weight, bias, "q4gaw", 32)
    dense = layer.dense()
    assert torch.equal(
        ops.linear_q(x, layer.codes, layer.scales, bias.double(), "q4gaw", 32, 80),
        torch.nn.functional.linear(x, dense.double(), bias.double()),
    )
    table = QuantEmbedding.from_float(weight, "q8gsw", 16)
    ids = torch.tensor([[5, 0], [12, 5]])
    assert torch.equal(table(ids), table.dense()[ids])
    with pytest.raises(InputError, match=r"\[13, -1\] are outside the vocabulary of 13"):
        table(torch.tensor([1, 13, -1]))
    with pytest.raises(InputError, match="79 columns"):
        layer(torch.ones(1, 79))


@pytest.mark.parametrize("scheme", ["q4gsw", "q4gaw", "q8gsw"])
def test_a_scheme_s_own_operator_is_the_general_one(scheme: str) -> None:
    torch.manual_seed(1)
    weight, bias, x = torch.randn(5, 64), torch.randn(5), torch.randn(2, 64)
    layer = QuantLinear.from_float(weight, bias, scheme, 32)
    own = getattr(ops, f"linear_{scheme}")
    found = own(x, layer.codes, layer.scales, group=32, in_features=64, bias=bias)
    assert torch.equal(found, layer(x))
    assert tolerances.accept(found, x @ layer.dense().T + bias, *tolerances.LINEAR)


def test_a_4_bit_table_s_own_operator_is_the_general_one() -> None:
    table = QuantEmbedding.from_float(torch.randn(5, 64), "q4gsw", 32)
    ids = torch.tensor([[4, 0]])
    found = ops.embedding_q4gsw(ids, table.codes, table.scales, group=32, width=64)
    assert torch.equal(found, table.dense()[ids])


def test_weights_are_kept_only_inside_the_context() -> None:
    layer = QuantLinear.from_float(torch.randn(4, 32), None, "q4gsw", 32)
    with ops.cached_weights():
        first = layer(torch.ones(1, 32))
        layer.scales.zero_()
        assert torch.equal(layer(torch.ones(1, 32)), first)
    assert torch.count_nonzero(layer(torch.ones(1, 32))) == 0


def test_a_large_head_packs_in_seconds() -> None:
    codes = torch.randint(0, 16, (32064, 2048), dtype=torch.uint8)  # a quarter of Llama 3's head
    started = time.monotonic()
    packed, _ = pack(codes, torch.ones(32064, 64), None, "q4gsw", 32)
    assert packed.shape == (32064, 256)
    assert time.monotonic() - started < 20
