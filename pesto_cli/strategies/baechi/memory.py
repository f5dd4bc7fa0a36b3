"""Baechi's model of memory (Jeon et al., Section 3.2; `placer/device.py`, `placer/m_etf.py`).

A scheduled node (a fused op) holds its variables until the end, and its outputs to other nodes
until all their consumers are scheduled. Tensors within a node, and copies on other devices, are not
counted. A node may run on a device with enough free memory for both. A group may go to a device
with enough free memory for its variables. With `reserve_memory`, it must also have enough for the
outputs of that node of the group whose outputs are largest, and the group takes the memory of its
variables and of these outputs when it is placed.

Differences: outputs in a variable's memory (handles, reads) need no memory of their own. The
authors' program also counts temporary memory of kernels, which profiles do not have. Optimiser
slots of a variable count, though they are not used by forward ops.
"""

from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph, lies_in_variable


@dataclass(frozen=True, eq=False)
class Needs:
    """The memory of nodes and groups in bytes.

    variables: `[num_nodes]`.
    outputs: outputs of each node to other nodes, `[num_nodes]`.
    group_variables: `[num_groups]`.
    group_outputs: the largest outputs of a node in each group, `[num_groups]`.
    """

    variables: FloatArray
    outputs: FloatArray
    group_variables: FloatArray
    group_outputs: FloatArray


def needs(problem: Problem, placed: PlacementGraph) -> Needs:
    """Return the memory of the nodes and groups of a placement graph."""
    graph, node = problem.graph, placed.node_of_op
    # Variables of an op without a node count for the first op of its colocation group with one.
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
    # Tensors without consumers count as outputs of their producer.
    unused = np.flatnonzero(np.diff(graph.consumer_offsets) == 0)
    leaving = np.union1d(taken, unused)
    at = placed.node_of_op[graph.tensor_producer[leaving]]
    return np.bincount(at[at >= 0], own[leaving[at >= 0]], minlength=placed.num_nodes).astype(
        np.float64
    )


def plan_bytes(problem: Problem, fraction: float) -> FloatArray:
    """Return the bytes of each device that the placer may use, `[num_devices]`."""
    capacity: IntArray = np.floor(problem.capacity_bytes * fraction)
    return capacity.astype(np.float64)
