"""The op graph of a split graph: its tensors, where they are in memory, aliases and labels."""

from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from pesto_cli.data.columns import BoolArray, IntArray, unique_rows
from pesto_cli.data.graph import OpGraph, Shape
from pesto_cli.data.graph_columns import consumer_columns, dense_groups, known
from pesto_cli.data.inputs import NO_TENSOR, Inputs
from pesto_cli.data.labels import Compound, Labels, Role
from pesto_cli.data.parts import Parts, added_dtype
from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.added_ops import FORWARDING
from pesto_cli.sharding.expansion import Expansion
from pesto_cli.sharding.groups import groups
from pesto_cli.sharding.new_ops import Ref

_Output = tuple[int, Shape | None, str | None]
"""Bytes, shape and data type."""


@dataclass(frozen=True)
class _Operands:
    """The operands of a part or an added op.

    outputs: its outputs. takes_on_host, gives_on_host: whether each input and each output is in
        host memory.
    """

    outputs: list[_Output]
    takes_on_host: list[bool]
    gives_on_host: list[bool]


def split_op_graph(graph: OpGraph, parts: Parts, expansion: Expansion) -> OpGraph:
    """Return the op graph of the ops of an expansion that the step needs.

    graph: the original graph. parts: where tensors are in memory.
    """
    return _Builder(graph, parts, expansion).built()


