"""The texts of a Hugging Face checkpoint: tokenizer, chat template, special tokens, generation
defaults.

Input:  tokenizer.json and, where present, tokenizer_config.json, chat_template.jinja,
generation_config.json.
Output: a `Text`; every id that any of the files calls an end of text is kept, none replaces
another.
Way of the data: files -> `models.huggingface` -> `Checkpoint`.

    text = read_text(Path("Llama-3.2-1B-Instruct"), config_json)
    text.generation["eos_token_id"]                       # [128001, 128008, 128009]
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.models.checkpoint import adds_bos, open_tokenizer, stop_ids
from exporter.models.portable_tokenizer import portable
from runtime_py.errors import ExportError

SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")
DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass(frozen=True)
class Text:
    """What a bundle needs beside the weights."""

    tokenizer: str
    chat_template: str | None
    special_tokens: dict[str, str]
    generation: dict[str, Any]
    add_bos: bool


def read_text(folder: Path, config: dict[str, Any]) -> Text:
    """Return the texts in `folder`; `config` is its config.json. Raises `ExportError` on an
    unreadable file.
    """
    source = _read(folder / "tokenizer.json")
    if source is None:
        raise ExportError(
            f"{folder} has no tokenizer.json",
            hint="`AutoTokenizer.from_pretrained(...).save_pretrained(...)` writes one",
        )
    tokenizer = open_tokenizer(source, f"{folder}/tokenizer.json")
    settings = read_json(folder / "tokenizer_config.json", required=False)
    generation = read_json(folder / "generation_config.json", required=False)
    special = _special_tokens(settings)
    bos = tokenizer.token_to_id(special["bos_token"]) if "bos_token" in special else None
    own_end = tokenizer.token_to_id(special["eos_token"]) if "eos_token" in special else None
    found = {name: generation[name] for name in DEFAULTS if generation.get(name) is not None}
    found["eos_token_id"] = stop_ids(
        [own_end, config.get("eos_token_id"), generation.get("eos_token_id")]
    )
    found["bos_token_id"] = bos
    stated = settings.get("add_bos_token")
    return Text(
        tokenizer=json.dumps(portable(json.loads(source)), ensure_ascii=False),
        chat_template=_chat_template(folder, settings),
        special_tokens=special,
        generation=found,
        add_bos=adds_bos(tokenizer, bos) if stated is None else bool(stated),
    )


def read_json(path: Path, *, required: bool) -> dict[str, Any]:
    """Return the object in `path`, or {} if the file is absent and not `required`."""
    text = _read(path)
    if text is None:
        if required:
            raise ExportError(
                f"{path.parent} has no {path.name}",
                hint="MODEL is a .gguf file or a Hugging Face checkpoint folder",
            )
        return {}
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ExportError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise ExportError(f"{path} holds a {type(data).__name__}, expected an object")
    return data


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ExportError(f"{path} cannot be read: {error}") from error


def _special_tokens(settings: dict[str, Any]) -> dict[str, str]:
    """Return name -> text; a token is a string or an object with `content`."""
    found = {}
    for name in SPECIAL_TOKENS:
        token = settings.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            found[name] = token
    return found


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """Return the template: the file wins over the setting, `default` over other named ones."""
    separate = _read(folder / "chat_template.jinja")
    if separate is not None:
        return separate
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None
