"""The ops of a plan that must be split alike, because a tensor between them cannot be converted.

| tensor | the op that computes it, and the ops that take it |
|---|---|
| handle of a variable | have equally many parts, or are all whole |
| values that each part has of its own | have equally many parts, or are all whole |
| partial tensors | have equally many parts; an op that takes them can become whole alone |

There are two exceptions: an op that is whole can read a mirrored variable, and some ops that are
split can take the handle of a whole variable.
"""

from collections import defaultdict
from collections.abc import Mapping

from pesto_cli.data.graph import OpGraph
from pesto_cli.sharding.decisions import Decision
from pesto_cli.sharding.layouts import Own, Partial, Replicated, Whole
from pesto_cli.sharding.rules.variables import READS


def split_alike(
    graph: OpGraph, decided: Mapping[int, Decision], op: int, *, is_whole: bool
) -> list[int]:
    """Return an op, and the other split ops that must change with it, ascending.

    Args:
        graph: the graph, with inputs by slot.
        decided: the decisions of a plan, by op.
        op: an op of the plan.
        is_whole: whether the op becomes whole; else it gets another number of parts.
    """
    near = defaultdict[int, set[int]](set)
    for taker, decision in decided.items():
        row = [] if graph.inputs is None else graph.inputs[taker].tolist()
        slots = zip(row, decision.spec.inputs, decision.alternative.inputs, strict=True)
        for tensor, operand, layout in slots:
            producer = int(graph.tensor_producer[tensor]) if tensor >= 0 else -1
            is_bound = operand.is_handle or isinstance(layout, Partial | Own)
            if producer not in decided or not is_bound or (is_whole and isinstance(layout, Whole)):
                continue
            near[producer].add(taker)
            is_read = isinstance(layout, Replicated) and graph.types[taker] in READS
            if not (is_whole and (isinstance(layout, Partial) or is_read)):
                near[taker].add(producer)
    found, waiting = {op}, [op]
    while waiting:
        new = near[waiting.pop()] - found
        found |= new
        waiting += new
    return sorted(found)
