"""Runs a language model in a headless host: one answer, or a benchmark.

Input:  a bundle's folder, a request. Output: plain data, ready for JSON.
Way of the data: `commands` -> headless -> `hosts` -> runtime_py.engine.

    generate("models/smollm2", {"prompt": "The capital of France is", "options": {"max_tokens":
    8}})["text"]
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exporter import profiling
from exporter.hosts.archive import ROOT
from exporter.hosts.host import DEFAULT_TIMEOUT_S, Host, get_host
from runtime_py import __version__
from runtime_py.errors import OptionError

DRAWN_NODE = "sampling.drawn"  # of runtime_py/next_token.py; a greedy step does without


@dataclass(frozen=True)
class Model:
    """An engine in a host. `info` is what loading answered, `load_s` how long the caller waited."""

    host: Host
    info: dict[str, Any]
    load_s: float
    timeout_s: float

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a method that has no arrays."""
        return self.host.call(
            method, {**params, "handle": self.info["handle"]}, timeout_s=self.timeout_s
        )[0]

    def generate(
        self, request: Mapping[str, Any], on_text: Callable[[str], object] | None = None
    ) -> dict[str, Any]:
        """Return `{prompt_ids, ids, text, finish_reason, timings}`; `on_text` hears every piece."""

        def hear(event: dict[str, Any]) -> None:
            if on_text and event.get("type") == "piece":
                on_text(event["text"])

        params = {**request, "handle": self.info["handle"]}
        return self.host.call("generate", params, on_event=hear, timeout_s=self.timeout_s)[0]


