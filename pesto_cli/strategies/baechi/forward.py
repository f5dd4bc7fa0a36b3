"""Which forward op each op of the backward pass belongs to.

With `colocate_gradients_with_ops`, TensorFlow puts what computes the gradients of an op on the
device of that op, and updates with their variable. Gradients carry the op's name in their own
(`gradients/layer_0/MatMul_grad/MatMul_1`, `gradient_tape/dense/MatMul/MatMul_1`). A sum of
gradients goes with the op whose gradients need it, hence with its consumer; what has neither, with
its producer.
"""

import re

import numpy as np

from pesto_cli.data.graph import BoolArray, IntArray, OpGraph
from pesto_cli.strategies.layers import GRADIENTS, behind_gradients

_GRAD_SUFFIX = re.compile(r"_grad(_\d+)?$")


def forward_op(graph: OpGraph) -> IntArray:
    """`[num_ops]`: the forward op that each belongs to; itself if it is one, -1 if there is none.

    Forward is what neither carries a gradient's scope nor comes after what does. In a graph without
    such scopes, or with nothing else, all ops are.
    """
    is_forward = ~behind_gradients(graph)
    if not is_forward.any():
        is_forward = ~is_forward
    owner = np.where(is_forward, np.arange(graph.num_ops), -1)
    for op in np.flatnonzero(~is_forward).tolist():
        owner[op] = _by_name(graph, is_forward, op)
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


def _by_name(graph: OpGraph, is_forward: BoolArray, op: int) -> int:
    """The forward op whose name follows the scope of gradients, the longest that there is."""
    parts = graph.names[op].split("/")
    scopes = [place for place, part in enumerate(parts) if GRADIENTS.match(part)]
    rest = parts[scopes[0] + 1 :] if scopes else []
    for end in range(len(rest), 0, -1):
        name = "/".join(rest[:end])
        for candidate in (name, _GRAD_SUFFIX.sub("", name)):
            index = graph.index_of.get(candidate, -1)
            if index >= 0 and is_forward[index]:
                return index
    return -1
