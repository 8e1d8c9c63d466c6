"""The Llama family, eagerly: against an oracle in float64, in pieces and whole.

Input:  tiny random models. Output: none.
Way of the data: `Llama` over `RandomWeights`, and over checkpoints that the oracle reads too.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from exporter import ops
from exporter.models.llama import Llama, LlamaConfig, RopeScaling, inverse_frequencies
from exporter.models.weights import RandomWeights
from runtime_py.errors import ContextFullError, ExportError, InputError
from tests import tolerances

BASE = LlamaConfig(
    width=48, layers=2, heads=6, kv_heads=2, head_dim=8, mlp=97, vocabulary=101, max_context=32
)
CONFIGS = {
    "gqa": BASE,
    "mha": replace(BASE, kv_heads=6),
    "mqa": replace(BASE, kv_heads=1),
    "wide-heads": replace(BASE, heads=4, head_dim=32),
    "tied": replace(BASE, tied_head=True),
    "qwen2": replace(BASE, qkv_bias=True),
    "all-biases": replace(BASE, qkv_bias=True, out_bias=True, mlp_bias=True),
    "qwen3": replace(BASE, qk_norm=True, head_dim=16),
    "one-token-context": replace(BASE, max_context=1),
}
IDS = [3, 100, 0, 41, 5, 9, 2, 6, 53]


@pytest.mark.parametrize("name", [n for n in CONFIGS if n != "one-token-context"])
@pytest.mark.parametrize("cut", [(9,), (1,) * 9, (4, 1, 1, 3), (8, 1)], ids=str)
def test_pieces_give_the_logits_of_the_whole(name: str, cut: tuple[int, ...]) -> None:
    model = Llama(CONFIGS[name], RandomWeights(0))
    whole = model.logits(IDS)
    model.reset()
    pieces, position = [], 0
    for count in cut:
        pieces.append(model.logits(IDS[position : position + count], position))
        position += count
    torch.testing.assert_close(torch.cat(pieces), whole, **tolerances.EAGER_F32)


def test_a_pinned_position_would_be_noticed() -> None:
    model = Llama(BASE, RandomWeights(0))
    whole = model.logits(IDS)
    model.reset()
    pinned = torch.cat([model.logits([i], 0) for i in IDS])
    assert (pinned - whole).abs().max() > 0.1


@pytest.mark.parametrize(("name", "rows"), [("wide-heads", 128), ("qwen3", 96)])
def test_head_width_need_not_be_width_over_heads(name: str, rows: int) -> None:
    tensors = Llama(CONFIGS[name], RandomWeights(0)).state_dict()
    assert tensors["layers.0.attention.q.weight"].shape == (rows, 48)
    assert tensors["layers.0.attention.out.weight"].shape == (48, rows)


def test_last_rows_are_the_last_logits() -> None:
    model = Llama(BASE, RandomWeights(0))
    whole = model.logits(IDS)
    model.reset()
    with torch.no_grad():
        last = model(torch.tensor([IDS]), 0, 2)
    assert last.shape == (1, 2, 101)
    torch.testing.assert_close(last[0], whole[-2:], **tolerances.EAGER_F32)


def test_a_tied_head_is_no_second_tensor() -> None:
    model = Llama(CONFIGS["tied"], RandomWeights(0))
    assert model.head is None
    assert sum(p.shape == (101, 48) for p in model.state_dict().values()) == 1


def test_greedy_starts_afresh() -> None:
    model = Llama(BASE, RandomWeights(0))
    first = model.greedy(IDS, 5)
    assert model.greedy(IDS, 5) == first
    model.reset()
    step = int(model.logits(IDS)[-1].argmax())
    assert first[0] == step


def test_llama3_frequencies_follow_the_formula() -> None:
    """Llama 3.2's numbers, written out as the published code has them, one frequency at a time."""
    scaling = RopeScaling(32.0, 1.0, 4.0, 8192)
    config = replace(BASE, head_dim=64, rope_base=500000.0, rope_scaling=scaling)
    wanted = []
    for i in range(32):
        freq = 500000.0 ** (-2 * i / 64)
        wavelength = 2 * math.pi / freq
        if wavelength > 8192 / 1.0:
            freq /= 32.0
        elif wavelength >= 8192 / 4.0:
            smooth = (8192 / wavelength - 1.0) / (4.0 - 1.0)
            freq = (1 - smooth) * freq / 32.0 + smooth * freq
        wanted.append(freq)
    exact = torch.tensor(wanted, dtype=torch.float64)
    found = inverse_frequencies(config)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, **tolerances.F32_ROUNDING)
    x = torch.randn(1, 1, 2, 64, generator=torch.Generator().manual_seed(0))
    for position in (0, 1000, 8192):
        turned = ops.rope(x, found, position)[0, 0]
        angle = position * exact
        a, b = x[0, 0, :, :32].double(), x[0, 0, :, 32:].double()
        want = torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)
        torch.testing.assert_close(turned.double(), want, **tolerances.EAGER_ROPE)


