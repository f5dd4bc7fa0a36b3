"""A strategy, a solver, a cost source and a search move, as small as they can be."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.ilp.search import SolverAnswer, SolverRequest
from pesto_cli.ilp.timetable import timetable_of
from pesto_cli.profile.affinity import affinity
from pesto_cli.profile.source import CostRequest, Costs
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.order import ordered


@dataclass(frozen=True)
class OneDevice:
    """Every group on the last device that may take it, or on the first one.

    is_last: which of the two.
    """

    is_last: bool = True

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Place, and order."""
        device = at_end(problem, is_last=self.is_last)
        return Solution.of(problem, ordered(Simulator(problem), device))


LAST_DEVICE = OneDevice()


def one_device(request: SolverRequest) -> SolverAnswer:
    """The best of all placements that have every group on its first or last device."""
    problem = request.formulation.problem
    simulator = Simulator(problem)
    devices = [at_end(problem, is_last=is_last) for is_last in (False, True)]
    schedules = [simulator.list_schedule(each, simulator.upward_rank(each)) for each in devices]
    best = min(schedules, key=lambda schedule: schedule.makespan_us)
    return SolverAnswer(times=timetable_of(request.formulation, best))


def at_end(problem: Problem, *, is_last: bool) -> NDArray[np.int64]:
    """`[num_ops]`: the first or last device that each op's colocation group may go to."""
    allowed = problem.group_allowed
    last = problem.num_devices - 1 - allowed[:, ::-1].argmax(axis=1)
    return (last if is_last else allowed.argmax(axis=1))[problem.graph.colocation_group]


def constant(request: CostRequest) -> Costs:
    """Every op takes as many microseconds as the argument says: `constant:5`."""
    us = float(request.argument or 1)
    machine, can_run = request.machine, affinity(request)
    kinds = {device.kind for device in machine.devices}
    time_us = {
        kind: np.where(can_run[machine.device_type(kind)], us, np.nan) for kind in sorted(kinds)
    }
    return Costs(time_us, notes=(f"every op takes {us:g} us.",))
