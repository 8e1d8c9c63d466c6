"""Times the attention routes at the reference's shapes, against the materialised route, in one run.

Input:  shapes (`SHAPES`), a host. Output: a table, and one JSON document as the last line.
Every route runs on the same adapter in the same process. GPU times are medians of timestamped
dispatches; wall times are medians of whole steps with their read-back. Cache bandwidth counts each
key and value that a query may see once.

    python -m bench.attention [--bundles DIR] [--host chromium] [--make-only] [--match TEXT]
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from exporter.hosts.host import Host, get_host
from runtime_py.errors import TabfireError

ROUTES = ("auto", "materialized")


@dataclass(frozen=True)
class Shape:
    """One attention call: S query tokens at `input_pos`, Hq query heads over Hkv KV heads."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int
    tokens: int
    context: int
    input_pos: int

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values that the step may read, each once."""
        return 2 * 4 * self.kv_heads * self.head_dim * (self.input_pos + self.tokens)


SHAPES = (
    Shape("llama1b_decode", 32, 8, 64, 1, 512, 127),
    Shape("llama1b_decode_2k", 32, 8, 64, 1, 2048, 2047),
    Shape("llama1b_decode_4k", 32, 8, 64, 1, 4096, 4095),
    Shape("llama1b_decode_8k", 32, 8, 64, 1, 8192, 8191),
    Shape("smollm2_decode_2k", 9, 3, 64, 1, 2048, 2047),
    Shape("llama1b_prefill", 32, 8, 64, 128, 512, 0),
    Shape("llama1b_prefill_512", 32, 8, 64, 512, 512, 0),
    Shape("llama3_prefill", 24, 8, 128, 128, 256, 0),
    Shape("qwen3_prefill", 16, 8, 128, 128, 256, 0),
)


def make_bundle(shape: Shape, folder: pathlib.Path) -> None:
    """Export one attention layer with its caches in the graph."""
    import torch

    from exporter import Sym, export
    from exporter.ops import sdpa_with_kv_cache

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            cache = torch.zeros(1, shape.context, shape.kv_heads, shape.head_dim)
            self.register_buffer("k_cache", cache)
            self.register_buffer("v_cache", cache.clone())

        def forward(
            self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, input_pos: int
        ) -> torch.Tensor:
            return sdpa_with_kv_cache(q, k, v, self.k_cache, self.v_cache, input_pos)

    def rows(heads: int) -> torch.Tensor:
        return torch.zeros(1, 3, heads, shape.head_dim)

    kv = rows(shape.kv_heads)
    symbols = {
        "S": Sym(1, max(16, shape.tokens), at=[("q", 1), ("k", 1), ("v", 1)]),
        "input_pos": Sym(0, shape.context - 1, at="input_pos"),
    }
    limit = [(["+", "S", "input_pos"], shape.context)]
    export(
        Attention(),
        (rows(shape.heads), kv, kv.clone(), 2),
        folder,
        symbols=symbols,
        constraints=limit,
    )


def measure(host: Host, folder: pathlib.Path, shape: Shape, route: str) -> dict[str, Any]:
    """Return medians in milliseconds and the scratch bytes of one route at one shape."""
    options = {"attention": route}
    load = {"url": host.mount(folder), "options": options, "kind": "session"}
    handle = host.call("load", load)[0]["handle"]
    try:
        rng = np.random.default_rng(7)
        arrays = {
            name: rng.standard_normal((1, shape.tokens, heads, shape.head_dim), np.float32)
            for name, heads in (("q", shape.heads), ("k", shape.kv_heads), ("v", shape.kv_heads))
        }
        call = {
            "handle": handle,
            "symbols": {"S": shape.tokens, "input_pos": shape.input_pos},
            "repeat": 9,
        }
        wall = host.call("measure", call, arrays)[0]["step_ms"][2:]
        profiles = [host.call("profile", call, arrays)[0]["dispatches"] for _ in range(5)]
        kernels = [d["kernel"] for d in profiles[0] if d["kernel"] != "update_cache"]
        gpu = [
            sum(d["time_ms"] for d in profile if d["kernel"] != "update_cache")
            for profile in profiles[1:]
        ]
        memory = host.call("report", {"handle": handle})[0]["memory"]
    finally:
        host.call("close", {"handle": handle})
    gpu_ms = statistics.median(gpu)
    return {
        **asdict(shape),
        "route": route,
        "kernels": kernels,
        "gpu_ms": gpu_ms,
        "wall_ms": statistics.median(wall),
        "cache_gb_s": shape.cache_bytes / max(gpu_ms, 1e-6) / 1e6,
        "scratch_bytes": memory["scratch_bytes"],
    }


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Return the rows as text, the ratio to the materialised route last."""
    lines = [
        f"{'shape':22} {'route':13} {'GPU ms':>9} {'wall ms':>9} "
        f"{'GB/s':>8} {'scratch':>12} {'x':>6}"
    ]
    found = {(row["name"], row["route"]): row for row in rows}
    for (name, route), row in found.items():
        plain = found.get((name, "materialized"))
        ratio = f"{plain['gpu_ms'] / max(row['gpu_ms'], 1e-6):6.2f}" if plain else ""
        lines.append(
            f"{name:22} {route:13} {row['gpu_ms']:9.3f} {row['wall_ms']:9.2f} "
            f"{row['cache_gb_s']:8.1f} {row['scratch_bytes']:12d} {ratio}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure every shape whose name holds `--match`, both routes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bundles", type=pathlib.Path, help="where exported bundles are kept")
    parser.add_argument("--host", default="chromium")
    parser.add_argument("--make-only", action="store_true")
    parser.add_argument("--match", default="")
    arguments = parser.parse_args()
    shapes = [shape for shape in SHAPES if arguments.match in shape.name]
    with tempfile.TemporaryDirectory() as scratch:
        root = arguments.bundles or pathlib.Path(scratch)
        for shape in shapes:
            if not (root / shape.name / "manifest.json").exists():
                make_bundle(shape, root / shape.name)
        if arguments.make_only:
            return
        host = get_host(arguments.host)
        hello = host.call("hello")[0]
        print({k: hello[k] for k in ("browser", "pyodide") if k in hello}, hello["adapter"])
        rows = []
        for shape in shapes:
            for route in ROUTES:
                try:
                    rows.append(measure(host, root / shape.name, shape, route))
                except TabfireError as error:
                    print(f"{shape.name} {route}: {error.message.splitlines()[0]}")
        print(table(rows))
        print(json.dumps({"bench": "attention", "adapter": hello["adapter"], "rows": rows}))


if __name__ == "__main__":
    main()
