"""What an adapter's objects say, from stand-ins for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runtime_py.device_facts import MATRICES, read_caps, typed
from runtime_py.errors import AbortedError, IntegrityError, InternalError


def config(component: str, result: str, m: int = 16, n: int = 16, k: int = 16) -> Any:
    return SimpleNamespace(componentType=component, resultComponentType=result, M=m, N=n, K=k)


def adapter(**info: Any) -> Any:
    known = {"vendor": "v", "architecture": "a", "description": "d"}
    return SimpleNamespace(info=SimpleNamespace(**known, **info))


@pytest.mark.parametrize(
    ("configs", "able"),
    [
        ([config("f16", "f16"), config("f16", "f32")], True),
        ([config("f16", "f16"), config("i8", "i32", k=32)], False),
        ([config("f16", "f32", n=8)], False),
        ([], False),
        (None, False),
    ],
)
def test_matrices_need_halves_with_sums_in_f32(configs: Any, able: bool) -> None:
    device = adapter(subgroupMatrixConfigs=configs, subgroupMinSize=32, subgroupMaxSize=32)
    assert read_caps(device, [MATRICES], {}).subgroup_matrix is able
    assert read_caps(device, [], {}).subgroup_matrix is False


def test_an_adapter_without_subgroups_has_sizes_of_zero() -> None:
    caps = read_caps(adapter(), ["shader-f16"], {"maxBufferSize": 7})
    assert (caps.subgroup_min, caps.subgroup_max) == (0, 0)
    assert caps.limit("maxBufferSize") == 7


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("integrity|weights differ", IntegrityError),
        ("aborted|stopped", AbortedError),
        ("anything | else", InternalError),
    ],
)
def test_errors_of_the_web_side_are_typed(text: str, kind: type[Exception]) -> None:
    assert type(typed(SimpleNamespace(message=text, name="Error"))) is kind
