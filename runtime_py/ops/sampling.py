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

from dataclasses import dataclass

from runtime_py.ops.base import Binding, Dispatch, KernelKey, Lowering, OpDef, Param, key
from runtime_py.schema import Graph, Node, expr_attr
from runtime_py.symbols import Shape, show_shape

KINDS = (("count", 0), ("count", 1), ("count", 2), ("mass", 0), ("mass", 1), ("mass", 2))
SETTINGS_WORDS = 16
BINS_WORDS = 11264  # the histograms of all passes, as wgsl/macros/radix.wgsl lays them out
STATE_WORDS = 4 * len(KINDS)


@dataclass(frozen=True)
class Form:
    """Threads of a part's workgroup and of the draw's; ids of a part at least, in multiples of
    `turn`. `few`: keys, then weights, are kept between dispatches, made once by a loop over four
    ids.
    """

    few: bool
    threads: int
    draw_threads: int
    least_span: int
    turn: int

    def span(self, width: int) -> int:
        """Return the ids of a part: the draw has a thread for each part."""
        least = max(min(self.least_span, width), -(-width // self.draw_threads))
        return -(-least // self.turn) * self.turn


# On a GPU a row becomes many workgroups, and each pass computes the weights that it needs.
MANY = Form(few=False, threads=256, draw_threads=256, least_span=1024, turn=1)
# On a CPU a workgroup of one subgroup waits at no barrier; each part costs a histogram to zero and
# to add. SwiftShader, two cores: docs/SAMPLING.md.
FEW = Form(few=True, threads=4, draw_threads=16, least_span=8192, turn=16)


@dataclass(frozen=True)
class Tables:
    """Names of what a draw's dispatches hand on; `scores` only where the form keeps them."""

    bins: str
    state: str
    sums: str
    scores: str | None

    def filled(self) -> tuple[Binding, ...]:
        """Return what the first dispatch writes."""
        names = (self.bins, self.scores) if self.scores else (self.bins,)
        return tuple(Binding(name, "read_write") for name in names)


def _tables(ctx: Lowering, node: Node, form: Form, count: int, span: int) -> Tables:
    return Tables(
        ctx.scratch(node, "bins", "u32", (BINS_WORDS,)),
        ctx.scratch(node, "state", "u32", (STATE_WORDS,)),
        ctx.scratch(node, "sums", "u32", (count, 4)),
        ctx.scratch(node, "scores", "u32", (count, span)) if form.few else None,
    )


def _lower(ctx: Lowering, node: Node) -> list[Dispatch]:
    logits, settings, seen = (str(name) for name in node.inputs)
    _, rows, width = ctx.value(logits).shape
    form = FEW if ctx.caps.is_software else MANY
    span = form.span(int(str(width)))
    count = -(-int(str(width)) // span)
    row = (Param("rows", "u32", rows), Param("width", "u32", width), Param("span", "u32", span))
    many = (*row, Param("parts", "u32", count))
    parts = ctx.scratch(node, "parts", "u32", (count, 2))
    draws = bool(node.attrs["draws"])
    inputs = (Binding(logits), Binding(settings), Binding(seen))
    first: tuple[Binding, ...] = (*inputs, Binding(parts, "read_write"))
    last: tuple[Binding, ...] = (
        *(Binding(settings), Binding(parts)),
        *(Binding(seen, "read_write"), Binding(node.outputs[0], "read_write")),
    )
    between: list[Dispatch] = []
    if draws:
        tables = _tables(ctx, node, form, count, span)
        ids = (Binding(tables.scores), Binding(settings)) if tables.scores else inputs
        between = _passes(form, (*ids, Binding(parts)), tables, count, many)
        first = (*first, *tables.filled())
        last = (*last, ids[0], Binding(tables.state), Binding(tables.sums))
    scan = key("sample_scan", draws=draws, few=form.few, threads=form.threads)
    draw = key("sample_draw", draws=draws, few=form.few, threads=form.draw_threads)
    zeroed = Param("bins", "u32", BINS_WORDS if draws else 0)
    position = Param("position", "u32", expr_attr(node, "position"))
    return [
        Dispatch(scan, first, (count, 1, 1), (*row, zeroed)),
        *between,
        Dispatch(draw, last, (1, 1, 1), (*many, position)),
    ]


def _passes(
    form: Form,
    given: tuple[Binding, ...],
    tables: Tables,
    count: int,
    params: tuple[Param, ...],
) -> list[Dispatch]:
    """Return the digits of top-k and top-p, and the sums of what they leave; the first digit over
    masses puts weights in the place of the keys in `scores`.
    """
    grid = (count, 1, 1)
    result = []
    for kind, level in KINDS:
        digit = key("sample_bins", kind=kind, level=level, few=form.few, threads=form.threads)
        weighs = form.few and (kind, level) == ("mass", 0)
        ids = Binding(given[0].value, "read_write" if weighs else "read")
        written = (Binding(tables.bins, "read_write"), Binding(tables.state, "read_write"))
        result.append(Dispatch(digit, (ids, *given[1:], *written), grid, params))
    found = (Binding(tables.bins), Binding(tables.state), Binding(tables.sums, "read_write"))
    sums = key("sample_sums", few=form.few, threads=form.threads)
    return [*result, Dispatch(sums, (*given, *found), grid, params)]


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
    for form in (FEW, MANY)
    for sizes in ({"few": form.few, "threads": form.threads},)
    for item in (
        key("sample_scan", draws=False, **sizes),
        key("sample_scan", draws=True, **sizes),
        *(key("sample_bins", kind=kind, level=level, **sizes) for kind, level in KINDS),
        key("sample_sums", **sizes),
        key("sample_draw", draws=False, few=form.few, threads=form.draw_threads),
        key("sample_draw", draws=True, few=form.few, threads=form.draw_threads),
    )
)
