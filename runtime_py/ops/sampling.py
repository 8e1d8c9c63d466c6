"""The next token where the logits are: the greatest, or drawn with `runtime_py.sampling`'s filters.

Input:  nodes `sample` over logits f32 [1, L, V], settings u32 [16] and the bits of the ids seen so
far, u32 [ceil(V / 32)] (see `sampling_words`).
Output: the id for `position`, from the last row of logits; its bit in the ids seen.
Way of the data: a row of `ops.registry`; `next_token` adds the nodes, no exporter does.

With `draws` false the node takes the greatest logit, in two dispatches. With `draws` true it takes
nine: the greatest, a digit of the threshold of top-k (three times) and of top-p (three times), the
mass of every part of the row, the draw. A pass that the settings do not ask for ends at once.

    attrs = {"draws": True, "position": Op("+", "input_pos", "S")}
    Node("n", "sample", ("logits", "settings", "seen"), ("id",), attrs, mutates=("seen",))
"""

from __future__ import annotations

from runtime_py.ops.base import Binding, Dispatch, KernelKey, Lowering, OpDef, Param, key
from runtime_py.schema import Graph, Node, expr_attr
from runtime_py.symbols import Shape, show_shape

KINDS = (("count", 0), ("count", 1), ("count", 2), ("mass", 0), ("mass", 1), ("mass", 2))
SETTINGS_WORDS = 16
BINS_WORDS = 11264  # the histograms of all passes, as wgsl/macros/sampling.wgsl lays them out
STATE_WORDS = 4 * len(KINDS)
# Ids a workgroup at least: on a GPU a row becomes many workgroups, on a CPU a few for its cores.
SPAN = {256: 1024, 64: 16384}


def _lower(ctx: Lowering, node: Node) -> list[Dispatch]:
    logits, settings, seen = (str(name) for name in node.inputs)
    _, rows, width = ctx.value(logits).shape
    threads = 64 if ctx.caps.is_software else 256
    span = max(SPAN[threads], -(-int(str(width)) // threads))
    count = -(-int(str(width)) // span)
    row = (Param("rows", "u32", rows), Param("width", "u32", width), Param("span", "u32", span))
    many = (*row, Param("parts", "u32", count))
    grid = (count, 1, 1)
    parts = ctx.scratch(node, "parts", "u32", (count, 2))
    given = (Binding(logits), Binding(settings), Binding(seen), Binding(parts))
    draws = bool(node.attrs["draws"])
    scan = key("sample_scan", draws=draws, threads=threads)
    draw = key("sample_draw", draws=draws, threads=threads)
    position = Param("position", "u32", expr_attr(node, "position"))
    first = (*given[:3], Binding(parts, "read_write"))
    last = (
        *(Binding(settings), Binding(parts)),
        *(Binding(seen, "read_write"), Binding(node.outputs[0], "read_write")),
    )
    if not draws:
        return [
            Dispatch(scan, first, grid, (*row, Param("bins", "u32", 0))),
            Dispatch(draw, last, (1, 1, 1), (*many, position)),
        ]
    bins = ctx.scratch(node, "bins", "u32", (BINS_WORDS,))
    state = ctx.scratch(node, "state", "u32", (STATE_WORDS,))
    sums = ctx.scratch(node, "sums", "u32", (count, 4))
    result = [
        Dispatch(
            scan,
            (*first, Binding(bins, "read_write")),
            grid,
            (*row, Param("bins", "u32", BINS_WORDS)),
        )
    ]
    counting = (*given, Binding(bins, "read_write"), Binding(state, "read_write"))
    for kind, level in KINDS:
        digit = key("sample_bins", kind=kind, level=level, threads=threads)
        result.append(Dispatch(digit, counting, grid, many))
    weighing = (*given, Binding(bins), Binding(state), Binding(sums, "read_write"))
    result.append(Dispatch(key("sample_sums", threads=threads), weighing, grid, many))
    drawn = (*last, Binding(logits), Binding(state), Binding(sums))
    return [*result, Dispatch(draw, drawn, (1, 1, 1), (*many, position))]


def _check(graph: Graph, node: Node) -> str | None:
    logits, settings, seen = (graph.values[str(name)] for name in node.inputs)
    shape = logits.shape
    if logits.dtype != "f32" or len(shape) != 3 or shape[0] != 1 or not isinstance(shape[2], int):
        return f"sample of {logits.dtype} {show_shape(shape)}, expected f32 [1, L, V]"
    words = (-(-shape[2] // 32),)
    for value, expected in ((settings, (SETTINGS_WORDS,)), (seen, words)):
        if value.dtype != "u32" or value.shape != expected:
            return f"sample: {value.name} is not u32 {show_shape(expected)}"
    return None


def _shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return ((1, 1),)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "sample",
        ("sample_scan", "sample_bins", "sample_sums", "sample_draw"),
        ("i32",),
        "the next token: greatest logit, or drawn with temperature, top-k, top-p and min-p",
        _check,
        _shape,
        _lower,
        mutates=True,
        private=True,
    ),
)
KEYS: tuple[KernelKey, ...] = tuple(
    item
    for threads in (64, 256)
    for item in (
        key("sample_scan", draws=False, threads=threads),
        key("sample_scan", draws=True, threads=threads),
        *(key("sample_bins", kind=kind, level=level, threads=threads) for kind, level in KINDS),
        key("sample_sums", threads=threads),
        key("sample_draw", draws=False, threads=threads),
        key("sample_draw", draws=True, threads=threads),
    )
)
