"""Where a reply ends: stop strings, also when split over tokens, and stop token ids.

Input:  pieces of text as they come; what a bundle says about end tokens. Output: text that is safe
to show; a set of ids.
Way of the data: detokenizer -> **stops** -> the page.

    stops = StopStrings(("\n\nUser:",))
    stops.push("Hello.\n\nUs")      # ("Hello.", False): the rest may be the start of a stop string
    stops.push("er: hi")             # ("", True)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# How well-known chat models end a turn. Whatever a bundle says, the reply is over at any of these
# if it is a special token.
TURN_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot|>",
    "<|return|>",
    "</s>",
)


class StopStrings:
    """Holds back what may be the start of a stop string; neither it nor anything after it is
    shown.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Return `(text to show, whether a stop string was met)`."""
        if not self._stops:
            return text, False
        self._held += text
        found = [at for at in (self._held.find(stop) for stop in self._stops) if at >= 0]
        if found:
            shown, self._held = self._held[: min(found)], ""
            return shown, True
        safe = len(self._held) - self._partial()
        shown, self._held = self._held[:safe], self._held[safe:]
        return shown, False

    def finish(self) -> str:
        """Return what was held back and turned out to be no stop string."""
        shown, self._held = self._held, ""
        return shown

    def _partial(self) -> int:
        """Return the length of the longest end of the held text with which a stop string begins."""
        longest = min(len(self._held), max(map(len, self._stops)) - 1)
        for length in range(longest, 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0


def stop_token_ids(
    text: Mapping[str, Any], generation: Mapping[str, Any], specials: Mapping[str, int]
) -> frozenset[int]:
    """Return every id that ends a reply: the union of all that name one, never one source in place
    of another.

    `text` and `generation` are a manifest's; `specials` maps the tokenizer's special tokens to ids.
    """
    ids: set[int] = set()
    for source in (
        text.get("eos_token_ids"),
        text.get("eos_token_id"),
        generation.get("eos_token_id"),
    ):
        ids.update(_as_ids(source))
    names = [text.get("eos_token"), *TURN_ENDS]
    names += [(text.get("special_tokens") or {}).get("eos_token")]
    ids.update(specials[name] for name in names if isinstance(name, str) and name in specials)
    return frozenset(ids)


def _as_ids(source: object) -> Iterable[int]:
    items = source if isinstance(source, (list, tuple)) else [source]
    return [i for i in items if isinstance(i, int) and not isinstance(i, bool)]
