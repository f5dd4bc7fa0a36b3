"""The control edges of a split graph, and the order in which its ops use variables."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from pesto_cli.data.adjacency import reached
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding import added_ops
from pesto_cli.sharding.constants import is_replaced
from pesto_cli.sharding.decisions import Decision, num_alone
from pesto_cli.sharding.layouts import Replicated
from pesto_cli.sharding.new_ops import NewOps
from pesto_cli.sharding.rules import random
from pesto_cli.sharding.rules.variables import READS, is_variable


def _has_effect(spec: OpSpec) -> bool:
    """Return whether an op changes a state that others read. Random ops do not count."""
    is_read = is_variable(spec) or spec.type in READS
    return spec.is_stateful and not is_read and spec.type not in random.RULES


class ControlEdges:
    """Adds control edges to the new ops of a graph.

    graph: the original graph. specs: `[num_ops]`. decided: the decision for each op that is split.
    ops: the new ops. images: for each op of the graph, the new ops that it became.
    """

    def __init__(
        self,
        graph: OpGraph,
        specs: Sequence[OpSpec | None],
        decided: Mapping[int, Decision],
        ops: NewOps,
        images: Sequence[tuple[int, ...]],
    ) -> None:
        self._graph, self._specs, self._decided = graph, specs, decided
        self._ops, self._images = ops, images
        self._joins: dict[int, int] = {}

    def add(self) -> None:
        """Add all control edges, after all ops have been added."""
        before_values = self._edges_through_values()
        for before, after in chain(self._graph.control_edges.tolist(), before_values):
            self._add_images(before, after)
        self._keep_order_of_accesses()

    def join(self, op: int) -> int:
        """Return the op that waits for all parts of an op; an op without outputs gives its name."""
        if op not in self._joins:
            name = self._graph.names[op]
            name = f"{name}.wait" if self._graph.tensors_of(op) else name
            self._joins[op] = self._ops.add(name, (), serves=op, spec=added_ops.JOIN)
            self._ops.controls += [(tail, self._joins[op]) for tail in self._images[op]]
        return self._joins[op]

    def _add_images(self, before: int, after: int) -> None:
        """Add the images of a control edge.

        A part waits for the part of equal index if both ops have equally many parts, and no part
        has an effect that another part could notice. Otherwise all parts wait for all parts,
        through a NoOp. If parts compute copies, the step may need only the first one, so this one
        waits for all parts.
        """
        part, decided = self._ops.part, self._decided
        if 0 < num_alone(decided.get(before)) == num_alone(decided.get(after)):
            waits_for_all = {0} if self._gives_copies(after) else set[int]()
            self._ops.controls += [
                (tail, head)
                for tail in self._images[before]
                for head in self._images[after]
                if part[tail] == part[head] or part[head] in waits_for_all
            ]
            return
        tails, heads = self._images[before], self._images[after]
        if len(tails) > 1 and len(heads) > 1:
            tails = (self.join(before),)
        self._ops.controls += [(tail, head) for tail in tails for head in heads]

    def _gives_copies(self, op: int) -> bool:
        """Return whether each part of a split op computes a whole output."""
        outputs = self._decided[op].alternative.outputs
        return any(isinstance(layout, Replicated) for layout in outputs)

    def _edges_through_values(self) -> Iterator[tuple[int, int]]:
        """Yield the control edges that end before a value which parts have as a constant.

        If an op takes a known value, its parts do not take it from the op that computes it. They
        still have to wait for the effects for which this op waits, such as an update.
        """
        graph = self._graph
        if graph.inputs is None:
            return
        effects = (op for op, spec in enumerate(self._specs) if spec and _has_effect(spec))
        is_after = reached(graph.successors, effects)
        before: dict[int, list[int]] = {}
        for tail, head in graph.control_edges.tolist():
            if is_after[tail]:
                before.setdefault(head, []).append(tail)
        if not before:
            return
        for op, decision in self._decided.items():
            values = [
                tensor
                for slot, tensor in enumerate(graph.inputs[op].tolist())
                if tensor >= 0 and is_replaced(decision, slot)
            ]
            seen = set[int]()
            while values:
                producer = int(graph.tensor_producer[values.pop()])
                if producer in seen:
                    continue
                seen.add(producer)
                yield from ((tail, op) for tail in before.get(producer, ()))
                spec = self._specs[producer]
                for slot, tensor in enumerate(graph.inputs[producer].tolist()):
                    if tensor >= 0 and spec is not None and spec.inputs[slot].value is not None:
                        values.append(tensor)

    def _keep_order_of_accesses(self) -> None:
        """Add control edges between the ops that read and write a piece or a copy of a variable.

        In the graph, a path orders a read and a write. In the split graph, this path may contain
        another part of an op, for example if a whole op takes the first copy of a mirrored value.
        """
        graph, inputs = self._graph, self._ops.inputs
        variables = (op for op, each in self._decided.items() if is_variable(each.spec))
        for variable in variables:
            pieces = {piece: list[int]() for piece in self._images[variable]}
            takers = graph.successors[variable].tolist()
            for op in sorted(chain.from_iterable(self._images[taker] for taker in takers)):
                for source in inputs[op]:
                    accesses = pieces.get(source[0]) if source is not None else None
                    if accesses is not None and op not in accesses[-1:]:
                        accesses.append(op)
            for accesses in pieces.values():
                if len(accesses) > 1:
                    self._keep_order(accesses)

    def _keep_order(self, accesses: Sequence[int]) -> None:
        """Add control edges between the ops that read and write a piece, in this order."""
        last_write, reads = None, list[int]()
        for op in accesses:
            is_write = self._graph.types[self._ops.origin[op]] not in READS
            before = [] if last_write is None else [last_write]
            before += reads if is_write else []
            self._ops.controls += [
                (access, op)
                for access in before
                if self._ops.origin[access] != self._ops.origin[op]
            ]
            if is_write:
                last_write, reads = op, []
            else:
                reads.append(op)
