"""NoOps between split ops: each part waits for the parts of its index only.

A NoOp ends when all its control inputs have ended. TensorFlow puts one between the gradients of an
op and the ops that take them (`group_deps` of `tf.tuple`). If it stays whole, each part of the
backward pass waits for all parts of the ops before, so no pipeline is possible. So it is split like
the ops around it, if some before it and some after it have equally many parts.
"""

from collections.abc import Mapping

from pesto_cli.data.graph import OpGraph
from pesto_cli.sharding.added_ops import JOIN
from pesto_cli.sharding.alternative import Alternative
from pesto_cli.sharding.decisions import Decision, num_alone

_WAITS = Alternative("waits", None, (), ())


def split_waits(graph: OpGraph, decided: Mapping[int, Decision]) -> dict[int, Decision]:
    """Return the decisions to split NoOps; decided: the decision for each other op."""
    counts = dict[int, int]()
    order = [op for op in graph.topological_order.tolist() if graph.types[op] == JOIN.type]

    def parts_of(op: int) -> int:
        return counts.get(op) or num_alone(decided.get(op))

    for op in order:
        before = {parts_of(each) for each in graph.predecessors[op].tolist()} - {0}
        if len(before) == 1 and not graph.tensors_of(op):
            counts[op] = before.pop()
    for op in reversed(order):
        if op in counts and counts[op] not in map(parts_of, graph.successors[op].tolist()):
            del counts[op]
    return {op: Decision(JOIN, _WAITS, (1,) * count) for op, count in counts.items()}
