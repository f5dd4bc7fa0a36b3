"""Super-ops: colocation groups that a policy places together.

`by_scope`: Spotlight (Gao, Chen and Li, ICML '18, Section 5.1, "Co-location group") puts ops with
the same two-level prefix of their names into a super-op. Departures from it:

- Scopes are those of the labels, so the scopes of a gradient are those of its forward op. Forward
  pass, gradients and updates are separate super-ops, as they are by TensorFlow's names.
- The scopes of time steps do not count. In TensorFlow 1, a recurrent layer is usually a loop, which
  has one op for all time steps; an unrolled graph has one op for each.
- Ops outside of all scopes, such as sums of gradients, are grouped by layer.
- A colocation group is in the super-op of its longest op.
- A colocation group with only one allowed device, such as a feed, is in no super-op.
- If there are more than `MOST` super-ops, neighbours in topological order are joined.

`around_longest`: HeteroG (Yi et al., CoNEXT '20, Section 4.1.1, "Per-group embeddings") takes the
longest ops, and puts each other op to the one that is the fewest hops away. Here these are
colocation groups that may run on several devices.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.columns import BoolArray, IntArray
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.labels import Path
from pesto_cli.data.problem import Problem
from pesto_cli.strategies.devices import fastest_device
from pesto_cli.strategies.layers import layers_of_groups

LEVELS = 2
MOST = 500


@dataclass(frozen=True, eq=False)
class SuperOps:
    """The super-ops of a problem, in topological order of their first ops.

    problem: the problem.
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


def by_scope(problem: Problem, levels: int = LEVELS) -> SuperOps:
    """Group ops of one phase that share their outermost scopes.

    levels: the number of scopes that count.
    """
    graph = problem.graph
    layer = layers_of_groups(graph, problem.min_duration_us).of_group[graph.colocation_group]
    columns = (graph.labels.phase.tolist(), _forward_paths(graph), layer.tolist())
    keys = [
        (phase, path[:-1][:levels] or of_layer)
        for phase, path, of_layer in zip(*columns, strict=True)
    ]
    longest = np.argsort(problem.min_duration_us, kind="stable")
    leader = np.zeros(graph.num_groups, dtype=np.int64)
    leader[graph.colocation_group[longest]] = longest  # the last assignment wins
    of_group = _numbered(problem, [keys[op] for op in leader.tolist()])
    count = int(of_group.max(initial=-1)) + 1
    if count > MOST:
        of_group = np.where(of_group < 0, -1, of_group * MOST // count)
    return SuperOps(problem, of_group)


def _forward_paths(graph: OpGraph) -> list[Path]:
    """Return the path of each op without time steps; a gradient has the path of its forward op."""
    paths = graph.labels.layer_paths(graph.names)
    return [
        paths[op if name is None else graph.index_of.get(name, op)]
        for op, name in enumerate(graph.labels.forward_op)
    ]


def around_longest(problem: Problem, most: int) -> SuperOps:
    """Group colocation groups around those with the longest times, at most `most` of them."""
    graph = problem.graph
    work_us = np.bincount(graph.colocation_group, problem.min_duration_us, graph.num_groups)
    has_choice = problem.group_allowed.sum(axis=1) > 1
    longest = np.argsort(np.where(has_choice, -work_us, np.inf), kind="stable")
    longest = longest[: min(most, int(has_choice.sum()))]
    centre = np.full(graph.num_groups, graph.num_groups)
    centre[longest] = np.arange(len(longest))
    tail, head = graph.colocation_group[graph.edges.reshape(-1, 2)].T
    while True:
        nearest = centre.copy()
        for one, other in ((tail, head), (head, tail)):
            np.minimum.at(nearest, one, centre[other])  # of equally near ones the longest
        reached = np.where(centre < graph.num_groups, centre, nearest)
        if (reached == centre).all():
            break
        centre = reached
    centre[centre == graph.num_groups] = 0  # no path leads there
    return SuperOps(problem, _numbered(problem, centre.tolist()))


def _numbered(problem: Problem, keys: Sequence[object]) -> IntArray:
    """Return the super-op of each colocation group with a choice: one for each key.

    They are in topological order of their first ops; groups without a choice have -1.
    """
    has_choice = (problem.group_allowed.sum(axis=1) > 1).tolist()
    number: dict[object, int] = {}
    of_group = np.full(problem.graph.num_groups, -1, dtype=np.int64)
    of_op = problem.graph.colocation_group.tolist()
    for op in problem.graph.topological_order.tolist():
        group = of_op[op]
        if has_choice[group] and of_group[group] < 0:
            of_group[group] = number.setdefault(keys[group], len(number))
    return of_group
