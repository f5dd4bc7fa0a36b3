"""The op specs of a step: what decides how its ops can be split, and what a part costs."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from pesto_cli.data.graph import IntArray
from pesto_cli.data.specs import ARGUMENT, Body, BodyOp, Operand, OpSpec, Taken, Value
from pesto_cli.graphdef.attributes import attributes_key, plain_attributes
from pesto_cli.graphdef.body_steps import CALLS, BodyStep, body_step
from pesto_cli.graphdef.constant_values import constant_values, plain
from pesto_cli.graphdef.late_reads import late_reads
from pesto_cli.graphdef.outside_step import variables_taken_whole
from pesto_cli.graphdef.read import StepGraph
from pesto_cli.graphdef.sizes import TensorSize
from pesto_cli.graphdef.variable_shapes import shape_of_variable

Row = tuple[Any, ...]
"""The fields of an `Operand`. Ops are compared by them, because tuples are hashed quickly."""


def op_specs(step: StepGraph) -> tuple[tuple[OpSpec, ...], IntArray]:
    """Return the distinct specs of a step, and the index of each op's spec, `[num_ops]`.

    The index is -1 for an op that must stay whole whatever its type (see `_Reader.stays_whole`).
    Operands have the values that `constant_values` knows.
    """
    reader = _Reader(step)
    spec_of = [
        -1 if reader.stays_whole(members) else reader.spec_of(members[0])
        for members in step.members
    ]
    return tuple(reader.specs), np.array(spec_of, dtype=np.int64)


class _Reader:
    """Collects the distinct specs of nodes."""

    def __init__(self, step: StepGraph) -> None:
        self.specs: list[OpSpec] = []
        self._step = step
        self._index_of: dict[Hashable, int] = {}
        self._attributes: dict[Hashable, tuple[tuple[str, Value], ...]] = {}
        self._operands: dict[Row, Operand] = {}
        self._bodies: dict[Hashable, Body | None] = {}
        self._known = constant_values(step)
        self._values = [tuple(map(plain, known)) for known in self._known]
        self._taken_whole = variables_taken_whole(step.wiring)
        self._late_reads = late_reads(step.wiring)

    def stays_whole(self, members: Sequence[int]) -> bool:
        """Return whether an op must stay whole, whatever its type.

        It is not exactly one node (a while loop, the return of a fetch), or runs only if a branch
        of a conditional is taken. Or it reads a variable by reference: an op that cuts the variable
        would read it at another time. The same holds for `late_reads`. Or it is a variable that a
        node outside the step needs whole. Or it takes a small constant, which is not part of the op
        graph, with a value that a spec cannot hold.
        """
        if len(members) != 1:
            return True
        wiring, index = self._step.wiring, members[0]
        if wiring.frames[index] is not None or wiring.branches[index]:
            return True
        if wiring.nodes[index].name in self._taken_whole or index in self._late_reads:
            return True
        return any(
            wiring.signature(source).outputs[output].is_ref
            or (
                wiring.nodes[source].name in self._step.constants
                and self._values[source] == (None,)
            )
            for source, output in wiring.nodes[index].inputs
        )

    def spec_of(self, index: int) -> int:
        """Return the index in `specs` of a node's spec."""
        node, site = self._step.wiring.nodes[index], self._step.sites[index]
        inputs = tuple(
            self._row(source, output, on_host)
            for (source, output), on_host in zip(node.inputs, site.host_inputs, strict=True)
        )
        outputs = tuple(
            self._row(index, output, on_host) for output, on_host in enumerate(site.host_outputs)
        )
        attributes = self._attributes_of(node.proto)
        body = self._body(node.proto, inputs) if node.type in CALLS else None
        key = (node.type, attributes, inputs, outputs, body)
        if key not in self._index_of:
            self._index_of[key] = len(self.specs)
            op_def = self._step.wiring.op_defs.of(node.proto)
            self.specs.append(
                OpSpec(
                    node.type,
                    attributes,
                    self._interned(inputs),
                    self._interned(outputs),
                    body is None if node.type in CALLS else op_def.is_stateful,
                    body,
                )
            )
        return self._index_of[key]

    def _body(self, call: Any, inputs: Sequence[Row]) -> Body | None:
        """Return the body of a call; None if it is not known, see `body_step` and `_body_of`."""
        key = (call.attr["f"].func.name, tuple(inputs))
        if key not in self._bodies:
            found = body_step(call, self._interned(inputs), self._step.wiring.op_defs)
            self._bodies[key] = None if found is None else _body_of(found)
        return self._bodies[key]

    def _row(self, index: int, output: int, on_host: bool) -> Row:
        sizes, values = self._step.sizes[index], self._values[index]
        # The size of a Merge's input from NextIteration is unknown.
        size: TensorSize | None = sizes[output] if output < len(sizes) else None
        value = values[output] if output < len(values) else None
        shape = None if size is None else shape_of_variable(self._proto(index)) or size.shape
        known = self._known[index][output] if value is not None else None
        # A False in a constant equals a 0: the type of the operand tells them apart.
        return (
            shape if known is None else known.shape,
            None if size is None else size.dtype,
            value,
            on_host,
        )

    def _proto(self, index: int) -> Any:
        return self._step.wiring.nodes[index].proto

    def _interned(self, rows: Sequence[Row]) -> tuple[Operand, ...]:
        return tuple(self._operands.setdefault(row, Operand(*row)) for row in rows)

    def _attributes_of(self, node: Any) -> tuple[tuple[str, Value], ...]:
        if node.op == "Const":  # Its value is no attribute of a spec, and may be large.
            key: Hashable = ("Const", node.attr["dtype"].type)
        else:
            key = (node.op, attributes_key(node))
        if key not in self._attributes:
            op_def = self._step.wiring.op_defs.of(node)
            self._attributes[key] = plain_attributes(node, op_def)
        return self._attributes[key]


def _body_of(found: BodyStep) -> Body | None:
    """Return a body; None if an op takes or returns a handle or an open shape, or runs in a branch.

    Ops without outputs are left out.
    """
    wiring, reader = found.step.wiring, _Reader(found.step)
    node_of = {node.name: index for index, node in enumerate(wiring.nodes)}
    slot_of = {node_of[name]: slot for slot, name in enumerate(found.arguments) if name in node_of}
    place: dict[int, int] = {}
    ops: list[BodyOp] = []

    def taken(source: int, output: int) -> Taken:
        return (ARGUMENT, slot_of[source]) if source in slot_of else (place[source], output)

    for index in wiring.order:
        if index in slot_of or not found.step.sizes[index]:
            continue
        spec = reader.specs[reader.spec_of(index)]
        if wiring.frames[index] is not None or wiring.branches[index] or not _has_data(spec):
            return None
        place[index] = len(ops)
        ops.append(BodyOp(spec, tuple(taken(*source) for source in wiring.nodes[index].inputs)))
    return Body(tuple(ops), tuple(taken(node_of[name], number) for name, number in found.returns))


def _has_data(spec: OpSpec) -> bool:
    """Return whether the shapes of all operands are known, and none is a handle."""
    return spec.is_static and not any(each.is_handle for each in (*spec.inputs, *spec.outputs))
