"""tabfire beside its peers: same model, prompts and token counts, in the same browser, in turn.

Input:  the GGUF file for wllama, the bundle exported from it, a folder made by onnxruntime-genai's
        model builder.
Output: a table, and one JSON document as the last line.
Way of the data: versus -> `visits` -> bench/peers/*.js -> `table`.

Every round opens each engine in a browser with a fresh profile: a cold load with one short answer,
then, in the same process, a warm load with all cases. Rounds go through the engines in turn.
tabfire and wllama get the same texts, whose tokens both count; onnxruntime-web gets the ids that
tabfire read.

    make bench-peers
    python -m bench.versus MODEL.gguf --bundle DIR [--ort DIR] [--rounds 3] [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.table import Visit, faults, ratios, render, summarise
from bench.visits import BenchServer, Message, Visits
from exporter.hosts.archive import ROOT, build_archive
from exporter.hosts.snapshot import Snapshots
from runtime_py import __version__

TEXT = "The capital of France is"
F16 = {"compute": "f16", "kv_dtype": "f16"}
PREFILLS = (16, 128, 512, 1000, 2000)
DECODES = (128, 1024, 2000)
MODULES = pathlib.Path(__file__).resolve().parent / "node_modules"
ORT = "onnxruntime-web/dist"
PEER_FILES = {
    "wllama.js": "@wllama/wllama/esm/index.min.js",
    "wllama.wasm": "@wllama/wllama/esm/wasm/wllama.wasm",
    "ort.jspi.min.mjs": f"{ORT}/ort.jspi.min.mjs",
    "ort-wasm-simd-threaded.jspi.mjs": f"{ORT}/ort-wasm-simd-threaded.jspi.mjs",
    "ort-wasm-simd-threaded.jspi.wasm": f"{ORT}/ort-wasm-simd-threaded.jspi.wasm",
}


@dataclass(frozen=True)
class Engine:
    """A column of the table. `page` is a name in bench/peers."""

    name: str
    page: str
    url: str
    options: Message


def main() -> None:
    """Run the comparison that the command line asks for."""
    arguments = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else a browser would stay behind
    snapshots = Snapshots()
    snapshots.make(build_archive())  # as a server has it that runs for a while
    with BenchServer(peer_files(arguments), snapshots) as server:
        say = print if not arguments.json else lambda *words: print(*words, file=sys.stderr)
        outcome = compare(server, arguments, say)
        if not arguments.json:
            print(describe(outcome))
        print(json.dumps(outcome))


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    made.add_argument("gguf", type=pathlib.Path, metavar="MODEL.gguf")
    made.add_argument("--bundle", type=pathlib.Path, required=True, metavar="DIR")
    made.add_argument("--ort", type=pathlib.Path, metavar="DIR", help="holds model/model.onnx")
    made.add_argument(
        "--peers-dir", type=pathlib.Path, metavar="DIR", help="the peers' files, flat"
    )
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--repeats", type=int, default=2, help="warm runs of a case in a round")
    made.add_argument("--tokens", type=int, default=40, help="tokens of a decode case")
    made.add_argument("--prompts", type=int, nargs="+", metavar="N", help="prompts' tokens")
    made.add_argument("--context", type=int, default=2048, help="positions of every KV cache")
    made.add_argument(
        "--options",
        type=json.loads,
        metavar="JSON",
        help="a list: tabfire's options, a column each",
    )
    made.add_argument("--only", nargs="+", metavar="ENGINE", help="tabfire, wllama, ort")
    made.add_argument("--quick", action="store_true", help="one round, prompts up to 128 tokens")
    made.add_argument("--timeout", type=float, default=900.0, help="seconds of silence of a page")
    made.add_argument("--json", action="store_true", help="the table goes to no output")
    return made


def peer_files(arguments: argparse.Namespace) -> dict[str, pathlib.Path]:
    """Return what /versus/files/ serves: the peers' files and the GGUF by name; exits if one is
    missing.
    """
    flat = arguments.peers_dir
    found = {name: flat / name if flat else MODULES / path for name, path in PEER_FILES.items()}
    found["model.gguf"] = arguments.gguf
    needed = [path for name, path in found.items() if arguments.ort or not name.startswith("ort")]
    missing = [str(path) for path in needed if not path.is_file()]
    if missing:
        sys.exit(f"error: no such file: {missing[0]}\n\n  hint: make bench-peers, or --peers-dir")
    return found


def compare(
    server: BenchServer, arguments: argparse.Namespace, say: Callable[..., None]
) -> dict[str, Any]:
    """Run all rounds and return what goes into the JSON document."""
    machine = probe(server, arguments.timeout)
    say(f"{machine.get('adapter')}\n{machine.get('user_agent')}")
    engines = columns(server, arguments, bool(machine.get("f16")))
    visits: list[Visit] = []
    ids: dict[str, list[int]] = {}
    rounds = 1 if arguments.quick else arguments.rounds
    for number in range(rounds):
        for engine in engines:
            found = visit(server, engine, number, arguments, ids, say)
            visits += found
            ids |= take_ids(found)
    return report(arguments, machine, engines, visits)


def take_ids(visits: Sequence[Visit]) -> dict[str, list[int]]:
    """Move the ids of every prompt out of the messages, where an engine told them: key -> ids."""
    messages = [message for v in visits for message in v.messages]
    given = {m["key"]: m.pop("prompt_ids") for m in messages if m.get("prompt_ids")}
    return {key: ids for key, ids in given.items() if ids}


def probe(server: BenchServer, timeout_s: float) -> dict[str, Any]:
    """Return adapter and browser; a machine without WebGPU has no adapter."""
    plan = {"cases": [], "text": "", "ids": {}, "text_tokens": 0, "warmups": 0, "repeats": 0}
    (messages,) = Visits(server, "probe", [plan]).run(timeout_s)
    if messages[-1]["kind"] == "error":
        sys.exit(f"error: {messages[-1]['message']}")
    return {k: v for k, v in messages[0].items() if k not in ("kind", "visit", "load_ms")}


def columns(server: BenchServer, arguments: argparse.Namespace, f16: bool) -> list[Engine]:
    """Return the engines in the order of a round: tabfire, wllama, onnxruntime-web, then tabfire's
    other options.
    """
    bundle = server.mount(arguments.bundle)
    chosen = arguments.options or ([{}, F16] if f16 else [{}])
    ours = [
        Engine(f"tabfire {_spell(options)}".strip(), "tabfire", bundle, options)
        for options in chosen
    ]
    peers = [Engine("wllama", "wllama", "/versus/files/model.gguf", {})]
    if arguments.ort:
        peers.append(Engine("ort", "ort", server.mount(arguments.ort / "model"), {}))
    wanted = arguments.only or ("tabfire", "wllama", "ort")
    return [e for e in (ours[0], *peers, *ours[1:]) if e.page in wanted]


def visit(
    server: BenchServer,
    engine: Engine,
    number: int,
    arguments: argparse.Namespace,
    ids: Mapping[str, Sequence[int]],
    say: Callable[..., None],
) -> list[Visit]:
    """Return the cold and the warm visit of one engine in one round."""
    plan = {
        "round": number,
        "url": engine.url,
        "options": engine.options,
        "context": arguments.context,
        "text": TEXT,
        "ids": dict(ids) if engine.page == "ort" else {},
        "text_tokens": 8 if arguments.quick else 24,
        "warmups": 0 if arguments.quick else 1,
        "repeats": 1 if arguments.quick else arguments.repeats,
    }

    def hear(message: Message) -> None:
        fields = ("prompt", "tokens", "load_ms", "first_ms", "token_ms", "text", "message")
        told = {k: _short(message[k]) for k in fields if message.get(k) is not None}
        say(f"round {number} {engine.name}: {message['kind']} {told or ''}")

    plans = [{**plan, "cases": []}, {**plan, "cases": cases(arguments)}]
    found = Visits(server, engine.page, plans).run(arguments.timeout, hear)
    return [Visit(engine.name, number, i == 0, messages) for i, messages in enumerate(found)]


def cases(arguments: argparse.Namespace) -> list[Message]:
    """Return the cases that fit the context; one prompt serves prefill and decode where it can."""
    most = 128 if arguments.quick else arguments.context - arguments.tokens
    lengths = arguments.prompts or sorted({5, *PREFILLS, *DECODES})
    return [
        {"prompt": length, "tokens": arguments.tokens if length in DECODES else 1}
        for length in lengths
        if length <= most
    ]


def report(
    arguments: argparse.Namespace,
    machine: dict[str, Any],
    engines: Sequence[Engine],
    visits: Sequence[Visit],
) -> dict[str, Any]:
    """Return all that was seen, medians and ratios first, every message last."""
    results = summarise(visits)
    ours = engines[0].name
    own = [engine.name for engine in engines if engine.page == "tabfire"]
    return {
        "bench": "versus",
        "bundle": str(arguments.bundle),
        "gguf": arguments.gguf.name,
        "version": __version__,
        "commit": commit(),
        "machine": machine,
        "engines": [engine.name for engine in engines],
        "backends": _first(visits, "load", "backend"),
        "memory_bytes": _first(visits, "done", "memory_bytes"),
        "texts": _first(visits, "answer", "text"),
        "errors": faults(visits),
        "results": results,
        "ratios": {name: ratios(results, name) for name in own or [ours]},
        "visits": [
            {"engine": v.engine, "round": v.round, "cold": v.cold, "messages": list(v.messages)}
            for v in visits
        ],
    }


def describe(outcome: dict[str, Any]) -> str:
    """Return the table with what the engines ran on and what went wrong."""
    engines = outcome["engines"]
    notes = [f"{name}: {outcome['backends'].get(name, 'did not load')}" for name in engines]
    memory = [f"{name} {size}" for name, size in outcome["memory_bytes"].items() if size]
    wrong = [f"{name} failed: {text}" for name, all_ in outcome["errors"].items() for text in all_]
    own = [name for name in engines if name in outcome["ratios"]]
    tables = [render(outcome["results"], engines, name) for name in own]
    memory_line = f"GPU memory, bytes: {', '.join(memory) or 'no engine says'}"
    return "\n\n".join([*tables, "\n".join([*notes, memory_line, *wrong])])


def commit() -> str | None:
    """Return the commit of this checkout, None outside of git."""
    git = shutil.which("git")
    if git is None:
        return None
    words = [git, "describe", "--always", "--dirty"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def _first(visits: Sequence[Visit], kind: str, field: str) -> dict[str, Any]:
    """Return engine -> the last word on `field` in messages of a kind."""
    return {
        v.engine: message[field] for v in visits for message in v.of_kind(kind) if field in message
    }


def _spell(options: Message) -> str:
    return ",".join(f"{name}={value}" for name, value in options.items())


def _short(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else str(value)[:200]


if __name__ == "__main__":
    main()
