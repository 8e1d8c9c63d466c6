"""Where a node of the captured graph comes from: the last frame of its stack that is the model's
own code.

Input:  an fx node. Output: a `schema.Source` (file name, line, code, module path).
Way of the data: used by `emit`; the line ends up in graph.json and in error messages.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import torch
from torch import fx

from runtime_py.schema import Source

FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in [^\n]*\n\s*(?P<code>[^\n]*)')
HERE = Path(__file__).parent
# Layers of torch and of ours are not what a model's author looks for.
FOREIGN = (
    str(Path(torch.__file__).parent),
    str(HERE / "ops.py"),
    str(HERE / "quantize.py"),
    "torch/",
)


def source_of(node: fx.Node) -> Source:
    """Return the model's line behind `node`; an empty one if torch has kept no stack."""
    module = ""
    stack = node.meta.get("nn_module_stack") or {}
    for path, _ in stack.values():
        module = path if isinstance(path, str) and not path.startswith("_empty") else module
    return _parse(node.meta.get("stack_trace") or "", module)


@cache
def _parse(trace: str, module: str) -> Source:
    own = [m for m in FRAME.finditer(trace) if not m["file"].startswith(FOREIGN)]
    if not own:
        return Source("", 0, "", module)
    frame = own[-1]
    return Source(Path(frame["file"]).name, int(frame["line"]), frame["code"].strip(), module)
