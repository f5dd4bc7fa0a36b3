"""Expansion: the ops of a graph after it was split by a plan.

An expansion contains the names, inputs and specs of the ops. It contains no times and no NodeDefs.
The rewriting of a `Problem` and the rewriting of a GraphDef both start from an expansion, so both
give the same ops.

Names of the ops that a split op X becomes; X itself is the name of the op that merges the parts,
so whatever takes or fetches X outside the step still works:

    X.part_0, X.part_1       its parts; but the first copy of a mirrored variable X is X
    X.part_0.share           another op of part 0 (see `Program`), X.mean one that serves all parts
    X                        the merged output, if X has one output; else X.merged_0, X.merged_1
    X.split_0                cuts an output of the whole op X along axis 0
    X.sum_host_0             adds the parts of host 0
    X.copy_host_0            passes the output of X on to the parts of host 0
    X.whole_0                joins the parts for the op of another part 0
    X.bucket.packed_0, ...   ops of a bucket of gradients, the first of which is X (`bucket_sums`)
    X.flat_0                 the gradient X that part 0 computes, as a vector
    X.sum_0                  the sum of the gradients X of all parts, for part 0
    X.wait                   waits for all parts of X; if X has no outputs, its name is X
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count
from typing import NoReturn

import numpy as np

from pesto_cli.data.columns import BoolArray, IntArray, first_repeated
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.labels import Role
from pesto_cli.data.plan import MIRRORED, Plan
from pesto_cli.data.specs import SMALL_CONSTANT_ELEMENTS, OpSpec
from pesto_cli.errors import BadInputError
from pesto_cli.sharding.buckets import buckets, ops_after
from pesto_cli.sharding.control_edges import ControlEdges
from pesto_cli.sharding.conversions import Conversions
from pesto_cli.sharding.decisions import Decision, decisions
from pesto_cli.sharding.layouts import Whole
from pesto_cli.sharding.new_ops import NewOps, Ref
from pesto_cli.sharding.program_columns import columns_of
from pesto_cli.sharding.rules.variables import READS
from pesto_cli.sharding.variables import is_handle
from pesto_cli.sharding.waits import split_waits


@dataclass(frozen=True, eq=False)
class Expansion:
    """The ops of a split graph, inputs before the ops that take them.

    ops: their columns.
    images: for each op of the graph, the ops that it became: the op itself, or its program.
    kept: `[num_kept]`, the ops that are ops of the split step, ascending: those that it needs,
        without constants that are so small that each device has a copy.
    decided: the decision for each op of the graph that was split.
    """

    ops: NewOps
    images: Sequence[tuple[int, ...]]
    kept: IntArray
    decided: Mapping[int, Decision]

    @cached_property
    def number(self) -> IntArray:
        """`[num_new_ops + 1]`: the place of each new op in `kept`; -1 if it is not kept.

        The last entry is -1. So index -1, which stands for no op, gives -1.
        """
        found = np.full(len(self.ops) + 1, -1, dtype=np.int64)
        found[self.kept] = np.arange(len(self.kept))
        return found

    @cached_property
    def specs(self) -> Sequence[OpSpec]:
        """The different specs of the kept ops."""
        _, first = np.unique(self.spec_of, return_index=True)
        found = map(self.ops.specs.__getitem__, self.kept[first].tolist())
        return [spec for spec in found if spec is not None]

    @cached_property
    def spec_of(self) -> IntArray:
        """`[num_kept]`: the spec of each kept op, an index of `specs`; -1 for a copy."""
        number = defaultdict[int, int](count().__next__, {id(None): -1})
        specs = map(self.ops.specs.__getitem__, self.kept.tolist())
        return np.array([number[id(spec)] for spec in specs], dtype=np.int64)

    @cached_property
    def origin(self) -> IntArray:
        """`[num_kept]`: `NewOps.origin` of the kept ops."""
        return self.of_kept(self.ops.origin)

    @cached_property
    def serves(self) -> IntArray:
        """`[num_kept]`: `NewOps.serves` of the kept ops."""
        return self.of_kept(self.ops.serves)

    @cached_property
    def part(self) -> IntArray:
        """`[num_kept]`: `NewOps.part` of the kept ops."""
        return self.of_kept(self.ops.part)

    @cached_property
    def is_priced(self) -> BoolArray:
        """`[num_kept]`: `NewOps.is_priced` of the kept ops."""
        return np.array(self.ops.is_priced, dtype=np.bool_)[self.kept]

    def of_kept(self, column: Sequence[int]) -> IntArray:
        """Return the entries of the kept ops of a column, `[num_kept]`."""
        return np.array(column, dtype=np.int64)[self.kept]


def expand(
    graph: OpGraph,
    specs: Sequence[OpSpec | None],
    plan: Plan,
    targets: Set[int] = frozenset(),
    *,
    with_merges: bool = False,
) -> Expansion:
    """Return the ops of a graph after it was split by a plan.

    Args:
        graph: the graph, with inputs by slot.
        specs: `[num_ops]`, None where the op stands for several nodes.
        plan: the plan.
        targets: ops that the step runs whatever needs them; also all without successors.
        with_merges: also add ops that merge every split output under its old name, for consumers
            and fetches outside the step.

    Raises:
        BadInputError: the plan does not fit the graph.
    """
    expander = _Expander(graph, specs, decisions(plan, graph, specs), plan)
    return expander.expanded(targets, with_merges)


class _Expander:
    def __init__(
        self,
        graph: OpGraph,
        specs: Sequence[OpSpec | None],
        decided: Mapping[int, Decision],
        plan: Plan,
    ) -> None:
        self._graph, self._ops = graph, NewOps()
        self._decided = {**decided, **split_waits(graph, decided)}
        found = buckets(graph, self._decided, plan.bucket_bytes)
        self._is_last = ops_after(graph, chain.from_iterable(found))  # a bucket needs its gradients
        self._tensors = Conversions(graph, self._ops, plan, found)
        self._images: list[tuple[int, ...]] = [()] * graph.num_ops
        self._control = ControlEdges(graph, specs, self._decided, self._ops, self._images)

    def expanded(self, targets: Set[int], with_merges: bool) -> Expansion:
        graph = self._graph
        rows = [] if graph.inputs is None else list(graph.inputs.rows())
        order = graph.topological_order
        for op in order[np.argsort(self._is_last[order], kind="stable")].tolist():
            decision = self._decided.get(op)
            if decision is None:
                self._keep(op, rows[op] if rows else ())
            else:
                self._split(op, rows[op], decision)
        self._control.add()
        ends = np.flatnonzero(self._graph.successors.degree == 0).tolist()
        roots = self._roots(sorted({*ends, *targets}))
        if with_merges:
            for op in self._decided:
                self._merged(op)
        self._check_names()
        self._pass_waits_on()
        specs = self._ops.specs
        kept = [op for op in self._ops.ancestors(roots) if not _is_small_constant(specs[op])]
        return Expansion(self._ops, self._images, np.array(kept, dtype=np.int64), self._decided)

    def _pass_waits_on(self) -> None:
        """Let ops that take a small constant, which is no op of its own, wait for what it does."""
        specs, waits = self._ops.specs, defaultdict[int, list[int]](list)
        for tail, head in self._ops.controls:
            if _is_small_constant(specs[head]):
                waits[head].append(tail)
        for op, inputs in enumerate(self._ops.inputs) if waits else ():
            for source in inputs:
                if source is not None and source[0] in waits:
                    self._ops.controls += [(tail, op) for tail in waits[source[0]]]

    def _keep(self, op: int, row: Sequence[int | None]) -> None:
        taken = self._fetched if self._graph.labels.role[op] == Role.FETCH else self._tensors.whole
        inputs = [None if tensor is None else taken(tensor) for tensor in row]
        for tensor in row:
            if tensor is not None and self._tensors.is_copied(tensor):
                self._check_only_reads(op, tensor)
            if tensor is not None and self._tensors.is_own(tensor):
                self._refuse_own(op, tensor)
        new = self._ops.add(self._graph.names[op], inputs, origin=op, serves=op)
        for output, tensor in enumerate(self._graph.tensors_of(op)):
            self._tensors.produce(tensor, Whole(), (), [(new, output)])
        self._images[op] = (new,)

    def _refuse_own(self, op: int, tensor: int) -> NoReturn:
        producer = self._graph.names[self._graph.tensor_producer[tensor]]
        raise BadInputError(
            f"the plan gives each part of op {producer!r} values of its own, but op "
            f"{self._graph.names[op]!r}, which takes them, is not split alike; the same way and "
            "the same sizes were expected for both: complete the plan."
        )

    def _check_only_reads(self, op: int, tensor: int) -> None:
        """Check that a whole op that takes one copy of a mirrored variable does not write it."""
        if self._graph.types[op] not in READS:
            name = self._graph.names[self._graph.tensor_producer[tensor]]
            raise BadInputError(
                f"the plan mirrors variable {name!r}, but op {self._graph.names[op]!r} "
                f"({self._graph.types[op]}), which may write it, is whole; {MIRRORED!r} was "
                "expected for this op, too: complete the plan, or leave the variable whole."
            )

    def _fetched(self, tensor: int) -> Ref:
        """Return a tensor under its old name, since this is how it is fetched."""
        producer = int(self._graph.tensor_producer[tensor])
        if producer not in self._decided:
            return self._tensors.whole(tensor)
        output = self._graph.tensors_of(producer).index(tensor)
        return self._tensors.merged_under_old_name(producer), output

    def _split(self, op: int, row: Sequence[int | None], decision: Decision) -> None:
        columns, name = columns_of(decision), self._graph.names[op]
        names = [name + suffix for suffix in columns.suffixes]
        refs: list[Ref | None] = [None]
        for slot, is_cut in columns.slots:
            if is_cut:
                refs += self._pieces(op, slot, row, decision)
            else:
                refs.append(self._tensors.whole(self._tensor(op, slot, row, decision)))
        for number, slot, spec in columns.constants:
            constant = f"{names[number]}.const_{slot}"
            refs.append((self._ops.add(constant, (), serves=op, spec=spec), 0))
        first = len(self._ops)
        refs += [(first + number, output) for number, output in columns.results]
        self._ops.extend(
            names,
            [tuple([refs[place] for place in places]) for places in columns.inputs],
            origin=op,
            parts=columns.parts,
            specs=columns.specs,
            is_priced=columns.is_priced,
        )
        self._images[op] = tuple(range(first, len(self._ops)))
        layouts, extents = decision.alternative.outputs, decision.output_extents
        outputs = zip(self._graph.tensors_of(op), layouts, extents, columns.outputs, strict=True)
        for tensor, layout, of_parts, pieces in outputs:
            made = [(first + number, place) for number, place in pieces]
            self._tensors.produce(tensor, layout, of_parts, made)

    def _tensor(self, op: int, slot: int, row: Sequence[int | None], decision: Decision) -> int:
        """Return the tensor in a slot of an op that is split."""
        tensor = row[slot]
        if tensor is None:
            raise BadInputError(
                f"the plan splits op {self._graph.names[op]!r} by {decision.alternative.name!r}, "
                f"but input {slot} is a constant that cannot be taken in this way; choose "
                "another alternative for the op."
            )
        return tensor

    def _pieces(
        self, op: int, slot: int, row: Sequence[int | None], decision: Decision
    ) -> Sequence[Ref]:
        """Return what each part of an op takes in a slot."""
        tensor, layout = self._tensor(op, slot, row, decision), decision.alternative.inputs[slot]
        extents, num_parts = decision.input_extents[slot], len(decision.sizes)
        pieces = self._tensors.pieces(tensor, layout, extents, num_parts)
        if pieces is None and self._tensors.is_own(tensor):
            self._refuse_own(op, tensor)
        if pieces is None and decision.spec.inputs[slot].is_handle:
            variable = self._graph.names[self._graph.tensor_producer[tensor]]
            raise BadInputError(
                f"the plan splits op {self._graph.names[op]!r} by {decision.alternative.name!r} "
                f"into {len(decision.sizes)} parts, but not variable {variable!r}, which it "
                "takes; the same way and the same sizes were expected for all ops of a variable."
            )
        if pieces is None:
            raise BadInputError(
                f"the plan lets op {self._graph.names[op]!r} take open sums in slot {slot}, but "
                f"{self._graph.names[self._graph.tensor_producer[tensor]]!r} does not compute "
                f"{len(decision.sizes)} of them; a producer that is split in this way was "
                "expected: choose another alternative for one of the ops."
            )
        return pieces

    def _merged(self, op: int) -> int | None:
        """Return an op with the name and the outputs of a split op; None for a split handle."""
        tensors = self._graph.tensors_of(op)
        if not tensors:
            return self._control.join(op)
        if any(is_handle(self._graph, tensor) for tensor in tensors):
            return None
        return self._tensors.merged_under_old_name(op)

    def _roots(self, ends: Iterable[int]) -> list[int]:
        """Return the new ops that the step must run in place of `ends`.

        They are the images of `ends`, and the ops that merge their outputs.
        """
        roots = list[int]()
        for op in ends:
            roots += self._images[op]
            merged = self._merged(op) if op in self._decided else None
            roots += [] if merged is None else [merged]
        return roots

    def _check_names(self) -> None:
        name = first_repeated(self._ops.names)
        if name is not None:
            raise BadInputError(
                f"the split graph would have two ops named {name!r}; names that end in .part_0 "
                "and the like are reserved for parts: split the original graph, or rename the op."
            )


def _is_small_constant(spec: OpSpec | None) -> bool:
    """Return whether a part of a constant is so small that each device has a copy of it."""
    if spec is None or spec.type != "Const":
        return False
    return math.prod(spec.outputs[0].sizes) <= SMALL_CONSTANT_ELEMENTS
