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
from pesto_cli.coarsen.rounds import OnRound, unheard
from pesto_cli.data.graph import Adjacency, FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.errors import BadInputError


@dataclass(frozen=True, eq=False)
class Coarsening:
    """A coarse problem whose ops, the nodes, stand for disjoint sets of another problem's ops.

    node_of_op: `[num_ops]`, index into the ops of `problem`.
    """

    problem: Problem
    node_of_op: IntArray

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.problem.num_ops

    @cached_property
    def members(self) -> Adjacency:
        """The ops of every node, ascending."""
        ops = np.arange(len(self.node_of_op), dtype=np.int64)
        return Adjacency.from_edges(self.num_nodes, self.node_of_op, ops)

    def expand(self, node_values: NDArray[Any]) -> NDArray[Any]:
        """A value for every op, that of its node: `[num_nodes, ...]` to `[num_ops, ...]`."""
        return node_values[self.node_of_op]

    def project(self, ops: Problem, device: IntArray) -> IntArray:
        """A device for every node: where most of its group's work is, as far as that may go.

        Args:
            ops: the problem that was coarsened.
            device: of its ops, `[num_ops]`.

        Returns:
            `[num_nodes]`.
        """
        nodes = self.problem
        votes = np.zeros((nodes.graph.num_groups, nodes.num_devices))
        # Equal votes for ops of no time, too small to outweigh any work.
        group = self.expand(nodes.graph.colocation_group)
        np.add.at(votes, (group, device), 1e-9 + ops.min_duration_us)
        votes[~nodes.group_allowed] = -1.0
        chosen: IntArray = votes.argmax(axis=1)[nodes.graph.colocation_group]
        return chosen

    def priority(self, start_us: FloatArray, rank_us: FloatArray) -> FloatArray:
        """Of ops, `[num_ops]`: node by node in the order of their starts, then by the ops' rank."""
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
    on_round: OnRound = unheard,
) -> Coarsening:
    """Merge ops into nodes until `num_nodes` are left; a problem that is no larger stays as it is.

    merging: a name in `MERGINGS`. "parallel" gives more nodes than asked for only where no two can
    be merged: every two that may share a device have a third one between them.
    on_round: told of every batch of merges.

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
