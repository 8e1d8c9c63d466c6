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
F16 = """## f16

Numbers are float32 unless a session's options say otherwise. Three of them do, each by itself; each
needs the device feature shader-f16, and without it loading fails, or with `prefer` falls back with
a line in the report. The report's kernel keys show what runs.

- `kv_dtype="f16"`: the cache stores K and V in f16. All arithmetic stays f32.
- `compute="f16"`: both factors of every product of a linear layer, x (after its RMS norm) and the
  dequantised weight, are rounded to f16. Sums, bias, residual, activation, y and every other
  operator stay f32.
- `f16_accumulate_gemm=True`, only with `compute="f16"`: a linear layer in a program that may carry
  more than 16 tokens also sums in f16, even k and odd k apart; from there on all is f32.

`compute="f16"` is one definition for every number of tokens; kernels differ in the order of f32
sums only. `f16_accumulate_gemm` is not: its sums are f16 for a long prompt and f32 for the tokens
after it. Factors, or f16 sums, past 65504 become infinite and reach y as infinity or NaN, which
sampling refuses with `NonFiniteError`; y itself is f32, so sums in f32 may pass 65504.
`linear="nibble"` takes the tiled kernels' codes one by one, for reference: slower, the same bits.
"""


def document() -> str:
    """Return the text of docs/OPS.md."""
    lines = [
        HEAD,
        F16,
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
