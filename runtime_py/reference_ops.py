"""The numpy meaning of every operator, one function each.

Input:  a node, its inputs as arrays, the values of the symbols. Output: the node's result; buffers
change in place.
Way of the data: the table behind `reference`. Attention and quantised weights are in
`reference_models`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import erf
from typing import Any

from runtime_py import symbols
from runtime_py.errors import NonFiniteError
from runtime_py.sampling import Sampler
from runtime_py.sampling_words import read_settings
from runtime_py.schema import Graph, Node, SymbolAttr, expr_attr
from runtime_py.symbols import Expr


@dataclass
class Context:
    """One run: the symbols' values, every array so far, the float type."""

    graph: Graph
    symbols: Mapping[str, int]
    values: dict[str, Any]
    dtype: str

    def expr(self, node: Node, name: str, default: Expr | None = None) -> int:
        """Return the value of an attribute that is an expression."""
        return symbols.evaluate(expr_attr(node, name, default), self.symbols)

    def number(self, node: Node, name: str) -> float:
        """Return an attribute that is a number or an expression."""
        value = node.attrs[name]
        if isinstance(value, (SymbolAttr, symbols.Op)):
            return self.expr(node, name)
        return value  # type: ignore[return-value]

    def shape(self, node: Node) -> tuple[int, ...]:
        """Return the declared shape of the first output at this step."""
        declared = self.graph.values[node.outputs[0]].shape
        return tuple(symbols.evaluate(dim, self.symbols) for dim in declared)

    def kind(self, node: Node) -> str:
        """Return the numpy type of the first output."""
        return {"f32": self.dtype, "f16": self.dtype, "i32": "int64", "u32": "uint32"}[
            self.graph.values[node.outputs[0]].dtype
        ]


Method = Callable[..., Any]
REFERENCE: dict[str, Method] = {}


def op(*names: str) -> Callable[[Method], Method]:
    """Register a function as the meaning of operators."""

    def register(method: Method) -> Method:
        for name in names:
            REFERENCE[name] = method
        return method

    return register


def _numpy() -> Any:
    import numpy

    return numpy


@op("add", "sub", "mul", "div", "maximum", "minimum", "pow")
def _arithmetic(ctx: Context, node: Node, a: Any, b: Any = None) -> Any:
    np = _numpy()
    name = {"sub": "subtract", "mul": "multiply", "div": "divide", "pow": "power"}.get(
        node.op, node.op
    )
    if b is None:
        b = np.asarray(ctx.number(node, "scalar"), dtype=a.dtype)
        if node.attrs.get("reverse"):
            a, b = b, a
    return np.asarray(getattr(np, name)(a, b)).astype(ctx.kind(node))


@op("eq", "ne", "lt", "le", "gt", "ge")
def _compare(ctx: Context, node: Node, a: Any, b: Any = None) -> Any:
    np = _numpy()
    name = {
        "eq": "equal",
        "ne": "not_equal",
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
    }[node.op]
    other = ctx.number(node, "scalar") if b is None else b
    return getattr(np, name)(a, other).astype("uint32")


def _unary(name: str, function: Callable[[Any, Any], Any]) -> None:
    @op(name)
    def method(ctx: Context, node: Node, x: Any) -> Any:
        np = _numpy()
        return np.asarray(function(np, x)).astype(ctx.kind(node))


