"""`random`: each colocation group on a random accelerator, with equal probabilities.

Groups that no accelerator may run go to their fastest device. If a placement does not fit in
memory, another one is drawn, a limited number of times.
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
    """A random placement. max_throws: largest number of draws until one fits in memory."""

    name: ClassVar[str] = "random"
    max_throws: int = 10

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Draw placements from the seed, and return the first one that fits in memory."""
        simulator, rng = Simulator(problem), np.random.default_rng(context.limits.seed)
        found: list[Schedule] = []
        for _ in range(self.max_throws):
            found.append(ordered(simulator, random_devices(problem, rng)))
            if not shortfall_bytes(problem, found[-1]).any():
                break
        return Solution.of(problem, min(found, key=lambda schedule: objective(problem, schedule)))


def random_devices(problem: Problem, rng: np.random.Generator) -> IntArray:
    """Return a random allowed accelerator for each group, as devices of ops, `[num_ops]`."""
    candidates = np.array(accelerators(problem))
    allowed = problem.group_allowed[:, candidates]
    draws = np.where(allowed, rng.random(allowed.shape), -1.0)
    group = np.where(allowed.any(axis=1), candidates[draws.argmax(axis=1)], fastest_device(problem))
    device: IntArray = group[problem.graph.colocation_group]
    return device
