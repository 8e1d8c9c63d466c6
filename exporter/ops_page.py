"""Prints docs/OPS.md from the registry and the kernels' headers.

Input:  `registry`, `wgsl/*.wgsl`. Output: Markdown on standard output; a test holds docs/OPS.md
against it.

    python -m exporter.ops_page > docs/OPS.md
"""

from __future__ import annotations

import sys

from runtime_py.kernels import KernelLibrary
from runtime_py.ops import registry

HEAD = """# Operators and kernels

Generated from the registry (`runtime_py/ops/`) and the headers of `wgsl/`; do not edit.
Write it anew with `python -m exporter.ops_page > docs/OPS.md`.
[ADD_AN_OP.md](ADD_AN_OP.md) shows how an operator is added.

The letters of shapes are those of the README: B batch, S query tokens, C context, Hq query heads,
Hkv KV heads, D head width, E model width, F MLP width, V vocabulary; M N K in matrix kernels only.
"""


def document() -> str:
    """Return the text of docs/OPS.md."""
    lines = [
        HEAD,
        "## Operators",
        "",
        "| operator | dtypes | kernels | what it does |",
        "|---|---|---|---|",
    ]
    for name, row in sorted(registry.items()):
        kernels = ", ".join(f"`{k}`" for k in row.kernels) or ("(a view)" if row.alias else "-")
        note = " Writes a buffer in place." if row.mutates else ""
        lines.append(
            f"| `{name}` | {', '.join(row.dtypes)} | {kernels} | {_cell(row.summary)}{note} |"
        )
    lines += ["", "## Kernels", ""]
    library = KernelLibrary()
    for kernel in library.names():
        header = library.header(kernel)
        lines += [f"### `{kernel}`", ""]
        for field in ("purpose", "formula", "launch", "requires", "accuracy"):
            lines.append(f"- {field}: {_cell(header.fields[field])}")
        axes = "; ".join(f"`{name}`: {legal}" for name, legal in header.axes.items()) or "none"
        lines += [f"- axes: {_cell(axes)}", f"- bindings: {', '.join(header.binding_names)}", ""]
    return "\n".join(lines).rstrip() + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(document())
