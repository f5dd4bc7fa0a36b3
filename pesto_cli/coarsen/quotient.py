"""The quotient graph, whose nodes are disjoint sets of ops, during coarsening."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.kernels import kernel


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of nodes that are candidates for a merge, `[num_pairs]` each.

    first, second: the nodes; tail and head if they have an edge.
    weight_bytes: weight of the data on the edge, or 0 if the weight does not matter.
    """

    first: IntArray
    second: IntArray
    weight_bytes: FloatArray

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, rows: IntArray | BoolArray | slice) -> Self:
        return type(self)(self.first[rows], self.second[rows], self.weight_bytes[rows])

    @classmethod
    def of_no_weight(cls, first: IntArray, second: IntArray) -> Self:
        """Return pairs of weight zero."""
        return cls(first, second, np.zeros(len(first)))

    def and_then(self, other: Self) -> Self:
        """Return these pairs, followed by others."""
        return type(self)(
            np.concatenate((self.first, other.first)),
            np.concatenate((self.second, other.second)),
            np.concatenate((self.weight_bytes, other.weight_bytes)),
        )

    def mates(self, num_nodes: int) -> IntArray:
        """Return the other node of each node's pair, or -1 if it is in no pair, `[num_nodes]`."""
        mate = np.full(num_nodes, -1, dtype=np.int64)
        mate[self.first], mate[self.second] = self.second, self.first
        return mate


@dataclass(frozen=True, eq=False)
class Quotient:
    """The nodes, the edges between them, and their colocation groups.

    Ops, `[num_ops]`:
        node_of_op: the node of each op.

    Nodes, `[num_nodes]`:
        work_us: sum of the members' times, each on the fastest device that may run it.
        num_members: number of ops.
        role: 0 computes, 1 is a feed, 2 is a fetch; nodes of different roles never merge.
        group: nodes with the same number share a device.

    Groups:
        group_work_us: `[num_groups]`, sum over the group's nodes.
        group_allowed: `[num_groups, num_devices]`, devices on which the whole group can run.

    Edges, unique and without loops, in compressed rows:
        out_offsets, heads, weight_bytes: by tail, with the weight of the data on the edge.
        in_offsets, tails: by head.
    """

    node_of_op: IntArray
    work_us: FloatArray
    num_members: IntArray
    role: IntArray
    group: IntArray
    group_work_us: FloatArray
    group_allowed: BoolArray
    out_offsets: IntArray
    heads: IntArray
    weight_bytes: FloatArray
    in_offsets: IntArray
    tails: IntArray

    @classmethod
    def of(cls, problem: Problem, weight_bytes: FloatArray | IntArray) -> Self:
        """Return the quotient in which each op is a node of its own.

        weight_bytes: weight of each entry of `graph.consumers`, `[num_consumers]`. Consumers that
        take the data in host memory get weight 0.
        """
        graph = problem.graph
        tails = graph.tensor_producer[graph.consumer_tensor]
        width = (graph.num_ops, 1)
        edge = np.searchsorted(
            graph.edges @ width, np.column_stack((tails, graph.consumers)) @ width
        )
        on_link = np.where(graph.consumer_on_host, 0.0, weight_bytes)
        return cls(
            node_of_op=np.arange(graph.num_ops),
            work_us=problem.min_duration_us,
            num_members=graph.num_members,
            role=problem.is_feed + 2 * problem.is_fetch.astype(np.int64),
            group=graph.colocation_group,
            group_work_us=_sums(graph.colocation_group, problem.min_duration_us, graph.num_groups),
            group_allowed=problem.group_allowed,
            out_offsets=graph.successors.offsets,
            heads=graph.successors.indices,
            weight_bytes=_sums(edge, on_link, len(graph.edges)),
            in_offsets=graph.predecessors.offsets,
            tails=graph.predecessors.indices,
        )

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.work_us)

    @property
    def out_degree(self) -> IntArray:
        """Number of direct successors, `[num_nodes]`."""
        return np.diff(self.out_offsets)

    @property
    def in_degree(self) -> IntArray:
        """Number of direct predecessors, `[num_nodes]`."""
        return np.diff(self.in_offsets)

    @property
    def edges(self) -> tuple[IntArray, IntArray]:
        """(tails, heads) of every edge, in the order of `heads`."""
        return np.repeat(np.arange(self.num_nodes), self.out_degree), self.heads

    def merged(self, pairs: Pairs) -> Self:
        """Return the quotient in which each pair is one node; no node may be in two pairs."""
        mate = pairs.mates(self.num_nodes)
        index = np.arange(self.num_nodes)
        kept = np.flatnonzero((mate < 0) | (index < mate))
        label = np.empty(self.num_nodes, dtype=np.int64)
        label[kept] = np.arange(len(kept))
        label[mate[kept][mate[kept] >= 0]] = label[kept][mate[kept] >= 0]
        group_of_group = _joined_groups(
            self.group, len(self.group_work_us), pairs.first, pairs.second
        )
        num_groups = int(group_of_group.max(initial=-1)) + 1
        allowed = np.ones((num_groups, self.group_allowed.shape[1]), dtype=np.bool_)
        np.logical_and.at(allowed, group_of_group, self.group_allowed)
        out_offsets, heads, weight = _merged_rows(
            self.out_offsets, self.heads, self.weight_bytes, label, kept, mate
        )
        in_offsets, tails = _reversed_rows(out_offsets, heads)
        return type(self)(
            node_of_op=label[self.node_of_op],
            work_us=_sums(label, self.work_us, len(kept)),
            num_members=_sums(label, self.num_members, len(kept)).astype(np.int64),
            role=self.role[kept],
            group=group_of_group[self.group[kept]],
            group_work_us=_sums(group_of_group, self.group_work_us, num_groups),
            group_allowed=allowed,
            out_offsets=out_offsets,
            heads=heads,
            weight_bytes=weight,
            in_offsets=in_offsets,
            tails=tails,
        )


