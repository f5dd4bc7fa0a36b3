"""`round-robin`: colocation groups assigned to the accelerators in turn, in topological order.

Nearly every edge needs a transfer. So the placement is poor, but a good test.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pesto_cli.data.graph import IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import accelerators, fastest_device
from pesto_cli.strategies.order import ordered


@dataclass(frozen=True)
class RoundRobin:
    """Colocation groups assigned to the accelerators in turn."""

    name: ClassVar[str] = "round-robin"

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Assign devices in turn, then order the ops."""
        return Solution.of(problem, ordered(Simulator(problem), deal(problem)))


def deal(problem: Problem) -> IntArray:
    """Assign each group to the next accelerator that may run it; return devices, `[num_ops]`."""
    graph, candidates = problem.graph, accelerators(problem)
    device = fastest_device(problem)
    _, first_op = np.unique(graph.colocation_group[graph.topological_order], return_index=True)
    turn = 0
    for group in np.argsort(first_op):
        for step in range(len(candidates)):
            index = candidates[(turn + step) % len(candidates)]
            if problem.group_allowed[group, index]:
                device[group] = index
                turn += step + 1
                break
    return device[graph.colocation_group]
