"""Which forward op each op of the backward pass belongs to.

With `colocate_gradients_with_ops`, TensorFlow puts what computes the gradients of an op on the
device of that op, and updates with their variable. A sum of gradients goes with the op whose
gradients need it, hence with its consumer; what has neither, with its producer.
"""

import numpy as np

from pesto_cli.data.graph import IntArray, OpGraph
from pesto_cli.strategies.layers import behind_gradients


def forward_op(graph: OpGraph) -> IntArray:
    """`[num_ops]`: the forward op that each belongs to; itself if it is one, -1 if there is none.

    Forward is what neither is a gradient nor comes after one. In a graph without gradients, or with
    nothing else, all ops are.
    """
    is_forward = ~behind_gradients(graph)
    if not is_forward.any():
        is_forward = ~is_forward
    names = graph.labels.forward_op
    found = [-1 if name is None else graph.index_of.get(name, -1) for name in names]
    named = np.array(found, dtype=np.int64)
    named = np.where((named >= 0) & is_forward[named], named, -1)
    owner = np.where(is_forward, np.arange(graph.num_ops), named)
    of_group = np.full(graph.num_groups, -1, dtype=np.int64)
    forward_ops = np.flatnonzero(is_forward)[::-1]  # backwards, so that the first stays
    of_group[graph.colocation_group[forward_ops]] = forward_ops
    in_group = of_group[graph.colocation_group]
    owner = np.where(~is_forward & (in_group >= 0), in_group, owner)
    order = graph.topological_order.tolist()
    for neighbours, ops in ((graph.successors, order[::-1]), (graph.predecessors, order)):
        for op in ops:
            if owner[op] < 0:
                known = owner[neighbours[op]]
                owner[op] = next((int(index) for index in known if index >= 0), -1)
    return owner