def _sigmoid(np: Any, x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _gelu_tanh(np: Any, x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


for _name in ("exp", "log", "sqrt", "sin", "cos", "abs", "tanh", "square", "logical_not"):
    _unary(_name, lambda np, x, name=_name: getattr(np, name)(x))  # type: ignore[misc]
_unary("neg", lambda np, x: -x)
_unary("rsqrt", lambda np, x: 1 / np.sqrt(x))
_unary("reciprocal", lambda np, x: 1 / x)
_unary("relu", lambda np, x: np.where(x < 0, 0, x))
_unary("sigmoid", _sigmoid)
_unary("silu", lambda np, x: x * _sigmoid(np, x))
_unary("gelu", lambda np, x: 0.5 * x * (1 + np.vectorize(erf, otypes=[x.dtype])(x / np.sqrt(2))))
_unary("gelu_tanh", _gelu_tanh)


def activation(np: Any, name: str, x: Any) -> Any:
    """Return the activation of a gated layer."""
    return x * _sigmoid(np, x) if name == "silu" else _gelu_tanh(np, x)


@op("where")
def _where(ctx: Context, node: Node, condition: Any, a: Any, b: Any) -> Any:
    return _numpy().where(condition != 0, a, b).astype(ctx.kind(node))


@op("cast")
def _cast(ctx: Context, node: Node, x: Any) -> Any:
    np = _numpy()
    if node.attrs["dtype"] == "f16":
        return x.astype("float16").astype(ctx.dtype)
    return (np.trunc(x) if np.issubdtype(x.dtype, np.floating) else x).astype(ctx.kind(node))


@op("view")
def _view(ctx: Context, node: Node, x: Any) -> Any:
    return x.reshape(ctx.shape(node))


@op("permute")
def _permute(ctx: Context, node: Node, x: Any) -> Any:
    return x.transpose(node.attrs["dims"])


@op("expand")
def _expand(ctx: Context, node: Node, x: Any) -> Any:
    return _numpy().broadcast_to(x, ctx.shape(node)).copy()


def _window(ctx: Context, node: Node, rank: int, extent: int) -> tuple[slice, ...]:
    start, step = ctx.expr(node, "start", 0), ctx.expr(node, "step", 1)
    dim = int(str(node.attrs["dim"]))
    return (
        *(slice(None),) * dim,
        slice(start, start + (extent - 1) * step + 1 if extent else start, step),
    )


@op("slice")
def _slice(ctx: Context, node: Node, x: Any) -> Any:
    return x[_window(ctx, node, x.ndim, ctx.shape(node)[int(str(node.attrs["dim"]))])]


@op("slice_scatter")
def _slice_scatter(ctx: Context, node: Node, base: Any, src: Any) -> Any:
    result = base.copy()
    result[_window(ctx, node, base.ndim, src.shape[int(str(node.attrs["dim"]))])] = src
    return result


@op("cat")
def _cat(ctx: Context, node: Node, *arrays: Any) -> Any:
    return _numpy().concatenate(arrays, axis=node.attrs["dim"])


@op("copy")
def _copy(ctx: Context, node: Node, src: Any, dst: Any) -> None:
    ctx.values[node.mutates[0]] = src.astype(dst.dtype).copy()


@op("full")
def _full(ctx: Context, node: Node) -> Any:
    return _numpy().full(ctx.shape(node), ctx.number(node, "value"), dtype=ctx.kind(node))


@op("arange")
def _arange(ctx: Context, node: Node) -> Any:
    steps = _numpy().arange(ctx.shape(node)[0], dtype=ctx.kind(node))
    return ctx.number(node, "start") + steps * _numpy().asarray(
        ctx.number(node, "step"), dtype=ctx.kind(node)
    )


@op("sum", "mean", "amax")
def _reduce(ctx: Context, node: Node, x: Any) -> Any:
    np = _numpy()
    result = getattr(np, node.op)(x, axis=node.attrs["dims"], keepdims=bool(node.attrs["keepdim"]))
    return np.asarray(result).astype(ctx.kind(node))


@op("argmax")
def _argmax(ctx: Context, node: Node, x: Any) -> Any:
    np = _numpy()
    found = np.where(np.isnan(x).any(-1), -1, x.argmax(-1))
    return np.asarray(found, dtype=ctx.kind(node))


@op("sample")
def _sample(ctx: Context, node: Node, logits: Any, settings: Any, seen: Any) -> Any:
    np = _numpy()
    row = logits[0, -1].tolist()
    options, known, seed = read_settings(settings.astype("<u4").tobytes())
    options = options if node.attrs["draws"] else replace(options, temperature=0.0)
    ids = [i for i in range(len(row)) if seen[i >> 5] >> (i & 31) & 1]
    try:
        sampler = Sampler(options, known or len(row), seed)
        token = sampler.sample(row, ctx.expr(node, "position"), ids)
    except NonFiniteError:
        return np.full((1, 1), -1, dtype=ctx.kind(node))
    if options.repetition_penalty != 1.0:
        seen[token >> 5] |= np.uint32(1 << (token & 31))
    return np.full((1, 1), token, dtype=ctx.kind(node))


@op("softmax")
def _softmax(ctx: Context, node: Node, x: Any) -> Any:
    return softmax(x)


def softmax(x: Any) -> Any:
    """Return softmax over the last dimension; a row of -inf becomes 0."""
    np = _numpy()
    top = x.max(-1, keepdims=True)
    weights = np.exp(x - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total)


@op("matmul")
def _matmul(ctx: Context, node: Node, a: Any, b: Any) -> Any:
    return a @ b


@op("index_select")
def _index_select(ctx: Context, node: Node, x: Any, ids: Any) -> Any:
    return _numpy().take(x, ids, axis=node.attrs["dim"])


@op("last_rows")
def _last_rows(ctx: Context, node: Node, x: Any) -> Any:
    return x[:, x.shape[1] - ctx.expr(node, "rows") :]


@op("rms_norm")
def _rms_norm(ctx: Context, node: Node, x: Any, weight: Any = None) -> Any:
    return rms_norm(x, weight, float(str(node.attrs["eps"])))


def rms_norm(x: Any, weight: Any, eps: float) -> Any:
    """Return x / sqrt(mean(x^2) + eps) * weight, over the last dimension."""
    result = x / _numpy().sqrt((x * x).mean(-1, keepdims=True) + eps)
    return result if weight is None else result * weight


@op("layer_norm")
def _layer_norm(ctx: Context, node: Node, x: Any, weight: Any = None, bias: Any = None) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    result = centred / _numpy().sqrt(variance + float(str(node.attrs["eps"])))
    result = result if weight is None else result * weight
    return result if bias is None else result + bias


@op("linear")
def _linear(
    ctx: Context, node: Node, x: Any, weight: Any, bias: Any = None, residual: Any = None
) -> Any:
    result = x @ weight.T
    result = result if bias is None else result + bias
    return result if residual is None else result + residual


@op("embedding")
def _embedding(ctx: Context, node: Node, ids: Any, weight: Any) -> Any:
    return weight[ids]
