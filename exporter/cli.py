"""The exporter's command line.

    python -m exporter llama MODEL -o DIR [--max-context 2048] [--max-prefill 1024] [--kv-dtype f32]
    python -m exporter verify DIR [--host chromium|node]
    python -m exporter perplexity DIR [--text FILE] [--options JSON] [--host chromium|node] [--json]

Input:  arguments. Output: a bundle, the worst error of every golden step, or perplexities.
Exit codes: 0 done; 1 a golden step missed; 2 an error, told as `error: ...` with a hint.
Way of the data: checkpoint -> `models` -> `exporter.export` -> bundle; bundle -> `verify`,
`perplexity`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from exporter.commands import json_object
from exporter.hosts.host import KINDS
from exporter.models.checkpoint import Checkpoint
from exporter.schemes import SCHEMES
from runtime_py.errors import OptionError, TabfireError

KV_DTYPES = {"f32": torch.float32, "f16": torch.float16}
DEFAULT_TEXT = "the help topics of this CPython, pydoc_data.topics"
SHORT_TURN = 16  # up to here a GPU reads each weight once for all tokens, without matrix tiles
GOLDEN_TEXT = "The capital of France is Paris. Water boils at 100 degrees, and 7 times 6 is 42."
MOST_LOGITS = 256  # rows of logits a step: 50 MB at a vocabulary of 49152
# Tokens of each golden step, and how many of its rows are compared: a prompt, decoding, more of the
# prompt, all rows.
GOLDEN_STEPS = ((5, 1), (1, 1), (1, 1), (7, 1), (3, 3))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.command(arguments)
    except TabfireError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return code


def export_llama(arguments: argparse.Namespace) -> int:
    """`python -m exporter llama`: a checkpoint becomes a bundle."""
    from exporter.models import load_checkpoint
    from exporter.stamp import is_current, make_stamp

    model_path, out_dir = Path(arguments.model), Path(arguments.out_dir)
    _check_sizes(arguments.max_context, arguments.max_prefill)
    if not model_path.exists():
        raise OptionError(
            f"{model_path} does not exist", hint="MODEL is a .gguf file or a checkpoint folder"
        )
    options = {
        name: getattr(arguments, name)
        for name in ("max_context", "max_prefill", "kv_dtype", "quantize", "group")
    }
    stamp = make_stamp(model_path, options)
    if arguments.if_stale and is_current(out_dir, stamp):
        print(f"{out_dir} is up to date")
        return 0
    started = time.monotonic()
    checkpoint = load_checkpoint(
        model_path,
        max_context=arguments.max_context,
        kv_dtype=KV_DTYPES[arguments.kv_dtype],
        quantize=arguments.quantize,
        group=arguments.group,
    )
    write_llama(checkpoint, out_dir, max_prefill=arguments.max_prefill, stamp=stamp)
    print(
        f"{out_dir}: {checkpoint.name}, a context of {checkpoint.model.config.max_context} tokens,"
        f" exported in {time.monotonic() - started:.1f} s"
    )
    return 0


def write_llama(
    checkpoint: Checkpoint, out_dir: Path, *, max_prefill: int, stamp: str = ""
) -> None:
    """Export `checkpoint` to a bundle for prompts of up to `max_prefill` tokens a step."""
    import exporter

    context = checkpoint.model.config.max_context
    rows = min(max_prefill, context)
    exporter.export(
        checkpoint.model,
        {
            "tokens": torch.zeros(1, min(3, rows), dtype=torch.int64),
            "input_pos": 0,
            "num_logits": 1,
        },
        out_dir,
        symbols={
            "S": exporter.Sym(1, rows, at=("tokens", 1)),
            "input_pos": exporter.Sym(0, context - 1, at="input_pos"),
            "L": exporter.Sym(1, min(rows, MOST_LOGITS), at="num_logits"),
        },
        constraints=[(["+", "S", "input_pos"], context), (["-", "L", "S"], 0)],
        golden_steps=golden_steps(checkpoint, rows),
        output_names=["logits"],
        specializations=specializations(rows),
        text_files=checkpoint.text_files(),
        text=checkpoint.text(),
        model_card=checkpoint.model_card(),
        generation=checkpoint.generation,
        exporter_info={"stamp": stamp},
    )


def golden_steps(checkpoint: Checkpoint, max_prefill: int) -> list[dict[str, Any]]:
    """Return the steps to store: a few pieces of `GOLDEN_TEXT`, as far as the context and a step
    hold them.
    """
    ids = _golden_ids(checkpoint)
    steps, position = [], 0
    for index, (count, logits) in enumerate(GOLDEN_STEPS):
        count = min(count, max_prefill)
        if position + count > checkpoint.model.config.max_context:
            break
        tokens = [ids[i % len(ids)] for i in range(position, position + count)]
        steps.append(
            {
                "name": f"{index + 1}: {count} token{'s' if count > 1 else ''}",
                "inputs": {"tokens": torch.tensor([tokens])},
                "symbols": {"S": count, "input_pos": position, "L": min(logits, count)},
                "reset": index == 0,
            }
        )
        position += count
    return steps


def run_verify(arguments: argparse.Namespace) -> int:
    """`python -m exporter verify`: 0 if every golden step passes, 1 on a miss."""
    from exporter.verify import verify

    missed = 0
    for verdict in verify(Path(arguments.bundle_dir), host=arguments.host):
        print(verdict, flush=True)
        missed += not verdict.passed
    print(f"{missed} missed" if missed else "all golden steps pass")
    return 1 if missed else 0


def run_perplexity(arguments: argparse.Namespace) -> int:
    """`python -m exporter perplexity`: the bundle's perplexity in a host, and a reference's."""
    from exporter.perplexity import compare, default_text

    path = arguments.text
    if path is not None and not path.is_file():
        raise OptionError(f"{path} does not exist", hint="--text is a UTF-8 text file")
    found = compare(
        Path(arguments.bundle_dir),
        default_text() if path is None else path.read_text(encoding="utf-8"),
        tokens=arguments.tokens,
        width=arguments.window,
        step=arguments.step,
        reference=arguments.reference,
        host=arguments.host,
        options=arguments.options,
        timeout_s=arguments.timeout,
    ).summary()
    found["text"] = DEFAULT_TEXT if path is None else path.name
    if arguments.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name}: {value if isinstance(value, (str, float)) else json.dumps(value)}")
    return 0


def _golden_ids(checkpoint: Checkpoint) -> list[int]:
    from tokenizers import Tokenizer

    ids = Tokenizer.from_str(checkpoint.tokenizer).encode(GOLDEN_TEXT, add_special_tokens=False).ids
    vocabulary = checkpoint.model.config.vocabulary
    return [i for i in ids if i < vocabulary] or [0]


def specializations(max_prefill: int) -> list[dict[str, tuple[int, int]]]:
    """Return the plans made at load: decoding, a short turn, a prompt; of all, only the last
    token's logits are wanted.
    """
    spans = [(1, 1), (2, min(SHORT_TURN, max_prefill)), (SHORT_TURN + 1, max_prefill)]
    return [{"S": (low, high), "L": (1, 1)} for low, high in spans if low <= high]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m exporter", description="Make and check tabfire bundles."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    llama = commands.add_parser("llama", help="export a model of the Llama family")
    llama.set_defaults(command=export_llama)
    llama.add_argument(
        "model", metavar="MODEL", help="a .gguf file or a Hugging Face checkpoint folder"
    )
    llama.add_argument(
        "-o", dest="out_dir", metavar="DIR", required=True, help="the bundle's folder"
    )
    llama.add_argument(
        "--max-context", type=_positive, default=2048, help="tokens of the KV cache (2048)"
    )
    llama.add_argument(
        "--max-prefill", type=_positive, default=1024, help="most tokens of one step (1024)"
    )
    llama.add_argument(
        "--kv-dtype", choices=tuple(KV_DTYPES), default="f32", help="of the KV cache (f32)"
    )
    llama.add_argument("--quantize", choices=tuple(SCHEMES), help="quantise a float checkpoint")
    llama.add_argument("--group", type=_positive, default=32, help="codes that share a scale (32)")
    llama.add_argument("--if-stale", action="store_true", help="do nothing if DIR is up to date")
    check = commands.add_parser("verify", help="replay a bundle's golden steps in a real host")
    check.set_defaults(command=run_verify)
    check.add_argument("bundle_dir", metavar="DIR")
    check.add_argument("--host", choices=("chromium", "node"), default="chromium")
    _add_perplexity(commands)
    return parser


def _add_perplexity(commands: Any) -> None:
    parser = commands.add_parser(
        "perplexity", help="perplexity in a real host", description=_method("perplexity")
    )
    parser.set_defaults(command=run_perplexity)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("bundle_dir", metavar="DIR")
    parser.add_argument("--text", type=Path, metavar="FILE", help=f"UTF-8 ({DEFAULT_TEXT})")
    parser.add_argument("--tokens", type=_positive, default=2048, help="tokens predicted (2048)")
    parser.add_argument("--window", type=_positive, default=512, help="tokens of context (512)")
    parser.add_argument("--step", type=_positive, default=128, help="tokens a step (128)")
    parser.add_argument(
        "--reference",
        metavar="MODEL",
        help="the checkpoint for eager PyTorch in float32 (one that the exporter quantised runs as"
        " floats: the difference then holds the quantisation), `numpy` for an interpreter of the"
        " bundle's graph, or `none`; left out: the demo's checkpoint if it is that, else `numpy`",
    )
    parser.add_argument("--options", type=json_object, default={}, help="the session's, as JSON")
    parser.add_argument("--host", choices=KINDS, default="chromium")
    parser.add_argument("--timeout", type=float, default=1800.0, metavar="SECONDS", help="a step's")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _method(module: str) -> str:
    """Return what a module of the exporter says about its method."""
    import importlib

    text = importlib.import_module(f"exporter.{module}").__doc__ or ""
    return text[text.index("Method.") :].split("\n\n")[0]


def _check_sizes(max_context: int, max_prefill: int) -> None:
    """Capture needs examples of S, L and input_pos that are 2 or more and unlike each other."""
    for flag, value, least in (
        ("--max-context", max_context, 8),
        ("--max-prefill", max_prefill, 3),
    ):
        if value < least:
            raise OptionError(f"{flag} is {value}", hint=f"give {least} or more")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value
