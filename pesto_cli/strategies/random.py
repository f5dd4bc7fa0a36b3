"""`random`: colocation groups on accelerators at random, each as likely as the others.

What no accelerator may run goes where it is fastest. A placement that does not fit into memory is
thrown again a few times.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pesto_cli.data.graph import IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, objective, shortfall_bytes
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import accelerators, fastest_device
from pesto_cli.strategies.order import ordered


@dataclass(frozen=True)
class Random:
    """A placement at random. max_throws: until one fits into memory."""

    name: ClassVar[str] = "random"
    max_throws: int = 10

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Throw by the seed, then order; the first placement that fits."""
        simulator, dice = Simulator(problem), np.random.default_rng(context.limits.seed)
        found: list[Schedule] = []
        for _ in range(self.max_throws):
            found.append(ordered(simulator, thrown(problem, dice)))
            if not shortfall_bytes(problem, found[-1]).any():
                break
        return Solution.of(problem, min(found, key=lambda schedule: objective(problem, schedule)))


def thrown(problem: Problem, dice: np.random.Generator) -> IntArray:
    """`[num_ops]`: for every group one of the accelerators that may run it."""
    hands = np.array(accelerators(problem))
    allowed = problem.group_allowed[:, hands]
    luck = np.where(allowed, dice.random(allowed.shape), -1.0)
    group = np.where(allowed.any(axis=1), hands[luck.argmax(axis=1)], fastest_device(problem))
    device: IntArray = group[problem.graph.colocation_group]
    return device
