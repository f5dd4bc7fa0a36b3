"""GraphDef + plan -> GraphDef: the parts of ops as nodes.

Reading the step of the new graph gives the ops of `sharding.problems.rewritten`. Nodes outside the
step (initialisers, savers, summaries, an evaluation) keep their inputs: each op that was split has
a merged node of its name. The step does not run this node unless an op of the step takes it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pesto_cli.apply.part_functions import add_functions_of_parts, name_for_parts
from pesto_cli.apply.split_variables import (
    Pieces,
    change_collections,
    check_can_be_split,
    nodes_of_copies,
    outside_nodes,
)
from pesto_cli.data.plan import Plan
from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.fetches import drop_colocation
from pesto_cli.graphdef.op_specs import op_specs
from pesto_cli.graphdef.outside_step import accesses
from pesto_cli.graphdef.read import StepGraph, read_step
from pesto_cli.graphdef.signature import constant_value
from pesto_cli.graphdef.spec_nodes import constant_def, node_def
from pesto_cli.sharding.alternative import scaled
from pesto_cli.sharding.decisions import Decision
from pesto_cli.sharding.expansion import expand
from pesto_cli.sharding.layouts import Split
from pesto_cli.sharding.new_ops import Ref
from pesto_cli.sharding.rules.variables import is_variable


def split_graph(meta: Any, plan: Plan, what: str = "the graph") -> Any:
    """Return a copy of a MetaGraphDef in which the ops of a plan are split.

    what: names the graph in errors.

    Raises:
        BadInputError: the plan does not fit the graph.
    """
    return split_step(meta, read_step(meta, what), plan).meta


@dataclass(frozen=True)
class SplitGraph:
    """A MetaGraphDef in which the ops of a plan are split.

    variables: those that are split or mirrored.
    """

    meta: Any
    variables: tuple[Pieces, ...]


def split_step(meta: Any, step: StepGraph, plan: Plan) -> SplitGraph:
    """Split the ops of a step that was read from `meta`, as `split_graph` does."""
    specs, spec_of = op_specs(step)
    spec = [None if index < 0 else specs[index] for index in spec_of.tolist()]
    return _Writer(meta, step, spec, plan).written()


class _Writer:
    def __init__(
        self, meta: Any, step: StepGraph, spec: Sequence[OpSpec | None], plan: Plan
    ) -> None:
        self._meta, self._step, self._spec = meta, step, spec
        self._check_outside(plan)
        self._expansion = expand(step.graph, spec, plan, step.targets, with_merges=True)
        self._decided = self._expansion.decided
        self._ops = self._expansion.ops
        self._constants: dict[tuple[str | None, tuple[int, ...], str], Any] = {}
        self._called: dict[str, None] = {}
        self._waits_for: dict[int, list[str]] = defaultdict(list)
        for before, after in self._ops.controls:
            self._waits_for[after].append(self._ops.names[before])
        self._variables = {
            each.name: each
            for each in (
                Pieces.of(
                    step.graph.names[op],
                    [self._ops.names[new] for new in self._expansion.images[op]],
                    decision,
                )
                for op, decision in self._decided.items()
                if is_variable(decision.spec)
            )
        }
        self._images = {
            step.graph.names[op]: [self._ops.names[new] for new in self._expansion.images[op]]
            for op in self._decided
        }

    def written(self) -> SplitGraph:
        """Return the copy with all nodes."""
        copy = type(self._meta)()
        copy.CopyFrom(self._meta)
        nodes = {node.name: node for node in copy.graph_def.node}
        outside = self._outside(nodes)
        new = [self._node(op, spec) for op, spec in enumerate(self._ops.specs) if spec is not None]
        self._rewire(nodes)
        for name in self._images:
            del nodes[name]
        added = [*self._constants.values(), *new, *outside]
        self._check_names(nodes, added)
        copy.graph_def.ClearField("node")
        copy.graph_def.node.extend([*nodes.values(), *added])
        drop_colocation(copy.graph_def.node, self._images)
        add_functions_of_parts(copy.graph_def.library, self._called)
        if self._variables:
            change_collections(copy, self._variables.values())
        return SplitGraph(copy, tuple(self._variables.values()))

    def _outside(self, nodes: dict[str, Any]) -> list[Any]:
        """Remove the nodes outside the step that take the handle of a variable that is split.

        Return the nodes that replace them, and those of copies.
        """
        outside = [node for name, node in nodes.items() if name not in self._in_step]
        found = [node for each in self._variables.values() for node in nodes_of_copies(each)]
        for access in accesses(outside, self._variables):
            found += outside_nodes(access, self._variables[access.variable])
            del nodes[access.node.name]
        return found

    def _check_outside(self, plan: Plan) -> None:
        """Check that all nodes outside the step can be rewritten for the variables in pieces."""
        types = dict(zip(self._step.graph.names, self._step.graph.types, strict=True))
        variables = [name for name in plan.choices if types.get(name) == "VarHandleOp"]
        protos = self._step.wiring.table.protos
        outside = [proto for proto in protos if proto.name not in self._in_step]
        for access in accesses(outside, variables):
            check_can_be_split(access)

    @cached_property
    def _in_step(self) -> frozenset[str]:
        return frozenset(node.name for node in self._step.wiring.nodes)

    def _node(self, op: int, spec: OpSpec) -> Any:
        """Return the NodeDef of a part or of an added op."""
        name, origin = self._ops.names[op], self._ops.origin[op]
        inputs = [
            self._constant(spec.inputs[slot]) if ref is None else self._tensor(ref)
            for slot, ref in enumerate(self._ops.inputs[op])
        ]
        controls = list(dict.fromkeys(self._waits_for.get(op, ())))
        if spec.type == "Const" and origin < 0:
            return constant_def(name, spec.outputs[0])
        decision = self._decided.get(origin)
        if decision is None or spec.type != decision.spec.type:
            return node_def(name, spec, inputs, controls)
        node = type(self._proto(origin))()
        node.CopyFrom(self._proto(origin))
        node.name = name
        node.ClearField("input")
        node.input.extend([*inputs, *(f"^{control}" for control in controls)])
        _set_changed_attributes(node, decision.spec, spec)
        node.attr.pop("_output_shapes", None)
        if spec.body is not None:
            self._called[node.attr["f"].func.name] = None
            node.attr["f"].func.name = name_for_parts(node.attr["f"].func.name)
        if is_variable(spec) and name != self._proto(origin).name:
            shared = node.attr["shared_name"].s.decode() or self._proto(origin).name
            node.attr["shared_name"].s = f"{shared}.part_{self._ops.part[op]}".encode()
        if spec.type == "Const":
            self._cut_constant(node, decision, self._ops.part[op])
        return node

    def _proto(self, op: int) -> Any:
        return self._step.wiring.nodes[self._step.members[op][0]].proto

    def _cut_constant(self, node: Any, decision: Decision, part: int) -> None:
        import tensorflow as tf

        layout = decision.alternative.outputs[0]
        if not isinstance(layout, Split):
            return
        value, whole = constant_value(node), decision.alternative.size
        extent, sizes = value.shape[layout.axis], decision.sizes
        begin = scaled(extent, sum(sizes[:part]), whole)
        end = begin + scaled(extent, sizes[part], whole)
        piece = value[(slice(None),) * layout.axis + (slice(begin, end),)]
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(piece, shape=piece.shape))

    def _constant(self, operand: Operand) -> str:
        """Return the name of a small constant; equal ones share a node."""
        key = (operand.dtype, operand.sizes, repr(operand.value))
        if key not in self._constants:
            name = f"split.const_{len(self._constants)}"
            self._constants[key] = constant_def(name, operand)
        return str(self._constants[key].name)

    def _tensor(self, ref: Ref) -> str:
        op, output = ref
        if self._ops.specs[op] is None:
            tensor = self._step.graph.tensors_of(self._ops.origin[op])[output]
            return self._old_names[tensor]
        return _tensor_name(self._ops.names[op], output)

    def _rewire(self, nodes: Mapping[str, Any]) -> None:
        """Change the inputs of whole ops that take a tensor of a split op, or wait for one."""
        rows = [] if self._step.graph.inputs is None else list(self._step.graph.inputs.rows())
        is_split = [False] * self._step.graph.num_tensors
        for op in self._decided:
            for tensor in self._step.graph.tensors_of(op):
                is_split[tensor] = True
        for new, spec in enumerate(self._ops.specs):
            op = self._ops.origin[new]
            if spec is None and any(is_split[t] for t in rows[op] if t is not None):
                self._rewire_op(nodes, op, rows[op], self._ops.inputs[new], is_split)
        for node in self._step.wiring.nodes:
            self._replace_controls(nodes[node.name])

    def _rewire_op(
        self,
        nodes: Mapping[str, Any],
        op: int,
        row: Sequence[int | None],
        refs: Sequence[Ref | None],
        is_split: Sequence[bool],
    ) -> None:
        """Change the inputs of the nodes of one op."""
        for (index, place), tensor, ref in zip(self._slots(op), row, refs, strict=False):
            if tensor is not None and ref is not None and is_split[tensor]:
                name = self._step.wiring.nodes[index].name
                nodes[name].input[place] = self._tensor(ref)

    def _slots(self, op: int) -> Iterator[tuple[int, int]]:
        """Yield the slots of an op: (index of a node, number of its input).

        The return of a fetch has none; what is fetched has its old name.
        """
        members = set(self._step.members[op])
        for index in self._step.members[op]:
            for place, (source, _) in enumerate(self._step.wiring.nodes[index].inputs):
                if source not in members:
                    yield index, place

    @cached_property
    def _old_names(self) -> Mapping[int, str]:
        """The name that each tensor with a consumer has in the original graph."""
        nodes, rows = self._step.wiring.nodes, self._step.graph.inputs
        names = {}
        for op, row in enumerate([] if rows is None else rows.rows()):
            for (index, place), tensor in zip(self._slots(op), row, strict=False):
                if tensor is not None:
                    source, output = nodes[index].inputs[place]
                    names[tensor] = _tensor_name(nodes[source].name, output)
        return names

    def _replace_controls(self, node: Any) -> None:
        found = [
            image
            for source in node.input
            for image in (
                [f"^{name}" for name in self._images[source[1:]]]
                if source.startswith("^") and source[1:] in self._images
                else [source]
            )
        ]
        if found != list(node.input):
            node.ClearField("input")
            node.input.extend(dict.fromkeys(found) if _has_controls_only(found) else found)

    def _check_names(self, nodes: Mapping[str, Any], added: Iterable[Any]) -> None:
        for node in added:
            if node.name in nodes:
                raise BadInputError(
                    f"the graph already has a node {node.name!r}, a name that splitting needs; "
                    "the original graph, which was not split, was expected: export it again."
                )


def _tensor_name(node: str, output: int) -> str:
    return f"{node}:{output}" if output else node


def _set_changed_attributes(node: Any, before: OpSpec, after: OpSpec) -> None:
    if before.attributes != after.attributes:
        changed = [pair for pair in after.attributes if pair not in before.attributes]
        renewed = node_def(node.name, replace(after, attributes=tuple(changed)), ())
        for name, _ in changed:
            node.attr[name].CopyFrom(renewed.attr[name])


def _has_controls_only(inputs: Sequence[str]) -> bool:
    return all(source.startswith("^") for source in inputs)
