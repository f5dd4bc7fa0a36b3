"""Super-ops: colocation groups whose ops share their outermost scopes and their phase.

Spotlight (Gao, Chen and Li, ICML '18, Section 5.1, "Co-location group") puts ops with the same
two-level prefix of their names into a super-op. Departures from it:

- Scopes are those of the labels, so the scopes of a gradient are those of its forward op. Forward
  pass, gradients and updates are separate super-ops, as they are by TensorFlow's names.
- The scopes of time steps do not count. In TensorFlow 1, a recurrent layer is usually a loop, which
  has one op for all time steps; an unrolled graph has one op for each.
- Ops outside of all scopes, such as sums of gradients, are grouped by layer.
- A colocation group is in the super-op of its longest op.
- A colocation group with only one allowed device, such as a feed, is in no super-op.
"""

from collections.abc import Sequence

import numpy as np

from pesto_cli.coarsen.layers import layers_of_groups
from pesto_cli.data.columns import IntArray
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.labels import Path
from pesto_cli.data.problem import Problem
from pesto_cli.data.problem_cache import cached_per_problem


def scopes_of_groups(problem: Problem, depth: int) -> IntArray:
    """Return the super-op of each colocation group, `[num_groups]`; -1 if it has no choice.

    Super-ops are in topological order of their first ops.

    depth: the number of scopes that count, from the outermost.
    """
    return numbered(
        problem,
        [(phase, scopes[:depth] or layer) for phase, scopes, layer in _labels_of_groups(problem)],
    )


@cached_per_problem
def _labels_of_groups(problem: Problem) -> list[tuple[int, Path, int]]:
    """Return the phase, the scopes and the layer of the longest op of each colocation group."""
    graph = problem.graph
    layer = layers_of_groups(graph, problem.min_duration_us).of_group
    longest = np.argsort(problem.min_duration_us, kind="stable")
    leader = np.zeros(graph.num_groups, dtype=np.int64)
    leader[graph.colocation_group[longest]] = longest  # the last assignment wins
    paths = _forward_paths(graph)
    return [
        (phase, paths[op][:-1], of_layer)
        for phase, op, of_layer in zip(
            graph.labels.phase[leader].tolist(), leader.tolist(), layer.tolist(), strict=True
        )
    ]


def _forward_paths(graph: OpGraph) -> list[Path]:
    """Return the path of each op without time steps; a gradient has the path of its forward op."""
    paths = graph.labels.layer_paths(graph.names)
    return [
        paths[op if name is None else graph.index_of.get(name, op)]
        for op, name in enumerate(graph.labels.forward_op)
    ]


def numbered(problem: Problem, keys: Sequence[object]) -> IntArray:
    """Return the super-op of each colocation group with a choice: one for each key, `[num_groups]`.

    Super-ops are in topological order of their first ops; groups without a choice have -1.
    """
    has_choice = problem.has_choice.tolist()
    number: dict[object, int] = {}
    of_group = np.full(problem.graph.num_groups, -1, dtype=np.int64)
    of_op = problem.graph.colocation_group.tolist()
    for op in problem.graph.topological_order.tolist():
        group = of_op[op]
        if has_choice[group] and of_group[group] < 0:
            of_group[group] = number.setdefault(keys[group], len(number))
    return of_group
