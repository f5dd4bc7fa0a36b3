"""Baechi's model of memory (Jeon et al., Section 3.2; `placer/device.py`, `placer/m_etf.py`).

A fused op holds its variables for ever, from when it is scheduled, and the tensors that leave it
until all that take them are scheduled; tensors within it, and copies on other devices, count
nothing. It may go where it finds room for both. A group may go where there is room for its
variables, or, if it reserves its memory, for its largest outputs too, which it then takes at once.

Departures: what lies in a variable's memory (a handle, a read) holds nothing of its own. The
program also counts temporary memory of kernels, which profiles do not have. What the optimiser
keeps beside a variable counts, though it is not among the forward ops.
"""

from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph, lies_in_variable


@dataclass(frozen=True, eq=False)
class Needs:
    """Bytes that nodes and groups hold.

    variables: `[num_nodes]`. outputs: `[num_nodes]`, of tensors that leave the node.
    group_variables: `[num_groups]`. group_outputs: `[num_groups]`, the largest of a node.
    """

    variables: FloatArray
    outputs: FloatArray
    group_variables: FloatArray
    group_outputs: FloatArray


def needs(problem: Problem, placed: PlacementGraph) -> Needs:
    """What the nodes of a placement graph need."""
    graph, node = problem.graph, placed.node_of_op
    # An op's variables lie with the first op of its colocation group that has a node.
    ops = np.flatnonzero(node >= 0)[::-1]
    keeper = np.full(graph.num_groups, -1, dtype=np.int64)
    keeper[graph.colocation_group[ops]] = node[ops]
    at = np.where(node >= 0, node, keeper[graph.colocation_group])
    variables = np.bincount(
        at[at >= 0], graph.resident_bytes[at >= 0], minlength=placed.num_nodes
    ).astype(np.float64)
    outputs = _outputs(problem, placed)
    group_outputs = np.zeros(placed.num_groups)
    np.maximum.at(group_outputs, placed.group, outputs)
    return Needs(
        variables,
        outputs,
        np.bincount(placed.group, variables, minlength=placed.num_groups).astype(np.float64),
        group_outputs,
    )


def _outputs(problem: Problem, placed: PlacementGraph) -> FloatArray:
    graph = problem.graph
    own = np.where(lies_in_variable(graph), 0, graph.held_bytes)
    taken = np.unique(placed.input_tensor[placed.input_tensor < graph.num_tensors])
    # What nobody takes is held by its producer, as if it left.
    unused = np.flatnonzero(np.diff(graph.consumer_offsets) == 0)
    leaving = np.union1d(taken, unused)
    at = placed.node_of_op[graph.tensor_producer[leaving]]
    return np.bincount(at[at >= 0], own[leaving[at >= 0]], minlength=placed.num_nodes).astype(
        np.float64
    )


def plan_bytes(problem: Problem, fraction: float) -> FloatArray:
    """`[num_devices]`: the memory that the placer plans with."""
    capacity: IntArray = np.floor(problem.capacity_bytes * fraction)
    return capacity.astype(np.float64)