def test_partial_rotary_in_both_pairings() -> None:
    """Head width 8, half of it turning, base 10000, position 3, x = 1..8: values computed by hand."""
    x = torch.arange(1.0, 9.0).view(1, 1, 1, 8)
    inv_freq = torch.tensor([1.0, 0.01])
    block = [-1.41335, 1.87912, -2.82886, 4.05819, 5, 6, 7, 8]
    pairs = [-1.27223, -1.83886, 2.87867, 4.08819, 5, 6, 7, 8]
    for interleaved, wanted in ((False, block), (True, pairs)):
        found = ops.rope(x, inv_freq, 3, interleaved)[0, 0, 0]
        torch.testing.assert_close(
            found, torch.tensor(wanted, dtype=torch.float32), **tolerances.FIVE_DIGITS
        )
    with pytest.raises(InputError, match="turn 10 columns, x has 8"):
        ops.rope(x, torch.ones(5), 0)


def test_magnitude_factor_shows_at_position_0() -> None:
    factor = 0.1 * math.log(4) + 1
    found = ops.rope(torch.ones(1, 1, 1, 4), torch.ones(2), 0, False, factor)
    torch.testing.assert_close(found, torch.full((1, 1, 1, 4), 1.138629), **tolerances.FIVE_DIGITS)


def test_the_window_counts_the_query_itself() -> None:
    """q = 0 weighs all visible keys alike; V[j] = j; window 4: position 5 sees 2..5, mean 3.5."""
    caches = torch.zeros(1, 8, 1, 4), torch.zeros(1, 8, 1, 4)
    v = torch.arange(6.0).view(1, 6, 1, 1).expand(1, 6, 1, 4)
    zeros = torch.zeros(1, 6, 1, 4)
    out = ops.sdpa_with_kv_cache(zeros, zeros, v, *caches, 0, window=4)
    assert out[0, :, 0, 0].tolist() == [0.0, 0.5, 1.0, 1.5, 2.5, 3.5]


def test_a_row_that_sees_nothing_is_zero() -> None:
    q = torch.randn(1, 3, 2, 4)
    mask = torch.ones(3, 3, dtype=torch.bool)
    mask[1] = False
    plain = ops.sdpa_with_kv_cache(q, q, q, torch.zeros(1, 4, 2, 4), torch.zeros(1, 4, 2, 4), 0)
    masked = ops.sdpa_with_kv_cache(
        q, q, q, torch.zeros(1, 4, 2, 4), torch.zeros(1, 4, 2, 4), 0, mask=mask
    )
    assert torch.count_nonzero(masked[0, 1]) == 0
    assert torch.equal(masked[0, [0, 2]], plain[0, [0, 2]])


@pytest.mark.parametrize(
    ("value", "cache", "position", "error", "match"),
    [
        ((1, 3, 2, 4), (1, 4, 2, 4), 2, ContextFullError, "3 rows at 2 do not fit a cache of 4"),
        ((1, 1, 2, 4), (1, 4, 2, 4), -1, InputError, "input_pos is -1"),
        ((2, 1, 2, 4), (2, 4, 2, 4), 0, InputError, "batch is 1"),
        ((1, 1, 3, 4), (1, 4, 2, 4), 0, InputError, "differ in heads"),
        ((1, 1, 2, 5), (1, 4, 2, 4), 0, InputError, "differ in heads"),
    ],
    ids=["past-the-end", "negative", "batch-2", "heads", "width"],
)
def test_bad_cache_writes_are_refused(
    value: tuple[int, ...],
    cache: tuple[int, ...],
    position: int,
    error: type[Exception],
    match: str,
) -> None:
    buffer = torch.zeros(cache)
    with pytest.raises(error, match=match):
        ops.update_cache(torch.ones(value), buffer, position)
    assert torch.count_nonzero(buffer) == 0


def test_calls_that_cannot_be_answered_are_refused() -> None:
    model = Llama(BASE, RandomWeights(0))
    with pytest.raises(InputError, match="no token ids"):
        model.logits([])
    with pytest.raises(ContextFullError, match="9 tokens at 24 do not fit 32"):
        model.logits(IDS, 24)
    with pytest.raises(InputError, match="last_rows: 4 rows of 3"):
        ops.last_rows(torch.ones(1, 3, 4), 4)


@pytest.mark.parametrize(
    ("change", "match"),
    [({"kv_heads": 4}, "cannot share"), ({"head_dim": 7}, "odd"), ({"layers": 0}, "layers is 0")],
)
def test_impossible_configurations_are_refused(change: dict[str, int], match: str) -> None:
    with pytest.raises(ExportError, match=match):
        replace(BASE, **change)  # type: ignore[arg-type]
