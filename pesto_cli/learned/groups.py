"""Super-ops: colocation groups that a policy places together.

`by_scope`: those of Spotlight, see `coarsen/scopes.py`. If there are more than `MOST`, neighbours
in topological order are joined.

`around_longest`: HeteroG (Yi et al., CoNEXT '20, Section 4.1.1, "Per-group embeddings") takes the
longest ops, and puts each other op to the one that is the fewest hops away. Here these are
colocation groups that may run on several devices.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from pesto_cli.coarsen.scopes import numbered, scopes_of_groups
from pesto_cli.data.columns import BoolArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.strategies.devices import fastest_device

LEVELS = 2
# The network of Spotlight decides about one super-op after the other, so its time grows with their
# number. RNNLM-4-2048 has 37 of them.
MOST = 500


@dataclass(frozen=True, eq=False)
class SuperOps:
    """The super-ops of a problem, in topological order of their first ops.

    of_group: the super-op of each colocation group, `[num_groups]`; -1 if it has no choice.
    """

    problem: Problem
    of_group: IntArray

    def __len__(self) -> int:
        return int(self.of_group.max(initial=-1)) + 1

    @property
    def of_op(self) -> IntArray:
        """The super-op of each op or -1, `[num_ops]`."""
        of_op: IntArray = self.of_group[self.problem.graph.colocation_group]
        return of_op

    def allowed(self) -> BoolArray:
        """Return whether a device may run some group of a super-op, `[num_super_ops, num_devices]`.

        Groups that may not run on the device of their super-op run on their fastest device.
        """
        allowed = np.zeros((len(self), self.problem.num_devices), dtype=np.bool_)
        inside = self.of_group >= 0
        np.logical_or.at(allowed, self.of_group[inside], self.problem.group_allowed[inside])
        return allowed

    def devices(self, chosen: IntArray) -> IntArray:
        """Return the device of each op, `[num_ops]`.

        chosen: the device of each super-op, `[num_super_ops]`.
        """
        device = fastest_device(self.problem)
        groups = np.flatnonzero(self.of_group >= 0)
        wanted = chosen[self.of_group[groups]]
        can = self.problem.group_allowed[groups, wanted]
        device[groups[can]] = wanted[can]
        return device[self.problem.graph.colocation_group]


def by_scope(problem: Problem) -> SuperOps:
    """Group ops of one phase that share their two outermost scopes."""
    of_group = scopes_of_groups(problem, LEVELS)
    count = int(of_group.max(initial=-1)) + 1
    if count > MOST:
        of_group = np.where(of_group < 0, -1, of_group * MOST // count)
    return SuperOps(problem, of_group)


def around_longest(problem: Problem, most: int) -> SuperOps:
    """Group colocation groups around those with the longest times, at most `most` of them."""
    graph = problem.graph
    work_us = np.bincount(graph.colocation_group, problem.min_duration_us, graph.num_groups)
    has_choice = problem.has_choice
    longest = np.argsort(np.where(has_choice, -work_us, np.inf), kind="stable")
    longest = longest[: min(most, int(has_choice.sum()))]
    neighbours: list[list[int]] = [[] for _ in range(graph.num_groups)]
    for tail, head in graph.colocation_group[graph.edges.reshape(-1, 2)].tolist():
        neighbours[tail].append(head)
        neighbours[head].append(tail)
    centre = {group: number for number, group in enumerate(longest.tolist())}
    queue = deque(centre)  # breadth first, so of equally near centres the longest counts
    while queue:
        group = queue.popleft()
        for other in neighbours[group]:
            if other not in centre:
                centre[other] = centre[group]
                queue.append(other)
    # No path leads to the others.
    return SuperOps(problem, numbered(problem, [centre.get(i, 0) for i in range(graph.num_groups)]))
