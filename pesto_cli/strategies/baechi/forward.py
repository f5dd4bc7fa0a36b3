"""The forward op to which each op of the backward pass belongs.

With `colocate_gradients_with_ops`, TensorFlow puts the gradient ops of an op on the device of that
op, and updates on the device of their variable. A sum of gradients belongs to the op of its
consumer, whose gradients need the sum. Any other op belongs to the op of its producer.
"""

import numpy as np

from pesto_cli.coarsen.layers import behind_gradients
from pesto_cli.data.graph import IntArray, OpGraph


def forward_op(graph: OpGraph) -> IntArray:
    """Return the forward op of each op, `[num_ops]`: itself for a forward op, -1 if there is none.

    Forward ops are those that are not gradients and do not come after one. If the graph has no
    gradients, or has no other ops, all ops are forward ops.
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
    forward_ops = np.flatnonzero(is_forward)[::-1]  # reversed, so that the first op of a group wins
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
