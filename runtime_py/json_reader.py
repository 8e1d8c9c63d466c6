"""Typed access to parsed JSON: every complaint names the place.

Input:  data as `json.loads` gives it. Output: strings, integers, lists, expressions, or
`BadBundleError`.
Way of the data: under `schema`, which tells what the fields mean.

    JsonReader("manifest.json", data).text("format")
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runtime_py import symbols
from runtime_py.errors import BadBundleError
from runtime_py.symbols import Expr


class JsonReader:
    """Typed access to one JSON object; every complaint names the place."""

    def __init__(self, where: str, data: object) -> None:
        if not isinstance(data, dict):
            raise BadBundleError(f"{where}: expected an object, found {type(data).__name__}")
        self.where, self.data = where, data

    def _get(self, key: str, kinds: type | tuple[type, ...]) -> Any:
        value = self.data.get(key)
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise BadBundleError(f"{self.where}: {key!r} is {value!r}")
        return value

    def text(self, key: str) -> str:
        return str(self._get(key, str))

    def name(self) -> str:
        return self.text("name")

    def path(self) -> str:
        path = self.text("path")
        if path.startswith("/") or "\\" in path or ".." in path.split("/") or ":" in path:
            raise BadBundleError(f"{self.where}: {path!r} leads out of the bundle")
        return path

    def integer(self, key: str) -> int:
        return int(self._get(key, int))

    def array(self, key: str) -> list[Any]:
        return list(self._get(key, list)) if key in self.data else []

    def names(self, key: str, optional: bool = False) -> tuple[Any, ...]:
        items = self.array(key)
        for item in items:
            if not isinstance(item, str) and not (optional and item is None):
                raise BadBundleError(f"{self.where}: {key!r} holds {item!r}, expected value names")
        return tuple(items)

    def mapping(self, key: str) -> dict[str, Any]:
        return dict(self._get(key, dict)) if key in self.data else {}

    def expr(self, key: str) -> Expr:
        return symbols.parse(self.data.get(key))

    def items(self, key: str) -> Iterator[JsonReader]:
        for index, item in enumerate(self.array(key)):
            yield JsonReader(f"{self.where}: {key}[{index}]", item)
