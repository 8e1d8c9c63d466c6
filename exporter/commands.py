"""The commands behind serve.py: their arguments, and what they print.

Input:  a command line. Output: exit code 0, or 2 with `error: what happened` and a hint on stderr.
Way of the data: serve.py -> commands -> `hosts.server` (serve) or `headless` (run, bench). Torch is
never imported.

    main(["run", "models/smollm2", "--chat", "Hello", "--max-tokens", "8", "--json"])
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import threading
import webbrowser
from collections.abc import Sequence
from typing import Any

from exporter import headless, profiling
from exporter.hosts.archive import build_archive
from exporter.hosts.host import KINDS
from exporter.hosts.server import WEB, Server
from exporter.hosts.snapshot import Snapshots
from runtime_py.errors import HostError, TabfireError

COMMANDS = ("serve", "run", "bench")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] not in (*COMMANDS, "-h", "--help"):
        words.insert(0, "serve")
    args = build_parser().parse_args(words)
    try:
        args.action(args)
    except TabfireError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all three commands."""
    parser = argparse.ArgumentParser(
        prog="serve.py", description="A PyTorch model in a browser tab."
    )
    commands = parser.add_subparsers(title="commands", required=True)
    _add_serve(
        commands.add_parser("serve", help="serve the chat page (what happens without a command)")
    )
    _add_run(commands.add_parser("run", help="answer one prompt in a headless browser"))
    _add_bench(commands.add_parser("bench", help="measure load, prefill and decode"))
    return parser


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument(
        "--models", type=pathlib.Path, default=pathlib.Path("models"), metavar="DIR"
    )
    parser.add_argument("--open", action="store_true", help="open the page in the default browser")
    parser.set_defaults(action=serve)


def _add_host(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "bundle", type=pathlib.Path, metavar="DIR", help="a bundle made by the exporter"
    )
    parser.add_argument("--host", choices=KINDS, default="chromium")
    parser.add_argument(
        "--options", type=json_object, default={}, metavar="JSON", help="session options"
    )
    parser.add_argument("--timeout", type=float, default=1800.0, metavar="SECONDS")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _add_run(parser: argparse.ArgumentParser) -> None:
    _add_host(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--prompt", metavar="TEXT", help="text to continue, without a chat template"
    )
    source.add_argument("--chat", metavar="TEXT", help="a user's message")
    source.add_argument("--ids", type=_ids, metavar="1,2,3", help="token ids to continue")
    parser.add_argument("--max-tokens", type=int, default=128, metavar="N")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-k", type=int, metavar="K")
    parser.add_argument("--top-p", type=float, metavar="P")
    parser.add_argument("--min-p", type=float, metavar="P")
    parser.add_argument("--repetition-penalty", type=float, metavar="R")
    parser.add_argument("--seed", type=int)
    parser.add_argument(
        "--stop",
        action="extend",
        nargs="+",
        metavar="TEXT",
        help="end at any of these; may be given more than once",
    )
    parser.set_defaults(action=run)


def _add_bench(parser: argparse.ArgumentParser) -> None:
    _add_host(parser)
    parser.add_argument("--prompt-tokens", type=int, default=512, metavar="N")
    parser.add_argument("--decode", type=int, default=128, metavar="N", help="tokens to generate")
    parser.add_argument(
        "--repeat", type=int, default=3, metavar="N", help="measured runs, after one to warm up"
    )
    parser.add_argument(
        "--profile", action="store_true", help="also GPU time by kernel, of both kinds of step"
    )
    parser.set_defaults(action=bench)


def serve(args: argparse.Namespace) -> None:
    """Serve the page until Ctrl-C."""
    if not (WEB / "node_modules" / "pyodide").is_dir():
        raise HostError("web/node_modules has no Pyodide", hint="run `npm ci` in web/")
    snapshots = Snapshots()
    with Server(args.port, models=args.models, snapshots=snapshots) as server:
        snapshots.find(build_archive())  # makes one for the first visit
        names = [entry["name"] for entry in server.index()["models"]]
        print(f"tabfire at {server.origin}/   (Ctrl-C stops)")
        print(f"models in {args.models}: {', '.join(names) or 'none yet'}", flush=True)
        for stray in server.strays():
            print(f"warning: {args.models / stray} is no bundle; left out", file=sys.stderr)
        if args.open:
            webbrowser.open(server.origin)
        threading.Event().wait()


def run(args: argparse.Namespace) -> None:
    """Answer one prompt; print the text as it comes, or one JSON document."""
    sampling = {
        name: getattr(args, name)
        for name in (
            "max_tokens",
            "temperature",
            "top_k",
            "top_p",
            "min_p",
            "repetition_penalty",
            "seed",
            "stop",
        )
        if getattr(args, name) is not None
    }
    request: dict[str, Any] = {"options": sampling}
    if args.chat is not None:
        request["prompt"] = [{"role": "user", "content": args.chat}]
    else:
        request["prompt"] = args.ids if args.prompt is None else args.prompt
    show = None if args.json else lambda text: print(text, end="", flush=True)
    answer = headless.generate(
        args.bundle,
        request,
        host=args.host,
        options=args.options,
        on_text=show,
        timeout_s=args.timeout,
    )
    print(json.dumps(answer, ensure_ascii=False) if args.json else "")


def bench(args: argparse.Namespace) -> None:
    """Print the measurements, a line each unless `--json`, then as one JSON document."""
    numbers = headless.bench(
        args.bundle,
        prompt_tokens=args.prompt_tokens,
        decode_tokens=args.decode,
        repeat=args.repeat,
        profile=args.profile,
        host=args.host,
        options=args.options,
        timeout_s=args.timeout,
    )
    if not args.json:
        profiles = numbers.get("profile", {})
        for name, value in numbers.items():
            if value is not profiles:
                print(f"{name}: {json.dumps(value)}")
        for name, step in profiles.items():
            print(profiling.table(name, step))
    print(json.dumps(numbers))


def json_object(text: str) -> dict[str, Any]:
    """Return an argument that is a JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("expected a JSON object")
    return value


def _ids(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",") if word.strip()]
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"expected integers with commas between, found {text!r}"
        ) from error
