"""The graph that Baechi places: fused ops in topological order, and the tensors between them.

A tensor is sent once to each device and kept there for further consumers, as in the authors'
program. A control edge is a tensor of its own with 4 bytes (`SIGNAL_BYTES`). Fetches are not part
of the graph, as in the authors' program.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from pesto_cli.data.columns import unique_rows
from pesto_cli.data.graph import Adjacency, BoolArray, FloatArray, IntArray, OpGraph
from pesto_cli.data.problem import Problem
from pesto_cli.strategies.baechi.forward import forward_op
from pesto_cli.strategies.baechi.preprocessing import fused, united, with_one_consumer
from pesto_cli.strategies.baechi.settings import Settings
from pesto_cli.strategies.devices import accelerators, fastest_device

SIGNAL_BYTES = 4

Numbers = TypeVar("Numbers", FloatArray, IntArray)


@dataclass(frozen=True, eq=False)
class PlacementGraph:
    """The nodes, numbered by the topological position of their first op, and their groups.

    node_of_op: node of each op, or -1 for ops that follow another op and for fetches, `[num_ops]`.
    owner: the op whose device each op gets, itself if it has a node, or -1, `[num_ops]`.
    group: the group of each node, `[num_nodes]`; nodes of a group share a device.
    group_allowed: `[num_groups, num_devices]`.
    duration_us: `[num_nodes, num_devices]`, inf where a node may not run.
    input_offsets: rows of the next three columns, ordered by source, `[num_nodes + 1]`.
    input_source: the node that produces each input.
    input_tensor: tensor index, or `num_tensors + op` for the control edges of an op.
    input_is_signal: whether the input crosses devices as a signal.
    tensor_bytes: `[num_tensors + num_ops]`.
    """

    node_of_op: IntArray
    owner: IntArray
    group: IntArray
    group_allowed: BoolArray
    duration_us: FloatArray
    input_offsets: IntArray
    input_source: IntArray
    input_tensor: IntArray
    input_is_signal: BoolArray
    tensor_bytes: IntArray

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.group)

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return len(self.group_allowed)

    @cached_property
    def input_node(self) -> IntArray:
        """The node that consumes each input."""
        return np.repeat(np.arange(self.num_nodes), np.diff(self.input_offsets))

    @cached_property
    def edges(self) -> IntArray:
        """Unique (before, after), `[num_edges, 2]`."""
        pairs = np.column_stack((self.input_source, self.input_node))
        return unique_rows(pairs)

    @cached_property
    def successors(self) -> Adjacency:
        """Direct successors by node."""
        return Adjacency.from_edges(self.num_nodes, self.edges[:, 0], self.edges[:, 1])

    def by_op(self, of_node: Numbers, without_node: float) -> Numbers:
        """Give each op the value of its node: `[num_nodes]` to `[num_ops]`.

        Ops without a node get `without_node`. A graph of only fetches has no nodes.
        """
        by_op: Numbers = np.full(len(self.node_of_op), without_node, dtype=of_node.dtype)
        has_node = self.node_of_op >= 0
        by_op[has_node] = of_node[self.node_of_op[has_node]]
        return by_op

    def device_of_ops(self, problem: Problem, device: IntArray) -> IntArray:
        """Return the device of each op, `[num_ops]`, from the devices of nodes, `[num_nodes]`.

        Ops without a node get the device of their owner if they may run there.
        """
        graph = problem.graph
        op_device = self.by_op(device, -1)
        followed = np.where(self.owner >= 0, op_device[self.owner], -1)
        # In a group without a node, the longest op that follows an owner decides.
        of_group = np.full(graph.num_groups, -1, dtype=np.int64)
        has_node = self.node_of_op >= 0
        by_time = np.argsort(problem.min_duration_us, kind="stable")
        known = by_time[followed[by_time] >= 0]
        of_group[graph.colocation_group[known]] = followed[known]
        of_group[graph.colocation_group[has_node]] = op_device[has_node]
        may = problem.group_allowed[np.arange(graph.num_groups), of_group] & (of_group >= 0)
        return np.where(may, of_group, fastest_device(problem))[graph.colocation_group]


def lies_in_variable(graph: OpGraph) -> BoolArray:
    """Return whether each tensor is a variable or lies in the memory of one, `[num_tensors]`."""
    root = np.where(graph.alias_source < 0, np.arange(graph.num_tensors), graph.alias_source)
    while (root[root] != root).any():
        root = root[root]
    producer = graph.tensor_producer[root]
    resident: BoolArray = (graph.resident_bytes > 0) | (graph.alias_of == np.arange(graph.num_ops))
    return resident[producer]


def prepared(
    problem: Problem, settings: Settings, is_over: Callable[[], bool] = lambda: False
) -> PlacementGraph:
    """Choose the ops to place, unite groups by co-placement, and fuse ops within the time."""
    graph, everything = problem.graph, np.arange(problem.num_ops)
    is_read = _reads(graph)
    owner = everything if settings.gradients == "free" else forward_op(graph)
    allowed = _within_reach(problem)
    group = graph.colocation_group
    if settings.gradients == "colocated":
        owned = np.flatnonzero(owner >= 0)
        group = united(group, allowed, np.column_stack((owned, owner[owned])))
        owner = everything
    is_placed = (owner == everything) & ~problem.is_fetch
    if settings.co_placement:
        is_repeated = is_read & settings.reads_per_use
        pairs = with_one_consumer(graph.edges, is_placed, is_repeated)
        group = united(group, allowed, pairs)
    position = _position(graph, is_read if settings.late_sources else None)
    into = np.where(is_placed, everything, -1)
    if settings.fusion:
        into = fused(graph.edges, group, is_placed, position, is_over)
    return _contracted(problem, owner, group, allowed, into, position)


def _reads(graph: OpGraph) -> BoolArray:
    """Return whether each op is a read of a variable, `[num_ops]`."""
    is_read = np.zeros(graph.num_ops, dtype=np.bool_)
    is_read[graph.tensor_producer[lies_in_variable(graph)]] = True
    is_read &= graph.resident_bytes == 0
    return is_read


def _position(graph: OpGraph, is_read: BoolArray | None) -> IntArray:
    """Return the position of each op in a topological order, `[num_ops]`.

    If `is_read` is given, sources and reads are late: just before their first consumer.
    """
    position = np.empty(graph.num_ops)
    position[graph.topological_order] = np.arange(graph.num_ops)
    if is_read is not None:
        late = (graph.predecessors.degree == 0) | is_read
        for op in graph.topological_order[::-1]:
            users = graph.successors[op]
            if late[op] and len(users) > 0:
                position[op] = np.nextafter(position[users].min(), -np.inf)
    place = np.empty(graph.num_ops, dtype=np.int64)
    place[np.argsort(position, kind="stable")] = np.arange(graph.num_ops)
    return place


def _within_reach(problem: Problem) -> BoolArray:
    """Return the accelerators that can run each group, or else its fastest device.

    The result is `[num_groups, num_devices]`.
    """
    reach = np.zeros_like(problem.group_allowed)
    candidates = accelerators(problem)
    reach[:, candidates] = problem.group_allowed[:, candidates]
    rest = np.flatnonzero(~reach.any(axis=1))
    reach[rest, fastest_device(problem)[rest]] = True
    return reach


def _contracted(
    problem: Problem,
    owner: IntArray,
    group: IntArray,
    allowed: BoolArray,
    into: IntArray,
    position: IntArray,
) -> PlacementGraph:
    graph = problem.graph
    firsts = np.unique(into[into >= 0])
    firsts = firsts[np.argsort(position[firsts])]
    number = np.full(graph.num_ops, -1, dtype=np.int64)
    number[firsts] = np.arange(len(firsts))
    node = np.where(into >= 0, number[into], -1)
    used, node_group = np.unique(group[firsts], return_inverse=True)
    # `united` numbers a group by one of its members, and unites only equal sets of devices.
    group_allowed = allowed[used]
    placed = np.flatnonzero(node >= 0)
    duration_us = np.zeros((len(firsts), problem.num_devices))
    np.add.at(duration_us, node[placed], problem.duration_us[placed])
    duration_us = np.where(group_allowed[node_group], duration_us, np.inf)
    columns = _inputs(graph, node)
    offsets = np.searchsorted(columns[0], np.arange(len(firsts) + 1))
    sizes = np.concatenate((graph.tensor_bytes, np.full(graph.num_ops, SIGNAL_BYTES)))
    _, source, tensor, is_signal = columns
    return PlacementGraph(
        node,
        owner,
        node_group.reshape(-1),
        group_allowed,
        duration_us,
        offsets,
        source,
        tensor,
        is_signal.astype(np.bool_),
        sizes,
    )


def _inputs(graph: OpGraph, node: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return unique (consumer, source, tensor) of inputs between nodes, and whether it is a signal.

    An input is a signal if no op of the consumer takes the data on its device.
    """
    before, after = graph.control_edges[:, 0], graph.control_edges[:, 1]
    producer = graph.tensor_producer[graph.consumer_tensor]
    rows = np.column_stack(
        (
            np.concatenate((node[graph.consumers], node[after])),
            np.concatenate((node[producer], node[before])),
            np.concatenate((graph.consumer_tensor, graph.num_tensors + before)),
            np.concatenate((graph.consumer_on_host, np.ones(len(before), dtype=np.bool_))),
        )
    )
    rows = rows[(rows[:, 0] >= 0) & (rows[:, 1] >= 0) & (rows[:, 0] != rows[:, 1])]
    rows = rows[np.lexsort(rows.T[::-1])]
    # Data sorts before signals, so the first row of each triple is data if there is any.
    first = np.ones(len(rows), dtype=np.bool_)
    first[1:] = (rows[1:, :3] != rows[:-1, :3]).any(axis=1)
    rows = rows[first].astype(np.int64)
    return rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2].copy(), rows[:, 3].copy()
