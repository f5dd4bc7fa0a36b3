"""The op graph of a split graph: its tensors, where they are in memory, aliases and labels."""

from dataclasses import replace
from itertools import chain

import numpy as np

from pesto_cli.data.columns import BoolArray, IntArray, unique_rows
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.graph_columns import consumer_columns, known
from pesto_cli.data.inputs import NO_TENSOR, Inputs
from pesto_cli.data.labels import Compound, Labels, Role
from pesto_cli.data.parts import Parts
from pesto_cli.sharding.added_ops import FORWARDING
from pesto_cli.sharding.expansion import Expansion
from pesto_cli.sharding.groups import groups
from pesto_cli.sharding.new_ops import Ref
from pesto_cli.sharding.operands import Outputs, Slots

NO_REF: Ref = (-1, 0)


def split_op_graph(graph: OpGraph, parts: Parts, expansion: Expansion) -> OpGraph:
    """Return the op graph of the ops of an expansion that the step needs.

    graph: the original graph. parts: where tensors are in memory.
    """
    return _Builder(graph, parts, expansion).built()


class _Builder:
    """Builds the graph of the kept ops of an expansion, `[num_ops]`.

    outputs, slots: see `operands`.
    first_tensor: `[num_ops]`, the first output of each op. producer: `[num_tensors]`.
    row: `[num_tensors]`, the row of each tensor in `outputs`.
    inputs: the inputs by slot.
    is_ref: `[num_inputs]`, whether an input is an output of a new op, and no small constant.
    source: `[num_inputs]`, the op that computes it; -1 if that is not kept.
    """

    def __init__(self, graph: OpGraph, parts: Parts, expansion: Expansion) -> None:
        self._graph, self._expansion, self._num_ops = graph, expansion, len(expansion.kept)
        self._origin, self._is_copy = expansion.origin, expansion.spec_of < 0
        self._is_added = ~(self._is_copy | expansion.is_priced)
        self._outputs = Outputs.build(graph, parts, expansion)
        self._slots = Slots.build(graph, parts, expansion)
        first, count = self._outputs.of.first, self._outputs.of.count
        self._first_tensor = np.cumsum(count) - count
        self._producer = np.repeat(np.arange(self._num_ops), count)
        place = np.arange(len(self._producer)) - self._first_tensor[self._producer]
        self._row = first[self._producer] + place
        rows = [expansion.ops.inputs[op] for op in expansion.kept.tolist()]
        refs = (NO_REF if ref is None else ref for ref in chain.from_iterable(rows))
        flat = np.fromiter(chain.from_iterable(refs), dtype=np.int64).reshape(-1, 2)
        self._is_ref, self._source = flat[:, 0] >= 0, expansion.number[flat[:, 0]]
        tensors = self._first_tensor[self._source] + flat[:, 1]
        self._inputs = Inputs.of_lengths(
            [*map(len, rows)], np.where(self._source >= 0, tensors, NO_TENSOR)
        )

    def built(self) -> OpGraph:
        """Return the op graph."""
        old, expansion, outputs = self._graph, self._expansion, self._outputs
        names, row = expansion.ops.names, self._row.tolist()
        types = [*old.types, *(spec.type for spec in expansion.specs)]
        type_of = np.where(self._is_copy, self._origin, old.num_ops + expansion.spec_of)
        offsets, consumers, consumer_on_host = self._consumers()
        controls = expansion.number[np.array(expansion.ops.controls, dtype=np.int64).reshape(-1, 2)]
        return OpGraph(
            names=tuple(map(names.__getitem__, expansion.kept.tolist())),
            types=tuple(map(types.__getitem__, type_of.tolist())),
            colocation_group=groups(old, expansion),
            resident_bytes=self._resident_bytes(),
            alias_of=self._aliases(),
            num_members=np.where(self._is_copy, old.num_members[self._origin], 1),
            tensor_producer=self._producer,
            tensor_bytes=outputs.num_bytes[self._row],
            consumer_offsets=offsets,
            consumers=consumers,
            consumer_on_host=consumer_on_host,
            control_edges=unique_rows(controls[(controls >= 0).all(axis=1)]),
            labels=_labels(old.labels, self._origin, expansion.serves, ~self._is_added),
            inputs=self._inputs,
            tensor_shape=known(map(outputs.shape.__getitem__, row)),
            tensor_dtype=known(map(outputs.dtype.__getitem__, row)),
        )

    def _consumers(self) -> tuple[IntArray, IntArray, BoolArray]:
        """Return the ops that take each tensor, see `consumer_columns`.

        An input is in host memory if it is there both at its producer and at the op. Between two
        copies nothing changes.
        """
        outputs, slots, is_taken = self._outputs, self._slots, self._source >= 0
        tensor, op = self._inputs.tensors[is_taken], self._inputs.op[is_taken]
        slot = slots.of.first[op] + self._inputs.slot[is_taken]
        on_host = slots.on_host[slot] & outputs.on_host[self._row[tensor]]
        are_copies = self._is_copy[op] & self._is_copy[self._producer[tensor]]
        on_host[are_copies] = slots.was_on_host[slot[are_copies]]
        return consumer_columns(tensor, op, on_host, len(self._producer))

    def _resident_bytes(self) -> IntArray:
        """Return the bytes of a whole variable, or those of a piece or of a copy, `[num_ops]`."""
        expansion = self._expansion
        found = np.where(self._origin >= 0, self._graph.resident_bytes[self._origin], 0)
        for index in np.flatnonzero(found).tolist():
            decision = expansion.decided.get(int(self._origin[index]))
            if decision is not None:
                part, size = expansion.part[index], decision.alternative.size
                if not expansion.is_priced[index]:
                    found[index] = 0
                elif size is not None:
                    found[index] = int(found[index]) * decision.sizes[part] // size
        return found

    def _aliases(self) -> IntArray:
        """Return the op whose memory the outputs of each op share, or -1, `[num_ops]`.

        A copy or part of an alias is an alias of the op in the same slot. An added op that forwards
        its input is an alias of the op that computes this.
        """
        was = np.where(self._is_added, -1, self._graph.alias_of[self._origin])
        is_own = ~self._is_added & (was == self._origin)
        found = np.where(is_own, np.arange(self._num_ops), -1)
        forwards = np.array([spec.type in FORWARDING for spec in self._expansion.specs] + [False])
        op, slot = self._inputs.op, self._inputs.slot
        is_source = self._is_ref & (self._is_added & forwards[self._expansion.spec_of])[op]
        is_searched = np.flatnonzero(self._is_ref & ((was >= 0) & ~is_own)[op])
        of = op[is_searched]
        was_in = self._slots.offsets[self._origin[of]] + slot[is_searched]
        is_source[is_searched] = self._slots.producer[was_in] == was[of]
        # In reverse order, so that the first source is written last.
        found[op[is_source][::-1]] = self._source[is_source][::-1]
        return found


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
