"""What a checkpoint reader hands to the command line: a model and the texts that go with it.

Input:  the parts as a reader found them. Output: the mappings of a bundle's manifest
(docs/FORMAT.md).
Way of the data: `models.gguf` or `models.huggingface` -> `Checkpoint` -> `cli` -> `bundle`.

    checkpoint = load_checkpoint(Path("SmolLM2-135M-Instruct.Q4_1.gguf"), max_context=2048)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer

from exporter.models.llama import Llama
from runtime_py.errors import TokenizerError


@dataclass(frozen=True)
class Checkpoint:
    """A model, its tokenizer.json, its chat template and its generation defaults."""

    model: Llama
    name: str
    tokenizer: str
    chat_template: str | None = None
    special_tokens: dict[str, str] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)
    add_bos: bool = False
    license: str | None = None

    def text_files(self) -> dict[str, str]:
        """Return the text files of the bundle, name -> content."""
        files = {"tokenizer.json": self.tokenizer}
        if self.chat_template:
            files["chat_template.jinja"] = self.chat_template
        return files

    def text(self) -> dict[str, Any]:
        """Return the manifest's `text`: where the files are and what the template may ask for."""
        return {
            "tokenizer": "tokenizer.json",
            "chat_template": "chat_template.jinja" if self.chat_template else None,
            "special_tokens": self.special_tokens,
            "add_bos": self.add_bos,
        }

    def model_card(self) -> dict[str, Any]:
        """Return the manifest's `model`: the name and the numbers that a person looks for."""
        config = self.model.config
        return {
            "name": self.name,
            "architecture": "llama",
            "license": self.license,
            "width": config.width,
            "layers": config.layers,
            "heads": config.heads,
            "kv_heads": config.kv_heads,
            "head_dim": config.head_dim,
            "mlp": config.mlp,
            "vocabulary": config.vocabulary,
            "max_context": config.max_context,
            "rope_base": config.rope_base,
            "tied_head": config.tied_head,
        }


def stop_ids(found: Iterable[object]) -> list[int]:
    """Return every id at which generation stops, sorted; takes ids, lists of ids and None."""
    ids: set[int] = set()
    for item in found:
        for one in item if isinstance(item, list) else [item]:
            if isinstance(one, int) and not isinstance(one, bool):
                ids.add(one)
    return sorted(ids)


def open_tokenizer(tokenizer_json: str, where: str) -> Tokenizer:
    """Return the tokenizer as the tokenizers package reads it; raises `TokenizerError`."""
    try:
        return Tokenizer.from_str(tokenizer_json)
    except Exception as error:  # the package raises bare Exception
        raise TokenizerError(f"{where} cannot be read as tokenizer.json: {error}") from error


def adds_bos(tokenizer: Tokenizer, bos_id: int | None) -> bool:
    """True if the tokenizer itself puts BOS before a text."""
    return bos_id is not None and tokenizer.encode("").ids[:1] == [bos_id]
