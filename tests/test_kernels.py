"""Templates: headers, legal keys, rendered text that does not drift, and the compiler's own opinion of it.

After a wanted change: `python -m tests.test_kernels` writes the golden texts anew; read the diff.
"""

from __future__ import annotations

import importlib
import pathlib
import re

import jinja2
import pytest

from runtime_py.errors import InternalError
from runtime_py.kernels import (
    DEFAULT_ROOT,
    KernelLibrary,
    Templates,
    compile_templates,
    is_legal,
    parse_header,
    wgsl_float,
)
from runtime_py.ops import FAMILIES, registry
from runtime_py.ops.base import KernelKey, key

LIBRARY = KernelLibrary()
GOLDEN = pathlib.Path(__file__).parent / "golden_wgsl"


def golden_keys() -> list[KernelKey]:
    """Return the representative keys of all families, every axis value at least once."""
    keys: dict[KernelKey, None] = {}
    for family in FAMILIES:
        for item in importlib.import_module(f"runtime_py.ops.{family}").KEYS:
            keys[item] = None
    return list(keys)


def golden_path(item: KernelKey) -> pathlib.Path:
    axes = ",".join(f"{name}={value}" for name, value in item.axes)
    return GOLDEN / f"{item.kernel}({axes}).wgsl"


@pytest.mark.parametrize("kernel", LIBRARY.names())
def test_a_header_matches_its_template(kernel: str) -> None:
    header = LIBRARY.header(kernel)
    body = (LIBRARY.root / f"{kernel}.wgsl").read_text(encoding="utf-8")
    assert len(body.splitlines()) <= 180
    for field in ("purpose", "formula", "requires", "launch", "accuracy"):
        assert header.fields[field], field
    for axis in header.axes:
        assert len(re.findall(rf"\b{axis}\b", body)) > 1, f"axis {axis} is never used"


@pytest.mark.parametrize("item", golden_keys(), ids=str)
def test_rendered_text_is_the_golden_text(item: KernelKey) -> None:
    assert LIBRARY.render(item) == golden_path(item).read_text(encoding="utf-8")


def test_no_golden_text_is_left_over() -> None:
    assert {p.name for p in GOLDEN.glob("*.wgsl")} == {golden_path(k).name for k in golden_keys()}


@pytest.mark.parametrize("kernel", LIBRARY.names())
def test_every_enumerated_axis_value_has_a_golden_text(kernel: str) -> None:
    keys = [dict(k.axes) for k in golden_keys() if k.kernel == kernel]
    assert keys, f"no golden key for {kernel}"
    for axis, legal in LIBRARY.header(kernel).axes.items():
        seen = {str(axes[axis]) for axes in keys}
        want = (
            {"True", "False"}
            if legal == "bool"
            else {w.strip() for w in legal.split(",") if "," in legal}
        )
        assert want <= seen, f"{kernel}.{axis}: {sorted(want - seen)} never rendered"


@pytest.mark.parametrize("item", golden_keys(), ids=str)
def test_bindings_in_the_text_are_numbered_as_in_the_header(item: KernelKey) -> None:
    text = LIBRARY.render(item)
    numbers = [int(n) for n in re.findall(r"@binding\((\d+)\)", text)]
    assert numbers == list(range(len(numbers)))
    assert text.count("var<storage") <= 8
    assert "{{" not in text
    assert "{%" not in text


def test_every_kernel_belongs_to_an_operator_and_exists() -> None:
    named = {kernel for row in registry.values() for kernel in row.kernels}
    assert named == set(LIBRARY.names())


@pytest.mark.parametrize(
    ("legal", "value", "want"),
    [
        ("bool", True, True), ("bool", 1, False), ("int", 7, True), ("int", True, False), ("int", -1, False),
        ("1..16", 16, True), ("1..16", 17, False), ("a, b", "b", True), ("a, b", "c", False),
        ("4, 8", 4, True), ("4, 8", 5, False), ("float", 0.5, True), ("float", "x", False),
    ],
)  # fmt: skip
def test_legal_values(legal: str, value: int | str, want: bool) -> None:
    assert is_legal(legal, value) is want


def test_a_key_outside_the_header_is_refused() -> None:
    good = golden_keys()[0]
    with pytest.raises(InternalError, match="axes"):
        LIBRARY.render(KernelKey(good.kernel, (*good.axes, ("bogus", 1))))
    with pytest.raises(InternalError, match="no template"):
        LIBRARY.render(key("no_such_kernel"))


def test_templates_are_compiled_once_for_all_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a snapshot of Python's memory they are compiled already: rendering needs no compiler."""
    compile_templates()

    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("a template was compiled again")

    monkeypatch.setattr(jinja2.Environment, "compile", refuse)
    monkeypatch.setattr(pathlib.Path, "read_text", refuse)
    library = KernelLibrary()
    for item in golden_keys():
        assert library.render(item) == LIBRARY.render(item)
    with pytest.raises(AssertionError, match="compiled again"):
        Templates(DEFAULT_ROOT).environment.get_template("binary.wgsl")  # another's, not compiled


def test_a_header_that_lacks_a_field_is_refused() -> None:
    with pytest.raises(InternalError, match="lacks launch"):
        parse_header(
            "k",
            "{#-\npurpose: p\nformula: f\nbindings:\nparams:\naxes:\nrequires: none\naccuracy: a\n-#}",
        )


def test_floats_are_wgsl_literals() -> None:
    assert [wgsl_float(x) for x in (1, 1e-5, 0.125)] == ["1.0f", "1e-05f", "0.125f"]


def write_goldens() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for path in GOLDEN.glob("*.wgsl"):
        path.unlink()
    for item in golden_keys():
        golden_path(item).write_text(LIBRARY.render(item), encoding="utf-8")


if __name__ == "__main__":
    write_goldens()
