"""`single`: all ops on one accelerator, the fastest with enough memory."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import objective
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import accelerators, fastest_device
from pesto_cli.strategies.order import ordered


@dataclass(frozen=True)
class Single:
    """All ops on one device."""

    name: ClassVar[str] = "single"

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Try each accelerator; ops that cannot run there go to their fastest device."""
        simulator, group = Simulator(problem), problem.graph.colocation_group
        elsewhere = fastest_device(problem)
        schedules = [
            ordered(simulator, np.where(problem.group_allowed[:, index], index, elsewhere)[group])
            for index in accelerators(problem)
        ]
        best = min(schedules, key=lambda schedule: objective(problem, schedule))
        return Solution.of(problem, best)
