"""Emit: the captured ATen graph becomes a `schema.Graph` and the tensors of its constants.

Input:  a `Captured`. Output: an `Emitted`: graph (constants without parts yet), tensors by constant
name.
Way of the data: `capture` -> emit -> `fuse` -> `bundle`. The rows that say how one ATen operator is
written in ours stand in `lowering/`; this file walks the graph, folds constants and turns mutations
into in-place nodes.

- What depends on constants alone is computed here, in torch, and stored.
- A mutating operator of ours writes its buffer in place; any other mutation ends as a `copy` node,
after every reader of the old value. Whoever still needs the old value gets a copy made in time.
- All unsupported operations are reported in one error, each with the line of the model that made
it.

    emitted = emit(captured)
    [node.op for node in emitted.graph.nodes]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    OutputKind,
    SymIntArgument,
    TensorArgument,
)

from exporter.capture import Captured
from exporter.eager import OUTPUT
from exporter.folding import fold, leaves
from exporter.lowering import find_rule
from exporter.lowering.builder import Builder, Operand, Ref, Refused
from exporter.rewrite import Emitted, prune
from exporter.source import source_of
from exporter.symbolic import to_expr
from runtime_py.errors import ExportError, InternalError, UnsupportedOpError
from runtime_py.schema import Buffer, Constant, Graph, Port, Symbol

ITEM = (
    "`.item()` reads a number back from the GPU; pass it as an int argument, or bind the "
    "one-element "
    "tensor argument in symbols="
)
IGNORED = ("_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range", "_assert_async")


class Poison:
    """What an unsupported operation yields: it silences what follows from the same fault."""


def emit(captured: Captured, *, output_names: Sequence[str] | None = None) -> Emitted:
    """Return the graph of `captured`; raises `UnsupportedOpError` with everything that has no
    lowering.
    """
    return _Emitter(captured, output_names).run()


class _Emitter:
    def __init__(self, captured: Captured, output_names: Sequence[str] | None) -> None:
        self.captured, self.output_names = captured, output_names
        self.program = captured.program
        self.signature = captured.program.graph_signature
        self.names = dict(captured.names)
        self.build = Builder(self.names, captured.domain)
        self.env: dict[fx.Node, Any] = {}
        self.buffer_of: dict[fx.Node, str] = {}  # nodes that stand for a buffer's current content
        self.buffers: dict[str, Buffer] = {}
        self.inputs: list[Port] = []
        self.outputs: list[Port] = []
        self.faults: list[str] = []
        self.order = {node: i for i, node in enumerate(self.program.graph.nodes)}

    def run(self) -> Emitted:
        self._placeholders()
        for node in self.program.graph.nodes:
            if node.op == "call_function":
                self._call(node)
            elif node.op not in ("placeholder", "output"):
                self._fault(
                    node, f"{node.op} node (higher-order operators and submodules are not taken)"
                )
        self._refuse_faults()
        self._finish()
        return self._result()

    # ---- what comes in

    def _placeholders(self) -> None:
        nodes = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        mutated = set(self.signature.buffers_to_mutate.values())
        arguments = dict(zip(self.signature.user_inputs, self.captured.arguments, strict=True))
        for node, spec in zip(nodes, self.signature.input_specs, strict=True):
            if spec.kind == InputKind.USER_INPUT:
                self.env[node] = self._user_input(node, spec.arg, arguments)
            elif spec.kind == InputKind.BUFFER and spec.target in mutated:
                self.env[node] = self._buffer(node, str(spec.target))
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                self.env[node] = self.build.stored(str(spec.target), self._tensor(str(spec.target)))
            else:
                raise ExportError(f"input {node.name} is a {spec.kind}, which cannot be exported")

    def _tensor(self, target: str) -> torch.Tensor:
        # A persistent=False buffer and a lifted constant are in `constants`, not in the state dict.
        for store in (self.program.state_dict, self.program.constants):
            if target in store:
                tensor: torch.Tensor = store[target].detach()
                return tensor
        raise InternalError(f"{target} is named by the export signature but stored nowhere")

    def _buffer(self, node: fx.Node, target: str) -> Ref:
        tensor = self._tensor(target)
        ref = self.build.declare(
            target, tuple(tensor.shape), self.build.dtype_of(tensor.dtype, target)
        )
        init = None
        if bool(tensor.count_nonzero()):
            init = f"{target}.init"
            self.build.add_constant(init, tensor.clone(), self.build.values[ref.name].dtype)
        self.buffers[ref.name] = Buffer(ref.name, init)
        self.buffer_of[node] = ref.name
        return ref

    def _user_input(self, node: fx.Node, arg: Any, arguments: Mapping[str, str]) -> Any:
        if isinstance(arg, ConstantArgument):
            return arg.value
        if isinstance(arg, SymIntArgument):
            return to_expr(node.meta["val"].node.expr, self.names)
        if not isinstance(arg, TensorArgument):
            raise ExportError(
                f"input {node.name} is a {type(arg).__name__}; inputs are tensors and ints"
            )
        name = arguments[node.name]
        shape, dtype = self.build.meta_of(node)
        ref = self.build.declare(name, shape, dtype)
        self.inputs.append(Port(name, ref.name))
        return ref

    # ---- one node

    def _call(self, node: fx.Node) -> None:
        self.build.node = node
        name = str(node.target)
        if any(part in name for part in IGNORED):
            return
        args, kwargs = self._resolve(node.args), self._resolve(node.kwargs)
        poisoned = any(isinstance(leaf, Poison) for leaf in leaves((args, kwargs)))
        known = find_rule(node) or isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat))
        try:
            self.env[node] = Poison() if poisoned and known else self._value(node, args, kwargs)
        except Refused as error:
            self._fault(node, str(error))
        except UnsupportedOpError:
            raise
        except ExportError as error:
            self._fault(node, error.message)

    def _value(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        value = node.meta.get("val")
        if "_local_scalar_dense" in str(node.target) or "aten.item" in str(node.target):
            raise Refused(ITEM)
        if isinstance(value, torch.SymInt):
            return to_expr(value.node.expr, self.names)
        if isinstance(value, (int, bool, torch.SymBool)):
            return value
        if isinstance(value, torch.SymFloat):
            raise Refused("float arithmetic on a symbolic integer")
        if "auto_functionalized" in str(node.target):
            return self._in_place(node, args, kwargs)
        folded = fold(node, args, kwargs)
        if folded is not None:
            return folded
        rule = find_rule(node)
        if rule is None:
            raise Refused("there is no lowering for this operator")
        return rule(self.build, *args, **kwargs)

    def _resolve(self, item: Any) -> Any:
        if isinstance(item, fx.Node):
            return self.env.get(item)
        if isinstance(item, (list, tuple)):
            return [self._resolve(i) for i in item]
        if isinstance(item, dict):
            return {k: self._resolve(v) for k, v in item.items()}
        return item

    def _fault(self, node: fx.Node, reason: str) -> None:
        self.env[node] = Poison()
        self.faults.append(f"{node.target}: {reason}\n      at {source_of(node)}")

    def _refuse_faults(self) -> None:
        if self.faults:
            unique = list(dict.fromkeys(self.faults))
            raise UnsupportedOpError(
                f"{len(unique)} operations cannot be exported:\n    " + "\n    ".join(unique),
                hint="docs/OPS.md lists what can; docs/ADD_AN_OP.md shows how to add one",
            )

    # ---- mutation

    def _in_place(self, node: fx.Node, args: Any, kwargs: Any) -> list[Any]:
        """Write the buffers of a mutating operator in place again (torch made it functional)."""
        rule = find_rule(node)
        if rule is None:
            raise Refused("there is no lowering for this mutating operator")
        bases = [n for n in node.kwargs["_all_bases"] if isinstance(n, fx.Node)]  # type: ignore[union-attr]
        given = dict(kwargs)
        given.pop("_all_bases")
        targets = [self._writable(node, base) for base in bases]
        for key in [k for k in given if k.startswith("_")]:
            value = given.pop(key)
            if key.endswith("_base_index"):
                given[key[1 : -len("_base_index")]] = targets[value]
            elif not (key.endswith("_alias") and value):
                raise Refused(
                    "it writes to a view of a tensor; give it the whole registered buffer"
                )
        result = rule(self.build, **given)
        outputs = result if isinstance(result, tuple) else (result,)
        for getitem in node.users:
            index = int(getitem.args[1])  # type: ignore[arg-type]
            if index >= len(outputs):
                self.buffer_of[getitem] = targets[index - len(outputs)].name
        return [*outputs, *targets]

    def _writable(self, node: fx.Node, base: fx.Node) -> Ref:
        """Return a buffer that holds `base` and that `node` may overwrite."""
        if base not in self.buffer_of:
            # Not a registered buffer (an argument, or a computed value): a buffer of our own
            # takes a copy.
            ref = self.build.declare(f"{node.name}.{base.name}", *self.build.meta_of(base))
            self.buffers[ref.name] = Buffer(ref.name, None)
            self.build.copy(self.env[base], ref)
            return ref
        name = self.buffer_of[base]
        self._save_readers(name, after=self.order[node])
        return Ref(name)

    def _save_readers(self, buffer: str, after: int) -> None:
        """Give every later reader of `buffer`'s present content a copy of it."""
        for reader, value in list(self.env.items()):
            late = any(self.order[user] > after for user in reader.users)
            if late and isinstance(value, Ref) and self.build.root(value.name) == buffer:
                self.env[reader] = self.build.materialize(value)

    def _finish(self) -> None:
        """Emit outputs, then final copies: outputs must see what the model returned."""
        output = next(n for n in self.program.graph.nodes if n.op == "output")
        results = list(output.args[0])
        specs = list(zip(results, self.signature.output_specs, strict=True))
        returned = [(n, s) for n, s in specs if s.kind == OutputKind.USER_OUTPUT]
        for name, (node, _) in zip(self._port_names(len(returned)), returned, strict=True):
            self._output(name, node)
        for node, spec in specs:
            if spec.kind == OutputKind.USER_INPUT_MUTATION:
                if node in [n for n, _ in returned]:
                    continue
                self._output(self._argument(str(spec.target)), node)
            elif spec.kind not in (OutputKind.USER_OUTPUT, OutputKind.BUFFER_MUTATION):
                raise ExportError(f"the module returns a {spec.kind}, which cannot be exported")
        self._final_copies(
            [(n, str(s.target)) for n, s in specs if s.kind == OutputKind.BUFFER_MUTATION]
        )

    def _argument(self, placeholder: str) -> str:
        position = list(self.signature.user_inputs).index(placeholder)
        return list(self.captured.arguments)[position]

    def _port_names(self, count: int) -> list[str]:
        spec = self.program.call_spec.out_spec
        keys = list(spec.context) if spec is not None and spec.type is dict else None
        names = list(self.output_names or keys or ([OUTPUT] if count == 1 else []))
        names = names or [f"{OUTPUT}_{i}" for i in range(count)]
        if len(names) != count:
            raise ExportError(f"{len(names)} output names for {count} outputs")
        return names

    def _output(self, name: str, node: Any) -> None:
        value = self.env[node] if isinstance(node, fx.Node) else node
        if value is None:
            return
        if isinstance(node, fx.Node):
            self.build.node = node
        if not isinstance(value, (Ref, torch.Tensor)):
            value = self.build.add("full", (), (), "i32", {"value": value})
        ref = self.build.ref(value)
        if self.build.root(ref.name) not in self.build.computed:
            ref = self.build.materialize(
                ref
            )  # a port never shows a buffer, an input or a constant itself
        self.outputs.append(Port(name, ref.name))

    def _final_copies(self, mutations: list[tuple[fx.Node, str]]) -> None:
        pending: list[tuple[Operand, Ref]] = []
        for node, target in mutations:
            value = self.env[node]
            if self.buffer_of.get(node) == target or value == Ref(target):
                continue
            self.build.node = node
            if isinstance(value, Ref) and self.build.root(value.name) in self.buffers:
                value = self.build.materialize(value)  # another copy may overwrite it first
            pending.append((value, Ref(target)))
        for value, ref in pending:
            self.build.copy(value, ref)

    # ---- what goes out

    def _result(self) -> Emitted:
        build = self.build
        graph = Graph(
            symbols=tuple(Symbol(n, s.min, s.max) for n, s in self.captured.symbols.items()),
            constraints=tuple(self.captured.domain.constraints),
            values=build.values,
            constants={name: Constant(name, ()) for name in build.constants},
            buffers=self.buffers,
            nodes=tuple(build.nodes),
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
        )
        return prune(Emitted(graph, dict(build.constants)))