@contextlib.contextmanager
def open_model(
    bundle_dir: str | pathlib.Path,
    *,
    host: str = "chromium",
    options: Mapping[str, Any] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Iterator[Model]:
    """Load a bundle as an engine and free it afterwards."""
    machine, folder = get_host(host), pathlib.Path(bundle_dir)
    start = time.perf_counter()
    info = machine.load(folder, kind="engine", options=options, timeout_s=timeout_s)
    with machine.loaded(info["handle"]):
        yield Model(machine, info, time.perf_counter() - start, timeout_s)


def generate(
    bundle_dir: str | pathlib.Path,
    request: Mapping[str, Any],
    *,
    host: str = "chromium",
    options: Mapping[str, Any] | None = None,
    on_text: Callable[[str], object] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> dict[str, Any]:
    """Return one answer with the adapter and the session's report.

    `request` is `{"messages": [...]}` or `{"prompt": text or ids}`, with the sampling options under
    "options".
    """
    with open_model(bundle_dir, host=host, options=options, timeout_s=timeout_s) as model:
        answer = model.generate(request, on_text)
        answer.pop("token_ms")
        report = model.ask("report")
        return {**answer, "adapter": report["adapter"], "report": report}


def bench(
    bundle_dir: str | pathlib.Path,
    *,
    prompt_tokens: int,
    decode_tokens: int,
    repeat: int = 3,
    profile: bool = False,
    host: str = "chromium",
    options: Mapping[str, Any] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> dict[str, Any]:
    """Return load, compile, prefill and decode apart, after one run to warm up.

    Every run gets another prompt of `prompt_tokens` ids, so that no prefix is found in the cache;
    prefill is the time from the request to the prompt's last logits, decode the time between two
    tokens. With `profile`, "profile" holds the GPU time of a step of either kind by kernel.
    """
    if min(prompt_tokens, decode_tokens, repeat) < 1:
        raise OptionError("--prompt-tokens, --decode and --repeat must be at least 1")
    with open_model(bundle_dir, host=host, options=options, timeout_s=timeout_s) as model:
        runs = [_measure(model, seed, prompt_tokens, decode_tokens) for seed in range(repeat + 1)][
            1:
        ]
        report, stats = model.ask("report"), model.ask("stats")
        profiles = _profiles(model, report, prompt_tokens, repeat) if profile else {}
        steps = [ms for run in runs for ms in run["token_ms"]]
        prefill = [run["prefill_ms"] for run in runs]
        return {
            "model": report["model"],
            "adapter": report["adapter"],
            "versions": {
                "tabfire": __version__,
                "commit": _commit(),
                **{name: stats[name] for name in ("python", "pyodide", "browser")},
            },
            "load": {
                "total_ms": 1000 * model.load_s,
                "boot_ms": stats["boot_ms"],
                **report["timings"],
                "phases": report["phases"],
            },
            "prefill": {
                "tokens": prompt_tokens,
                **_spread(prefill),
                "tok_s": _rate(prompt_tokens, prefill),
            },
            "decode": {"tokens": len(steps), **_spread(steps), "tok_s": _rate(1, steps)},
            "dispatches_per_token": _decode_dispatches(report),
            "js_calls_per_token": statistics.median(run["js_calls_per_token"] for run in runs),
            "host_ms_per_token": statistics.median(run["host_ms_per_token"] for run in runs),
            "heap_bytes": stats["heap_bytes"],
            "memory": report["memory"],
            "repeat": repeat,
            **profiles,
        }


def _measure(model: Model, seed: int, prompt_tokens: int, decode_tokens: int) -> dict[str, Any]:
    """Return prefill, the times between tokens and the JS calls of one run.

    A reply that ends early is continued past its end, so that enough tokens are timed.
    """
    ids = _prompt(model, seed, prompt_tokens)
    before = model.ask("stats")["js_calls"]
    first = answer = _continue(model, ids, decode_tokens)
    steps, tokens = list(answer["token_ms"]), len(answer["ids"])
    while tokens < decode_tokens and answer["finish_reason"] == "stop":
        ids += answer["ids"]
        answer = _continue(model, ids, decode_tokens - tokens)
        steps += answer["token_ms"]
        tokens += len(answer["ids"])
    calls = model.ask("stats")["js_calls"] - before
    return {
        "prefill_ms": first["timings"]["prefill_ms"],
        "token_ms": steps,
        "js_calls_per_token": calls / tokens,
        "host_ms_per_token": first["timings"]["host_ms_per_token"],
    }


def _prompt(model: Model, seed: int, count: int) -> list[int]:
    vocabulary = model.info["vocabulary"]
    return [(7919 * i + 104729 * (seed + 1) * (i + 1)) % vocabulary for i in range(count)]


def _profiles(
    model: Model, report: Mapping[str, Any], prompt_tokens: int, repeat: int
) -> dict[str, Any]:
    longest = max(program["ranges"]["S"][1] for program in report["programs"])
    ids = _prompt(model, 0, prompt_tokens)
    return {"profile": profiling.profile_steps(model, ids, longest=longest, repeat=repeat)}


def _continue(model: Model, ids: list[int], tokens: int) -> dict[str, Any]:
    return model.generate({"prompt": ids, "options": {"max_tokens": tokens}})


def _commit() -> str | None:
    """Return the commit of this checkout, "-dirty" if files differ; None outside of git."""
    git = shutil.which("git")
    if git is None:
        return None
    words = [git, "describe", "--always", "--dirty"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def _spread(samples: Sequence[float]) -> dict[str, float]:
    """Return median and 90th percentile in milliseconds."""
    if not samples:
        return {"median_ms": 0.0, "p90_ms": 0.0}
    ordered = sorted(samples)
    return {
        "median_ms": statistics.median(ordered),
        "p90_ms": ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))],
    }


def _rate(tokens: int, samples: Sequence[float]) -> float:
    return 1000 * tokens / statistics.median(samples) if samples else 0.0


def _decode_dispatches(report: Mapping[str, Any]) -> int | None:
    """Return the dispatches of a greedy step of one token, None if no program is for one token."""
    for program in report["programs"]:
        if program["ranges"].get("S") == [1, 1]:
            return len([d for d in program["dispatches"] if d["node"] != DRAWN_NODE])
    return None