class _Builder:
    def __init__(self, graph: OpGraph, parts: Parts, expansion: Expansion) -> None:
        self._graph, self._parts, self._expansion = graph, parts, expansion
        self._ops, self._kept = expansion.ops, expansion.kept
        self._number = {op: index for index, op in enumerate(self._kept)}
        self._operands_of: dict[int, _Operands] = {}  # by the id of the spec, which parts share

    def built(self) -> OpGraph:
        """Return the op graph."""
        old, ops, kept, number = self._graph, self._ops, self._kept, self._number
        origin, serves = (
            np.array([column[op] for op in kept], dtype=np.int64)
            for column in (ops.origin, ops.serves)
        )
        is_copy = np.array([ops.specs[op] is None for op in kept])
        is_main = np.array([ops.is_priced[op] for op in kept])
        outputs = [self._outputs(op) for op in kept]
        tensors = [*chain(*outputs)]
        num_outputs = np.array([len(each) for each in outputs], dtype=np.int64)
        inputs = self._inputs(np.cumsum(num_outputs) - num_outputs)
        is_taken = inputs.tensors != NO_TENSOR
        on_host = np.array([*chain(*map(self._on_host, kept))], dtype=np.bool_)
        offsets, consumers, consumer_on_host = consumer_columns(
            inputs.tensors[is_taken], inputs.op[is_taken], on_host[is_taken], len(tensors)
        )
        controls = [
            (number[before], number[after])
            for before, after in ops.controls
            if before in number and after in number
        ]
        return OpGraph(
            names=tuple(ops.names[op] for op in kept),
            types=tuple(
                spec.type if (spec := ops.specs[op]) else old.types[ops.origin[op]] for op in kept
            ),
            colocation_group=dense_groups(
                groups(old, self._expansion.decided, ops, kept), len(kept)
            ),
            resident_bytes=np.array(list(map(self._resident_bytes, kept)), dtype=np.int64),
            alias_of=np.array(list(map(self._alias, kept)), dtype=np.int64),
            num_members=np.where(is_copy, old.num_members[origin], 1),
            tensor_producer=np.repeat(np.arange(len(kept)), num_outputs),
            tensor_bytes=np.array([num_bytes for num_bytes, _, _ in tensors], dtype=np.int64),
            consumer_offsets=offsets,
            consumers=consumers,
            consumer_on_host=consumer_on_host,
            control_edges=unique_rows(np.array(controls, dtype=np.int64).reshape(-1, 2)),
            labels=_labels(old.labels, origin, serves, is_copy | is_main),
            inputs=inputs,
            tensor_shape=known(shape for _, shape, _ in tensors),
            tensor_dtype=known(dtype for _, _, dtype in tensors),
        )

    def _inputs(self, first_tensor: IntArray) -> Inputs:
        """Return the inputs by slot; first_tensor: `[num_ops]`, the first output of each op."""
        first = dict(zip(self._kept, first_tensor.tolist(), strict=True))
        rows = [self._ops.inputs[op] for op in self._kept]
        tensors = [
            first[ref[0]] + ref[1] if ref and ref[0] in first else NO_TENSOR for ref in chain(*rows)
        ]
        return Inputs.of_lengths([len(row) for row in rows], tensors)

    def _resident_bytes(self, op: int) -> int:
        """Return the bytes of a whole variable, or those of a piece or of a copy."""
        origin = self._ops.origin[op]
        whole = int(self._graph.resident_bytes[origin]) if origin >= 0 else 0
        decision = self._expansion.decided.get(origin)
        if decision is None:
            return whole
        if not self._ops.is_priced[op]:
            return 0
        size = decision.alternative.size
        return whole if size is None else whole * decision.sizes[self._ops.part[op]] // size

    def _outputs(self, op: int) -> list[_Output]:
        """Return the bytes, shape and data type of each output."""
        graph, spec = self._graph, self._ops.specs[op]
        if spec is not None:
            return self._operands(spec).outputs
        return [
            (
                int(graph.tensor_bytes[tensor]),
                graph.tensor_shape[tensor] if graph.tensor_shape else None,
                graph.tensor_dtype[tensor] if graph.tensor_dtype else None,
            )
            for tensor in graph.tensors_of(self._ops.origin[op])
        ]

    def _on_host(self, op: int) -> list[bool]:
        """Return whether each input is in host memory both at its producer and at the op."""
        specs, refs, origin = self._ops.specs, self._ops.inputs[op], self._ops.origin[op]
        if (spec := specs[op]) is not None:
            takes = self._operands(spec).takes_on_host
            if not any(takes):
                return takes
            return [
                ref is not None and takes[slot] and self._output_on_host(*ref)
                for slot, ref in enumerate(refs)
            ]
        own = self._parts.spec(origin)
        return [
            ref is not None
            and (
                self._was_on_host(origin, slot)
                if own is None or specs[ref[0]] is None
                else own.inputs[slot].on_host
            )
            and (specs[ref[0]] is None or self._output_on_host(*ref))
            for slot, ref in enumerate(refs)
        ]

    def _output_on_host(self, op: int, output: int) -> bool:
        spec = self._ops.specs[op]
        if spec is not None:
            return self._operands(spec).gives_on_host[output]
        own = self._parts.spec(self._ops.origin[op])
        return own is None or own.outputs[output].on_host

    def _operands(self, spec: OpSpec) -> _Operands:
        if id(spec) not in self._operands_of:
            always = self._parts.added_on_host(spec.type, added_dtype(spec))
            self._operands_of[id(spec)] = _Operands(
                [
                    (each.num_bytes, () if each.is_handle else each.shape, each.dtype)
                    for each in spec.outputs
                ],
                [always or each.on_host for each in spec.inputs],
                [always or each.on_host for each in spec.outputs],
            )
        return self._operands_of[id(spec)]

    def _was_on_host(self, op: int, slot: int) -> bool:
        """Return whether an op took the tensor in a slot in host memory before the rewriting."""
        graph = self._graph
        tensor = -1 if graph.inputs is None else int(graph.inputs[op][slot])
        first, last = graph.consumer_offsets[tensor : tensor + 2].tolist()
        place = first + int(np.searchsorted(graph.consumers[first:last], op))
        return bool(graph.consumer_on_host[place])

    def _alias(self, op: int) -> int:
        """Return the op in whose memory the outputs of an op are, or -1.

        A copy or part of an alias is an alias of the op in the same slot.
        """
        graph, spec, origin = self._graph, self._ops.specs[op], self._ops.origin[op]
        refs = self._ops.inputs[op]
        if spec is not None and not self._ops.is_priced[op]:
            taken = (ref for ref in refs if ref is not None and spec.type in FORWARDING)
            return next((self._kept_number(ref) for ref in taken), -1)
        source = int(graph.alias_of[origin])
        if source == origin:
            return self._number[op]
        if source < 0 or graph.inputs is None:
            return -1
        for tensor, ref in zip(graph.inputs[origin].tolist(), refs, strict=True):
            if ref is not None and tensor >= 0 and graph.tensor_producer[tensor] == source:
                return self._kept_number(ref)
        return -1

    def _kept_number(self, ref: Ref) -> int:
        """Return the number of an op in the split graph; -1 for a constant that is no op there."""
        return self._number.get(ref[0], -1)


def _labels(labels: Labels, origin: IntArray, serves: IntArray, is_main: BoolArray) -> Labels:
    """Return the labels of each op.

    A copy or part has the labels of its origin; other ops of a program have the role of an ordinary
    op. An added op has the role and the compound of an ordinary op, and all other labels of the op
    that it serves. is_main: whether an op is a copy, or the part that has the type of its origin.
    """
    taken, is_added = labels.of(serves.tolist()), origin < 0
    return replace(
        taken,
        role=np.where(is_main, taken.role, int(Role.COMPUTE)),
        compound=np.where(is_added, int(Compound.NONE), taken.compound),
    )
