"""The ops that every plan of a step needs."""

from dataclasses import replace

import numpy as np

from pesto_cli.data.columns import BoolArray
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.parts import Parts


def needed_in_all_plans(graph: OpGraph, parts: Parts) -> tuple[OpGraph, BoolArray]:
    """Return the graph without inputs of known value, and which ops all plans need, `[num_ops]`.

    Parts take inputs of known value as constants. So an op whose outputs are only taken in this way
    may be no op of a split step, nor is what it alone needs. Constants are not needed either,
    because a split step does not contain their small parts.
    """
    if graph.inputs is None:
        return graph, np.ones(graph.num_ops, dtype=np.bool_)
    specs = [parts.spec(op) for op in range(graph.num_ops)]
    taken = [
        tensor * graph.num_ops + op
        for op, (spec, row) in enumerate(zip(specs, graph.inputs.rows(), strict=True))
        for slot, tensor in enumerate(row)
        if tensor is not None and (spec is None or spec.inputs[slot].value is None)
    ]
    is_taken = np.zeros(len(graph.consumers), dtype=np.bool_)
    is_taken[np.searchsorted(graph.consumer_tensor * graph.num_ops + graph.consumers, taken)] = True
    without = replace(
        graph,
        consumers=graph.consumers[is_taken],
        consumer_on_host=graph.consumer_on_host[is_taken],
        consumer_offsets=np.append(0, np.cumsum(is_taken))[graph.consumer_offsets],
        inputs=None,
    )
    is_needed = graph.successors.degree == 0
    for op in graph.topological_order[::-1].tolist():
        is_needed[op] |= is_needed[without.successors[op]].any()
    return without, is_needed & (np.array(graph.types) != "Const")
