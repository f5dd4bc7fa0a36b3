"""The op graph of a split graph: its tensors, where they are in memory, aliases and labels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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

NO_REF: Ref = (-1, 0)

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

    @cached_property
    def takes_any_on_host(self) -> bool:
        """Whether an input is in host memory."""
        return any(self.takes_on_host)


def split_op_graph(graph: OpGraph, parts: Parts, expansion: Expansion) -> OpGraph:
    """Return the op graph of the ops of an expansion that the step needs.

    graph: the original graph. parts: where tensors are in memory.
    """
    return _Builder(graph, parts, expansion).built()


class _Builder:
    def __init__(self, graph: OpGraph, parts: Parts, expansion: Expansion) -> None:
        ops, kept = expansion.ops, expansion.kept.tolist()
        self._graph, self._parts, self._expansion = graph, parts, expansion
        self._ops, self._kept = ops, kept
        self._specs = [ops.specs[op] for op in kept]
        self._origin, self._serves = expansion.origin, expansion.serves
        self._is_copy = np.array([spec is None for spec in self._specs])
        self._is_main = expansion.is_priced
        self._number = np.full(len(ops), -1, dtype=np.int64)  # of each new op that is kept
        self._number[kept] = np.arange(len(kept))
        self._found: dict[int, _Operands] = {}  # by the id of the spec, which parts share
        self._operands = [
            None if spec is None else self._found.get(id(spec)) or self._operands_of(spec)
            for spec in self._specs
        ]

    def built(self) -> OpGraph:
        """Return the op graph."""
        old, ops, kept, number = self._graph, self._ops, self._kept, self._number
        types = tuple(
            old.types[origin] if spec is None else spec.type
            for spec, origin in zip(self._specs, self._origin.tolist(), strict=True)
        )
        outputs = [
            self._copied_outputs(op) if operands is None else operands.outputs
            for op, operands in zip(kept, self._operands, strict=True)
        ]
        tensors = [*chain(*outputs)]
        num_outputs = np.array([*map(len, outputs)], dtype=np.int64)
        inputs = self._inputs(np.cumsum(num_outputs) - num_outputs)
        is_taken = inputs.tensors != NO_TENSOR
        offsets, consumers, consumer_on_host = consumer_columns(
            inputs.tensors[is_taken],
            inputs.op[is_taken],
            self._on_host(inputs)[is_taken],
            len(tensors),
        )
        controls = number[np.array(ops.controls, dtype=np.int64).reshape(-1, 2)]
        return OpGraph(
            names=tuple(ops.names[op] for op in kept),
            types=types,
            colocation_group=dense_groups(
                groups(old, self._expansion.decided, ops, kept), len(kept)
            ),
            resident_bytes=self._resident_bytes(),
            alias_of=self._aliases(types),
            num_members=np.where(self._is_copy, old.num_members[self._origin], 1),
            tensor_producer=np.repeat(np.arange(len(kept)), num_outputs),
            tensor_bytes=np.array([num_bytes for num_bytes, _, _ in tensors], dtype=np.int64),
            consumer_offsets=offsets,
            consumers=consumers,
            consumer_on_host=consumer_on_host,
            control_edges=unique_rows(controls[(controls >= 0).all(axis=1)]),
            labels=_labels(old.labels, self._origin, self._serves, self._is_copy | self._is_main),
            inputs=inputs,
            tensor_shape=known(shape for _, shape, _ in tensors),
            tensor_dtype=known(dtype for _, _, dtype in tensors),
        )

    def _inputs(self, first_tensor: IntArray) -> Inputs:
        """Return the inputs by slot; first_tensor: `[num_ops]`, the first output of each op."""
        rows = [self._ops.inputs[op] for op in self._kept]
        refs = (NO_REF if ref is None else ref for ref in chain(*rows))
        flat = np.fromiter(chain.from_iterable(refs), dtype=np.int64).reshape(-1, 2)
        number = np.where(flat[:, 0] >= 0, self._number[flat[:, 0]], -1)
        tensors = np.where(number >= 0, first_tensor[number] + flat[:, 1], NO_TENSOR)
        return Inputs.of_lengths([*map(len, rows)], tensors)

    def _resident_bytes(self) -> IntArray:
        """Return the bytes of a whole variable, or those of a piece or of a copy, `[num_ops]`."""
        found = np.where(self._origin >= 0, self._graph.resident_bytes[self._origin], 0)
        for index in np.flatnonzero(found).tolist():
            decision = self._expansion.decided.get(int(self._origin[index]))
            if decision is not None:
                part, size = self._ops.part[self._kept[index]], decision.alternative.size
                if not self._is_main[index]:
                    found[index] = 0
                elif size is not None:
                    found[index] = int(found[index]) * decision.sizes[part] // size
        return found

    def _copied_outputs(self, op: int) -> list[_Output]:
        """Return the bytes, shape and data type of each output of a copy."""
        graph = self._graph
        return [
            (
                int(graph.tensor_bytes[tensor]),
                graph.tensor_shape[tensor] if graph.tensor_shape else None,
                graph.tensor_dtype[tensor] if graph.tensor_dtype else None,
            )
            for tensor in graph.tensors_of(self._ops.origin[op])
        ]

    def _on_host(self, inputs: Inputs) -> BoolArray:
        """Return whether each input is in host memory both at its producer and at the op."""
        found = np.zeros(len(inputs.tensors), dtype=np.bool_)
        for index, operands in enumerate(self._operands):
            if operands is not None and not operands.takes_any_on_host:
                continue
            op = self._kept[index]
            origin, refs = self._ops.origin[op], self._ops.inputs[op]
            found[inputs.offsets[index] : inputs.offsets[index + 1]] = [
                ref is not None
                and (
                    self._copy_takes_on_host(origin, slot, ref)
                    if operands is None
                    else operands.takes_on_host[slot] and self._output_on_host(*ref)
                )
                for slot, ref in enumerate(refs)
            ]
        return found

    def _copy_takes_on_host(self, origin: int, slot: int, ref: Ref) -> bool:
        own, is_of_copy = self._parts.spec(origin), self._ops.specs[ref[0]] is None
        if own is None or is_of_copy:
            takes = self._was_on_host(origin, slot)
        else:
            takes = own.inputs[slot].on_host
        return takes and (is_of_copy or self._output_on_host(*ref))

    def _output_on_host(self, op: int, output: int) -> bool:
        spec = self._ops.specs[op]
        if spec is not None:
            return self._operands_of(spec).gives_on_host[output]
        own = self._parts.spec(self._ops.origin[op])
        return own is None or own.outputs[output].on_host

    def _operands_of(self, spec: OpSpec) -> _Operands:
        found = self._found.get(id(spec))
        if found is None:
            always = self._parts.added_on_host(spec.type, added_dtype(spec))
            found = self._found[id(spec)] = _Operands(
                [
                    (each.num_bytes, () if each.is_handle else each.shape, each.dtype)
                    for each in spec.outputs
                ],
                [always or each.on_host for each in spec.inputs],
                [always or each.on_host for each in spec.outputs],
            )
        return found

    def _was_on_host(self, op: int, slot: int) -> bool:
        """Return whether an op took the tensor in a slot in host memory before the rewriting."""
        graph = self._graph
        tensor = -1 if graph.inputs is None else int(graph.inputs[op][slot])
        first, last = graph.consumer_offsets[tensor : tensor + 2].tolist()
        place = first + int(np.searchsorted(graph.consumers[first:last], op))
        return bool(graph.consumer_on_host[place])

    def _aliases(self, types: Sequence[str]) -> IntArray:
        """Return the op whose memory the outputs of each op share, or -1, `[num_ops]`.

        A copy or part of an alias is an alias of the op in the same slot.
        """
        graph, is_added = self._graph, ~(self._is_copy | self._is_main)
        source = np.where(is_added, -1, graph.alias_of[self._origin])
        found = np.where(~is_added & (source == self._origin), np.arange(len(types)), -1)
        for index in np.flatnonzero((source >= 0) & (found < 0)).tolist():
            found[index] = self._alias_in_slot(index, int(source[index]))
        for index in np.flatnonzero(is_added).tolist():
            if types[index] in FORWARDING:
                refs = self._ops.inputs[self._kept[index]]
                taken = (ref for ref in refs if ref is not None)
                found[index] = next((self._number[op] for op, _ in taken), -1)
        return found

    def _alias_in_slot(self, index: int, source: int) -> int:
        """Return the op from which a copy or part takes what its origin takes from `source`."""
        graph, refs = self._graph, self._ops.inputs[self._kept[index]]
        if graph.inputs is None:
            return -1
        taken = graph.inputs[int(self._origin[index])].tolist()
        for tensor, ref in zip(taken, refs, strict=True):
            if ref is not None and tensor >= 0 and graph.tensor_producer[tensor] == source:
                return int(self._number[ref[0]])
        return -1


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
