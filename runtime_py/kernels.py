"""From a kernel key to WGSL text: reads template headers, checks keys against them, renders with
Jinja.

Input:  `wgsl/<kernel>.wgsl`, a Jinja template that opens with a header comment, and a `KernelKey`.
Output: WGSL text, the same for the same key on every machine.
Way of the data: `plan` -> kernels -> `device.compile`.

    library = KernelLibrary(path_to_wgsl)
    text = library.render(key("rms_norm", width=576, weight=True))
"""

from __future__ import annotations

import functools
import pathlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jinja2

from runtime_py.errors import FeatureMissingError, InternalError
from runtime_py.ops.base import Axis, Caps, KernelKey

HEADER = re.compile(r"\{#-?\s*(.*?)-?#\}", re.DOTALL)
FIELDS = ("purpose", "formula", "bindings", "params", "axes", "requires", "launch", "accuracy")
ENABLE = re.compile(r"^enable (\w+);", re.MULTILINE)
FEATURES = {
    "f16": "shader-f16",
    "subgroups": "subgroups",
    "chromium_experimental_subgroup_matrix": "chromium-experimental-subgroup-matrix",
}
DEFAULT_ROOT = pathlib.Path(__file__).resolve().parent.parent / "wgsl"


@dataclass(frozen=True)
class Header:
    """The fields of a template's header; `axes` maps an axis to its spelled legal values."""

    kernel: str
    fields: Mapping[str, str]
    axes: Mapping[str, str]

    @property
    def binding_names(self) -> tuple[str, ...]:
        """The storage bindings in order, by name."""
        return tuple(
            line.split()[1] for line in self.fields["bindings"].splitlines() if line.split()
        )


def parse_header(kernel: str, text: str) -> Header:
    """Return the header of template `text`; raises `InternalError` if a field is missing."""
    match = HEADER.match(text)
    if match is None:
        raise InternalError(f"wgsl/{kernel}.wgsl does not open with a header comment")
    fields: dict[str, list[str]] = {}
    current = ""
    for line in match.group(1).splitlines():
        name, _, rest = line.strip().partition(":")
        if name in FIELDS and not line.startswith("  "):
            current = name
            fields[current] = [rest.strip()] if rest.strip() else []
        elif current and line.strip():
            fields[current].append(line.strip())
    missing = [name for name in FIELDS if name not in fields]
    if missing:
        raise InternalError(f"wgsl/{kernel}.wgsl: the header lacks {', '.join(missing)}")
    axes = dict(_axis(kernel, line) for line in fields["axes"] if line != "none")
    return Header(kernel, {name: "\n".join(lines) for name, lines in fields.items()}, axes)


def _axis(kernel: str, line: str) -> tuple[str, str]:
    name, colon, legal = line.partition(":")
    if not colon:
        raise InternalError(f"wgsl/{kernel}.wgsl: axis line {line!r} has no ':'")
    return name.strip(), legal.split("#")[0].strip()


def is_legal(legal: str, value: Axis) -> bool:
    """True if `value` is among the spelled values: `bool`, `int`, `float`, `a..b` or a comma
    list."""
    if legal == "bool":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if legal == "int":
        return isinstance(value, int) and value >= 0
    if legal == "float":
        return isinstance(value, (int, float))
    if ".." in legal:
        low, high = legal.split("..")
        return isinstance(value, int) and int(low) <= value <= int(high)
    return str(value) in [item.strip() for item in legal.split(",")]


class Templates:
    """The templates of one folder, each read and compiled once; `templates` shares them."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(str(root)),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            autoescape=False,
            auto_reload=False,
        )
        self.environment.filters["f32"] = wgsl_float
        self.header: Callable[[str], Header] = functools.cache(self._read_header)

    def names(self) -> list[str]:
        """Return the stems of all templates."""
        return sorted(path.stem for path in self.root.glob("*.wgsl"))

    def _read_header(self, kernel: str) -> Header:
        path = self.root / f"{kernel}.wgsl"
        if not path.exists():
            raise InternalError(f"there is no template wgsl/{kernel}.wgsl")
        return parse_header(kernel, path.read_text(encoding="utf-8"))


@functools.cache
def templates(root: pathlib.Path) -> Templates:
    """Return the templates in `root`: an edit of one shows in the next process."""
    return Templates(root)


def compile_templates() -> None:
    """Compile the runtime's templates: for a snapshot of Python's memory (web/snapshot.js)."""
    library = templates(DEFAULT_ROOT)
    for name in library.names():
        library.header(name)
    for name in library.environment.list_templates(extensions=["wgsl"]):
        library.environment.get_template(name)


class KernelLibrary:
    """The kernels of one session; rendering is cached by key.

    `known` holds texts by `str(key)` that the same templates gave before: they are not rendered.
    """

    def __init__(
        self, root: pathlib.Path = DEFAULT_ROOT, known: Mapping[str, str] | None = None
    ) -> None:
        self.root, self.known = root, known or {}
        self._templates = templates(root)
        self.header: Callable[[str], Header] = self._templates.header
        self.names: Callable[[], list[str]] = self._templates.names
        self.render: Callable[[KernelKey], str] = functools.cache(self._render)

    def check(self, key: KernelKey) -> None:
        """Raise `InternalError` unless the key gives each axis of its template a legal value."""
        header, axes = self.header(key.kernel), dict(key.axes)
        if set(axes) != set(header.axes):
            raise InternalError(
                f"{key}: axes {sorted(axes)}, the header of {key.kernel} has {sorted(header.axes)}"
            )
        for name, value in axes.items():
            if not is_legal(header.axes[name], value):
                raise InternalError(f"{key}: {name}={value!r} is not in {header.axes[name]!r}")

    def _render(self, key: KernelKey) -> str:
        if str(key) in self.known:
            return self.known[str(key)]
        self.check(key)
        template = self._templates.environment.get_template(f"{key.kernel}.wgsl")
        text = template.render(dict(key.axes))
        return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def require_features(key: KernelKey, text: str, caps: Caps) -> None:
    """Raise `FeatureMissingError` if WGSL `text` enables what the device does not have."""
    for extension in ENABLE.findall(text):
        feature = FEATURES.get(extension)
        if feature is not None and feature not in caps.features:
            raise FeatureMissingError(
                f"kernel {key} needs the device feature {feature!r}, which this adapter lacks",
                hint="store the tensors that it reads or writes as float32",
            )


def wgsl_float(value: float) -> str:
    """Return `value` as a WGSL f32 literal (`1e-05f`)."""
    return f"{float(value)!r}f"
