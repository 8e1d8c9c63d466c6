"""Time of a decode step against context, layers and width, on models of random weights.

Input:  a bundle, or sizes from which `random_llama` makes some; a host.
Output: a table of medians in milliseconds a token, and one JSON document as the last line.
Way of the data: `random_llama` -> bundles -> `headless.open_model` -> scaling.

A row decodes `--tokens` tokens from each position that the context has room for; every token is
delivered, and the time is the whole reply's decode time over its tokens.

    python -m bench.scaling --bundle DIR                              # one bundle, its contexts
    python -m bench.scaling --folder DIR --layers 8 16 32 --hidden 1024 2048 4096

With --skeletons only what needs torch is made; the same command without it, also on another
machine, fills and measures.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from bench.random_fill import fill
from bench.random_llama import SHAPES, Shape, make_skeleton
from exporter.headless import Model, open_model
from runtime_py.errors import TabfireError

POSITIONS = (128, 512, 1024, 2048, 4096)
ROOM = 256  # positions past the last of them


def sweep(base: Shape, layers: Sequence[int], hidden: Sequence[int]) -> Iterator[tuple[str, Shape]]:
    """Yield (name, shape): the layers at the base's width, then the widths at the base's layers.

    Heads and MLP grow with the width; a width must be whole heads for every KV head.
    """
    context = POSITIONS[-1] + ROOM
    for count in layers:
        yield f"layers-{count}", replace(base, layers=count, context=context)
    for width in hidden:
        heads, share = width // base.head_dim, base.heads // base.kv_heads
        if width % (base.head_dim * share):
            raise SystemExit(f"error: width {width} is no multiple of {base.head_dim * share}")
        sizes = {"hidden": width, "heads": heads, "kv_heads": heads // share}
        mlp = width * base.mlp // base.hidden
        yield f"hidden-{width}", replace(base, **sizes, mlp=mlp, context=context)


def measure(model: Model, tokens: int, rounds: int) -> dict[int, list[float]]:
    """Return position -> milliseconds a token, one number a round; rounds go through positions."""
    card = model.ask("report")["model"]
    places = [p for p in POSITIONS if p + tokens <= card["max_context"]]
    found: dict[int, list[float]] = {place: [] for place in places}
    for number in range(rounds + 1):
        for place in places:
            ids = [1000 + (7919 * i + 104729 * (number + 1)) % 30000 for i in range(place)]
            request = {"prompt": ids, "options": {"max_tokens": tokens}}
            timings = model.generate(request)["timings"]
            if number > 0 and timings["generated_tokens"] > 1:  # the first round warms up
                found[place].append(timings["decode_ms"] / (timings["generated_tokens"] - 1))
    return found


def row_of(name: str, folder: pathlib.Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return one bundle's medians, or its error."""
    try:
        with open_model(folder, host=arguments.host, options=arguments.options) as model:
            found = measure(model, arguments.tokens, arguments.rounds)
            report = model.ask("report")
    except TabfireError as error:
        return {"name": name, "error": error.message.splitlines()[0]}
    return {
        "name": name,
        "model": report["model"],
        "adapter": report["adapter"],
        "memory": report["memory"],
        "ms": {place: statistics.median(times) for place, times in found.items() if times},
        "samples_ms": found,
    }


def provide(shape: Shape, folder: pathlib.Path, skeleton: bool) -> None:
    """Make a bundle, or fill it where only its skeleton is there."""
    if not (folder / "manifest.json").exists():
        make_skeleton(shape, folder, name=folder.name)
    if not skeleton and not any(folder.glob("weights-*.bin")):
        fill(folder)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a line a bundle: milliseconds a token at each position, and its bytes on the GPU."""
    head = f"{'':14}" + "".join(f"{place:>10}" for place in POSITIONS)
    lines = [head + f"{'weights MB':>12}{'state MB':>10}{'scratch MB':>12}"]
    for row in rows:
        if "error" in row:
            lines.append(f"{row['name']:14} {row['error']}")
            continue
        cells = "".join(
            f"{row['ms'][place]:10.3f}" if place in row["ms"] else f"{'-':>10}"
            for place in POSITIONS
        )
        parts = (row["memory"][f"{part}_bytes"] / 1e6 for part in ("weights", "state", "scratch"))
        sizes = "{:12.1f}{:10.1f}{:12.1f}".format(*parts)
        lines.append(f"{row['name']:14}{cells}{sizes}")
    return "\n".join(lines)


def main() -> None:
    """Measure a bundle, or every size of the sweep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bundle", type=pathlib.Path, nargs="+", default=[])
    parser.add_argument("--shape", choices=tuple(SHAPES), default="llama-3.2-1b")
    parser.add_argument("--layers", type=int, nargs="*", default=[])
    parser.add_argument("--hidden", type=int, nargs="*", default=[])
    parser.add_argument("--folder", type=pathlib.Path, help="where bundles are kept")
    parser.add_argument(
        "--skeletons", action="store_true", help="only make the bundles in --folder, without shards"
    )
    parser.add_argument("--host", default="chromium")
    parser.add_argument("--options", type=json.loads, default={}, metavar="JSON")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rows = [row_of(folder.name, folder, arguments) for folder in arguments.bundle]
    with tempfile.TemporaryDirectory() as scratch:
        root = arguments.folder or pathlib.Path(scratch)
        for name, shape in sweep(SHAPES[arguments.shape], arguments.layers, arguments.hidden):
            provide(shape, root / name, arguments.skeletons)
            if arguments.skeletons:
                continue
            rows.append(row_of(name, root / name, arguments))
    print(table(rows))
    print(json.dumps({"bench": "scaling", "rows": rows}))


if __name__ == "__main__":
    main()
