"""`round-robin`: colocation groups dealt to the accelerators in topological order.

It crosses devices everywhere, which makes it a poor placement and a good test.
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
    """Colocation groups dealt to the accelerators in turn."""

    name: ClassVar[str] = "round-robin"

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Deal, then order."""
        return Solution.of(problem, ordered(Simulator(problem), deal(problem)))


def deal(problem: Problem) -> IntArray:
    """`[num_ops]`: every next group to the next accelerator that may run it."""
    graph, hands = problem.graph, accelerators(problem)
    device = fastest_device(problem)
    _, first_op = np.unique(graph.colocation_group[graph.topological_order], return_index=True)
    turn = 0
    for group in np.argsort(first_op):
        for step in range(len(hands)):
            index = hands[(turn + step) % len(hands)]
            if problem.group_allowed[group, index]:
                device[group] = index
                turn += step + 1
                break
    return device[graph.colocation_group]
