"""From the messages of all visits to medians, ratios and a table.

Input:  `Visit`s: one opening of a page by one engine in one round. Output: plain data for JSON, and
        lines of text.
Way of the data: `visits` -> `versus` -> table -> the terminal.

A ratio says how many times better tabfire is: the peer's time over tabfire's. Only the warm runs of
warm visits enter a median, but for the rows that say cold.

    results = summarise([Visit("tabfire", 0, True, messages)])
    results["tabfire"]["first token, 5"]["median_ms"]
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

UNIT = {"load": "ms", "first": "ms", "prefill": "tok/s", "decode": "tok/s"}
ANSWERS = (5, 1000)  # prompts whose time to the first token has a row of its own


@dataclass(frozen=True)
class Visit:
    """What one engine posted in one round. `cold`: the first visit of a fresh profile."""

    engine: str
    round: int
    cold: bool
    messages: Sequence[dict[str, Any]]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["kind"] == kind]


@dataclass(frozen=True)
class Timing:
    """One measured time. `tokens` were done in it, 0 where only the time counts."""

    row: str
    ms: float
    tokens: int = 0


def timings(visit: Visit) -> list[Timing]:
    """Return every time of a visit that enters a median."""
    heat = "cold" if visit.cold else "warm"
    found = [Timing(f"load, {heat}", m["load_ms"]) for m in visit.of_kind("load")]
    if visit.cold:
        answers = [m["first_ms"] for m in visit.of_kind("answer")]
        return found + [Timing("first token of all, cold", ms) for ms in answers if ms is not None]
    for sample in visit.of_kind("sample"):
        if not sample["warm"]:
            continue
        tokens, first_ms, token_ms = (sample[key] for key in ("prompt", "first_ms", "token_ms"))
        if first_ms is not None and tokens in ANSWERS:
            found.append(Timing(f"first token, {tokens}", first_ms))
        if first_ms is not None and tokens not in ANSWERS[:1]:
            found.append(Timing(f"prefill {tokens}", first_ms, tokens))
        if token_ms is not None:
            found.append(Timing(f"decode at {tokens}", token_ms, 1))
    return found


def summarise(visits: Iterable[Visit]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return engine -> row -> `{samples_ms, median_ms, tok_s}`; `tok_s` is None for plain times."""
    gathered: dict[str, dict[str, list[Timing]]] = {}
    for visit in visits:
        rows = gathered.setdefault(visit.engine, {})
        for timing in timings(visit):
            rows.setdefault(timing.row, []).append(timing)
    return {
        engine: {row: _median(found) for row, found in rows.items()}
        for engine, rows in gathered.items()
    }


def _median(found: Sequence[Timing]) -> dict[str, Any]:
    median = statistics.median(timing.ms for timing in found)
    tokens = found[0].tokens
    return {
        "samples_ms": [round(timing.ms, 4) for timing in found],
        "median_ms": median,
        "tok_s": 1000 * tokens / median if tokens and median > 0 else None,
    }


def ratios(
    results: Mapping[str, Mapping[str, Mapping[str, Any]]], ours: str
) -> dict[str, dict[str, float]]:
    """Return peer -> row -> the peer's median time over that of the engine called `ours`."""
    mine = results.get(ours, {})
    return {
        peer: {
            row: entry["median_ms"] / mine[row]["median_ms"]
            for row, entry in rows.items()
            if row in mine and mine[row]["median_ms"] > 0
        }
        for peer, rows in results.items()
        if peer != ours
    }


def faults(visits: Iterable[Visit]) -> dict[str, list[str]]:
    """Return engine -> the complaints of its visits, for the engines that had any."""
    found: dict[str, list[str]] = {}
    for visit in visits:
        for message in (*visit.of_kind("fault"), *visit.of_kind("error")):
            found.setdefault(visit.engine, []).append(f"round {visit.round}: {message['message']}")
    return found


def render(
    results: Mapping[str, Mapping[str, Mapping[str, Any]]], engines: Sequence[str], ours: str
) -> str:
    """Return the table: a row for every figure, a column for every engine, then `ours` against it.

    What an engine could not do is a dash.
    """
    better = ratios(results, ours)
    peers = [engine for engine in engines if engine != ours]
    heads = ["", "", *engines, *(f"{ours} / {peer}" for peer in peers)]
    lines = [heads]
    for row in _rows(results, engines):
        unit = UNIT[row.replace(",", " ").split()[0]]
        cells = [_figure(results.get(engine, {}).get(row), unit) for engine in engines]
        signs = [_ratio(better.get(peer, {}).get(row)) for peer in peers]
        lines.append([row, unit, *cells, *signs])
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _rows(
    results: Mapping[str, Mapping[str, Mapping[str, Any]]], engines: Sequence[str]
) -> list[str]:
    """Return every row that any engine has: by phase, then by size."""
    known = {row for engine in engines for row in results.get(engine, {})}

    def place(row: str) -> tuple[int, int, str]:
        words = row.replace(",", " ").split()
        size = int(words[-1]) if words[-1].isdecimal() else 0
        return list(UNIT).index(words[0]), size, row

    return sorted(known, key=place)


def _figure(entry: Mapping[str, Any] | None, unit: str) -> str:
    if entry is None:
        return "-"
    value = entry["median_ms"] if unit == "ms" else entry["tok_s"]
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"