def _sums(labels: IntArray, values: FloatArray | IntArray, num_labels: int) -> FloatArray:
    """Return the sum of the values of each label, `[num_labels]`."""
    return np.bincount(labels, values, num_labels).astype(np.float64)


@kernel
def root(parent: Any, item: int) -> int:
    """Return the representative of an item's set in a union-find forest, with path halving."""
    while parent[item] != item:
        parent[item] = parent[parent[item]]
        item = parent[item]
    return item


@kernel
def _joined_groups(group: Any, num_groups: int, first: Any, second: Any) -> Any:
    """Return the new number of each group, from 0, after the groups of each pair are joined.

    The result is `[num_groups]`.
    """
    parent = np.arange(num_groups)
    for pair in range(len(first)):
        one, other = root(parent, group[first[pair]]), root(parent, group[second[pair]])
        parent[max(one, other)] = min(one, other)
    number = np.empty(num_groups, dtype=np.int64)
    count = 0
    for item in range(num_groups):
        if parent[item] == item:
            number[item] = count
            count += 1
        else:
            number[item] = number[root(parent, item)]
    return number


@kernel
def _merged_rows(offsets: Any, heads: Any, weight: Any, label: Any, kept: Any, mate: Any) -> Any:
    """Return the rows of the merged graph.

    Parallel edges become one edge of summed weight. Loops are removed.
    """
    new_offsets = np.zeros(len(kept) + 1, dtype=np.int64)
    new_heads = np.empty(len(heads), dtype=np.int64)
    new_weight = np.empty(len(heads))
    place = np.full(len(kept), -1, dtype=np.int64)
    count = 0
    for node in range(len(kept)):
        begin = count
        member = kept[node]
        while member >= 0:
            for edge in range(offsets[member], offsets[member + 1]):
                head = label[heads[edge]]
                if head == node:
                    continue
                if place[head] < begin:
                    place[head] = count
                    new_heads[count] = head
                    new_weight[count] = 0.0
                    count += 1
                new_weight[place[head]] += weight[edge]
            member = mate[member] if member == kept[node] else -1
        new_offsets[node + 1] = count
    return new_offsets, new_heads[:count], new_weight[:count]


@kernel
def _reversed_rows(offsets: Any, heads: Any) -> Any:
    """Return the tails of each head, in ascending order, as compressed rows: offsets, tails."""
    num_nodes = len(offsets) - 1
    in_offsets = np.zeros(num_nodes + 1, dtype=np.int64)
    for head in heads:
        in_offsets[head + 1] += 1
    in_offsets = np.cumsum(in_offsets)
    place = in_offsets[:-1].copy()
    tails = np.empty(len(heads), dtype=np.int64)
    for node in range(num_nodes):
        for edge in range(offsets[node], offsets[node + 1]):
            tails[place[heads[edge]]] = node
            place[heads[edge]] += 1
    return in_offsets, tails
