"""The graph that Baechi places: fused ops in topological order, and what they take from each other.

A tensor is sent once to each device and waits there for its other consumers, as in the program. A
control edge is a tensor of 4 bytes (`SIGNAL_BYTES`) of its own. Returns of a fetch are left out:
the program's graph has none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

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
    """Nodes, numbered by the place of their first op in the topological order, in groups.

    node_of_op: `[num_ops]`, -1 for an op that follows another or returns a fetch.
    owner: `[num_ops]`, the op that each goes with, itself if it has a node; -1 if there is none.
    group: `[num_nodes]`; nodes of one share a device.
    group_allowed: `[num_groups, num_devices]`.
    duration_us: `[num_nodes, num_devices]`, inf where a node may not go.
    input_offsets: `[num_nodes + 1]`, rows of the next three, ordered by source.
    input_source: the node that an input comes from.
    input_tensor: tensor index, or `num_tensors + op` for control edges that leave an op.
    input_is_signal: crosses devices without a link.
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
        """The node that takes each input."""
        return np.repeat(np.arange(self.num_nodes), np.diff(self.input_offsets))

    @cached_property
    def edges(self) -> IntArray:
        """Unique (before, after), `[num_edges, 2]`."""
        pairs = np.column_stack((self.input_source, self.input_node))
        return np.unique(pairs, axis=0) if len(pairs) else pairs

    @cached_property
    def successors(self) -> Adjacency:
        """Direct successors by node."""
        return Adjacency.from_edges(self.num_nodes, self.edges[:, 0], self.edges[:, 1])

    def by_op(self, of_node: Numbers, without_node: float) -> Numbers:
        """`[num_ops]`, from `[num_nodes]`: ops without a node get a value of their own.

        A graph of fetches alone has no node at all.
        """
        by_op: Numbers = np.full(len(self.node_of_op), without_node, dtype=of_node.dtype)
        has_node = self.node_of_op >= 0
        by_op[has_node] = of_node[self.node_of_op[has_node]]
        return by_op

    def device_of_ops(self, problem: Problem, device: IntArray) -> IntArray:
        """`[num_ops]`, from `[num_nodes]`: followers go with their owner where they may."""
        graph = problem.graph
        op_device = self.by_op(device, -1)
        followed = np.where(self.owner >= 0, op_device[self.owner], -1)
        # The longest op of a group that follows speaks for it.
        of_group = np.full(graph.num_groups, -1, dtype=np.int64)
        has_node = self.node_of_op >= 0
        by_time = np.argsort(problem.min_duration_us, kind="stable")
        known = by_time[followed[by_time] >= 0]
        of_group[graph.colocation_group[known]] = followed[known]
        of_group[graph.colocation_group[has_node]] = op_device[has_node]
        may = problem.group_allowed[np.arange(graph.num_groups), of_group] & (of_group >= 0)
        return np.where(may, of_group, fastest_device(problem))[graph.colocation_group]


def lies_in_variable(graph: OpGraph) -> BoolArray:
    """`[num_tensors]`: whether a tensor is a variable, or lies in one's memory."""
    root = np.where(graph.alias_source < 0, np.arange(graph.num_tensors), graph.alias_source)
    while (root[root] != root).any():
        root = root[root]
    producer = graph.tensor_producer[root]
    resident: BoolArray = (graph.resident_bytes > 0) | (graph.alias_of == np.arange(graph.num_ops))
    return resident[producer]


def prepared(
    problem: Problem, settings: Settings, is_over: Callable[[], bool] = lambda: False
) -> PlacementGraph:
    """Choose the ops to place, unite what is placed together, fuse what can be in the time."""
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
    """`[num_ops]`: reads of variables."""
    is_read = np.zeros(graph.num_ops, dtype=np.bool_)
    is_read[graph.tensor_producer[lies_in_variable(graph)]] = True
    is_read &= graph.resident_bytes == 0
    return is_read


def _position(graph: OpGraph, is_read: BoolArray | None) -> IntArray:
    """`[num_ops]`: place in the topological order; with reads given, sources are late in it."""
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
    """`[num_groups, num_devices]`: the accelerators that can run it; else the fastest device."""
    reach = np.zeros_like(problem.group_allowed)
    hands = accelerators(problem)
    reach[:, hands] = problem.group_allowed[:, hands]
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
    # `united` names a group by one of its members, and unites only what may go to the same devices.
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
    """Unique (consumer, source, tensor) between nodes; a signal if no consumer takes the data."""
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
    # Data sorts before signals: the first of each triple tells.
    first = np.ones(len(rows), dtype=np.bool_)
    first[1:] = (rows[1:, :3] != rows[:-1, :3]).any(axis=1)
    rows = rows[first].astype(np.int64)
    return rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2].copy(), rows[:, 3].copy()
