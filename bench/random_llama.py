"""Makes a bundle of a Llama-shaped model with random weights: the real graph, the real sizes.

Input:  a named shape, sizes that differ from it, a seed. Output: a bundle that loads and generates
(nonsense).
Way of the data: the exporter's own model and `export`, over weights without content -> the folder
without its shards (a skeleton) -> `random_fill`.

Weights are as a GGUF of Q4_0 with a Q8_0 embedding gives them: symmetric, a float16 scale for 32
codes, the head tied to the embedding. The tokenizer is SmolLM2's, filled up with words of no use.

    python -m bench.random_llama models/llama1b --shape llama-3.2-1b      # 830 MB
    python -m bench.random_llama DIR --shape llama-3.2-1b --skeleton      # small; needs torch
    python -m bench.random_llama DIR --fill                               # the rest; needs numpy
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from bench.random_fill import fill

if TYPE_CHECKING:
    from torch import Tensor

GROUP = 32


@dataclass(frozen=True)
class Shape:
    """Sizes of a model, in the letters of README.md: layers, E, Hq, Hkv, D, F, V, C."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    context: int
    max_prefill: int
    rope_base: float


SHAPES = {
    "llama-3.2-1b": Shape(16, 2048, 32, 8, 64, 8192, 128256, 2048, 1024, 500000.0),
    "smollm2-135m": Shape(30, 576, 9, 3, 64, 1536, 49152, 2048, 1024, 100000.0),
    "tiny": Shape(2, 64, 4, 2, 16, 128, 49152, 256, 32, 10000.0),
}


class HollowWeights:
    """`exporter.models.weights.Weights` of the right form: one number each, repeated, in no memory.

    The numbers differ, so that the exporter does not store two constants as one.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def linear(self, name: str, rows: int, columns: int, bias: bool) -> Any:
        """Return a layer of 4-bit codes."""
        from exporter.quantize import QuantLinear

        codes, scales = self._packed("q4gsw", rows, columns)
        return QuantLinear(codes, scales, "q4gsw", GROUP, columns)

    def embedding(self, name: str, rows: int, columns: int) -> Any:
        """Return a table of 8-bit codes."""
        from exporter.quantize import QuantEmbedding

        codes, scales = self._packed("q8gsw", rows, columns)
        return QuantEmbedding(codes, scales, "q8gsw", GROUP, columns)

    def vector(self, name: str, size: int) -> Tensor:
        """Return a norm's weight."""
        import torch

        return self._expanded(torch.float32, size)

    def _packed(self, scheme: str, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        import torch

        from exporter.schemes import group_count, padded_width, scheme_of

        words = padded_width(scheme, columns) // scheme_of(scheme).codes_per_word
        groups = group_count(scheme, GROUP, columns)
        return (
            self._expanded(torch.int32, rows, words),
            self._expanded(torch.float16, rows, groups + groups % 2),
        )

    def _expanded(self, dtype: Any, *shape: int) -> Tensor:
        import torch

        return torch.full((1,) * len(shape), next(self._numbers), dtype=dtype).expand(*shape)


def make_skeleton(shape: Shape, out_dir: pathlib.Path, *, name: str) -> None:
    """Write all of a bundle but its shards."""
    import torch

    import exporter
    from exporter.cli import MOST_LOGITS, specializations

    checkpoint = _checkpoint(shape, name)
    rows = min(shape.max_prefill, shape.context)
    exporter.export(
        checkpoint.model,
        {"tokens": torch.zeros(1, 3, dtype=torch.int64), "input_pos": 0, "num_logits": 1},
        out_dir,
        symbols={
            "S": exporter.Sym(1, rows, at=("tokens", 1)),
            "input_pos": exporter.Sym(0, shape.context - 1, at="input_pos"),
            "L": exporter.Sym(1, min(rows, MOST_LOGITS), at="num_logits"),
        },
        constraints=[(["+", "S", "input_pos"], shape.context), (["-", "L", "S"], 0)],
        output_names=["logits"],
        specializations=specializations(rows),
        probe=False,  # it would compute with weights that have no content
        text_files=checkpoint.text_files(),
        text=checkpoint.text(),
        model_card=checkpoint.model_card(),
        generation=checkpoint.generation,
    )
    for shard in out_dir.glob("weights-*.bin"):
        shard.unlink()


def _checkpoint(shape: Shape, name: str) -> Any:
    from exporter.models.checkpoint import Checkpoint
    from exporter.models.llama import Llama, LlamaConfig

    config = LlamaConfig(
        width=shape.hidden,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        mlp=shape.mlp,
        vocabulary=shape.vocabulary,
        max_context=shape.context,
        rope_base=shape.rope_base,
        tied_head=True,
    )
    return Checkpoint(
        model=Llama(config, HollowWeights()),
        name=f"random-{name}",
        tokenizer=_tokenizer(shape.vocabulary),
        generation={"eos_token_id": [], "bos_token_id": None},
    )


def _tokenizer(vocabulary: int) -> str:
    """Return SmolLM2's tokenizer.json with `<|unused_i|>` for ids past its own."""
    import gguf

    from exporter.models.gguf_tokenizer import to_tokenizer_json
    from exporter.models.smollm2 import find_gguf

    data = to_tokenizer_json(gguf.GGUFReader(find_gguf()))
    words = data["model"]["vocab"]
    if vocabulary < len(words):
        raise SystemExit(f"error: --vocabulary is below the tokenizer's {len(words)}")
    words.update({f"<|unused_{i}|>": i for i in range(len(words), vocabulary)})
    return json.dumps(data, ensure_ascii=False)


def shape_of(arguments: argparse.Namespace) -> Shape:
    """Return the named shape with the sizes that the command line changes."""
    given = {f.name: getattr(arguments, f.name) for f in fields(Shape)}
    return replace(SHAPES[arguments.shape], **{k: v for k, v in given.items() if v is not None})


def add_sizes(parser: argparse.ArgumentParser, default: str) -> None:
    """Give a parser --shape, and an option for every size of it."""
    parser.add_argument("--shape", choices=tuple(SHAPES), default=default)
    for field in fields(Shape):
        kind = float if field.name == "rope_base" else int
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, metavar="N")


def main() -> None:
    """Make what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("out_dir", type=pathlib.Path, metavar="DIR")
    add_sizes(parser, "llama-3.2-1b")
    parser.add_argument("--seed", type=int, default=0)
    half = parser.add_mutually_exclusive_group()
    half.add_argument("--skeleton", action="store_true", help="all but the shards")
    half.add_argument("--fill", action="store_true", help="the shards of a skeleton")
    arguments = parser.parse_args()
    if not arguments.fill:
        make_skeleton(shape_of(arguments), arguments.out_dir, name=arguments.shape)
    if not arguments.skeleton:
        print(f"{arguments.out_dir}: {fill(arguments.out_dir, arguments.seed)} bytes of weights")


if __name__ == "__main__":
    main()
