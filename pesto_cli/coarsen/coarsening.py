"""Coarsening: a smaller problem, and the map from its nodes back to the ops."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pesto_cli.coarsen.coarse_problem import coarse_problem
from pesto_cli.coarsen.parallel import merge_keeping_parallel
from pesto_cli.coarsen.plain import merge_plainly
from pesto_cli.coarsen.quotient import Quotient
from pesto_cli.coarsen.rounds import OnRound, ignore_round
from pesto_cli.data.graph import Adjacency, FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.errors import BadInputError


@dataclass(frozen=True, eq=False)
class Coarsening:
    """A coarse problem: each of its ops, called nodes, stands for a set of the original ops.

    node_of_op: the node of each original op, `[num_ops]`, as index into the ops of `problem`.
    """

    problem: Problem
    node_of_op: IntArray

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.problem.num_ops

    @cached_property
    def members(self) -> Adjacency:
        """The original ops of each node, in ascending order."""
        ops = np.arange(len(self.node_of_op), dtype=np.int64)
        return Adjacency.from_edges(self.num_nodes, self.node_of_op, ops)

    def expand(self, node_values: NDArray[Any]) -> NDArray[Any]:
        """Give each op the value of its node: `[num_nodes, ...]` to `[num_ops, ...]`."""
        return node_values[self.node_of_op]

    def project(self, ops: Problem, device: IntArray) -> IntArray:
        """Return a device for each node, from a placement of the original ops.

        A colocation group of nodes gets the device on which most of its work is, among the devices
        that are allowed for the whole group.

        Args:
            ops: the problem that was coarsened.
            device: the device of each of its ops, `[num_ops]`.

        Returns:
            The device of each node, `[num_nodes]`.
        """
        nodes = self.problem
        votes = np.zeros((nodes.graph.num_groups, nodes.num_devices))
        # Each op of zero time gets the same small vote, which cannot outweigh real work.
        group = self.expand(nodes.graph.colocation_group)
        np.add.at(votes, (group, device), 1e-9 + ops.min_duration_us)
        votes[~nodes.group_allowed] = -1.0
        chosen: IntArray = votes.argmax(axis=1)[nodes.graph.colocation_group]
        return chosen

    def priority(self, start_us: FloatArray, rank_us: FloatArray) -> FloatArray:
        """Return a priority for each op, `[num_ops]`; the highest runs first.

        Ops are ordered by the start of their node, then by their upward rank.

        Args:
            start_us: the start of each node, `[num_nodes]`.
            rank_us: the upward rank of each op, `[num_ops]`.
        """
        place = np.lexsort((-rank_us, self.expand(start_us)))
        priority = np.empty(len(place))
        priority[place] = -np.arange(len(place))
        return priority


Merging = Callable[[Problem, int, OnRound], Quotient]

MERGINGS: Mapping[str, Merging] = {
    "parallel": merge_keeping_parallel,
    "plain": merge_plainly,
}


def coarsen(
    problem: Problem,
    num_nodes: int = 200,
    *,
    merging: str = "parallel",
    on_round: OnRound = ignore_round,
) -> Coarsening:
    """Merge ops into nodes until `num_nodes` are left.

    A problem with no more than `num_nodes` ops is returned unchanged.

    merging: a name in `MERGINGS`. "parallel" returns more than `num_nodes` nodes only if no two
    nodes can be merged: any two that may share a device have a third node on a path between them.
    on_round: called after each batch of merges.

    Raises:
        BadInputError: `num_nodes` is below 1, or the merging is unknown.
    """
    if num_nodes < 1:
        raise BadInputError(f"num_nodes is {num_nodes}; 1 or more was expected.")
    if merging not in MERGINGS:
        raise BadInputError(f"merging is {merging!r}; one of {', '.join(MERGINGS)} was expected.")
    if problem.num_ops <= num_nodes:
        return Coarsening(problem, np.arange(problem.num_ops, dtype=np.int64))
    quotient = MERGINGS[merging](problem, num_nodes, on_round)
    return Coarsening(coarse_problem(problem, quotient), quotient.node_of_op)
