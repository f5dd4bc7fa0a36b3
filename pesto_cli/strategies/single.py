"""`single`: everything on one device, the fastest that fits."""

import numpy as np

from pesto_cli.data.schedule import objective
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies.devices import accelerators, fastest_device
from pesto_cli.strategies.order import ordered
from pesto_cli.strategies.search import Answer, Search


def single(simulator: Simulator, search: Search) -> Answer:
    """Try every accelerator; ops that cannot run there go where they are fastest."""
    problem = simulator.problem
    elsewhere, group = fastest_device(problem), problem.graph.colocation_group
    schedules = [
        ordered(simulator, np.where(problem.group_allowed[:, index], index, elsewhere)[group])
        for index in accelerators(problem)
    ]
    best = min(schedules, key=lambda schedule: objective(problem, schedule))
    return Answer(best)
