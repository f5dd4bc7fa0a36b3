"""The smallest possible strategy, solver and cost source of a package."""

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
    """Places every group on its last or its first allowed device.

    is_last: whether it is the last one.
    """

    is_last: bool = True

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Place and order the ops."""
        device = at_end(problem, is_last=self.is_last)
        return Solution.of(problem, ordered(Simulator(problem), device))


LAST_DEVICE = OneDevice()


def one_device(request: SolverRequest) -> SolverAnswer:
    """Return the better of two placements: all groups on their first, or on their last device."""
    problem = request.formulation.problem
    simulator = Simulator(problem)
    devices = [at_end(problem, is_last=is_last) for is_last in (False, True)]
    schedules = [simulator.list_schedule(each, simulator.upward_rank(each)) for each in devices]
    best = min(schedules, key=lambda schedule: schedule.makespan_us)
    return SolverAnswer(times=timetable_of(request.formulation, best))


def at_end(problem: Problem, *, is_last: bool) -> NDArray[np.int64]:
    """Return the first or last allowed device of each op's colocation group, `[num_ops]`."""
    allowed = problem.group_allowed
    last = problem.num_devices - 1 - allowed[:, ::-1].argmax(axis=1)
    return (last if is_last else allowed.argmax(axis=1))[problem.graph.colocation_group]


def constant(request: CostRequest) -> Costs:
    """Return one time in us for every op, given by the argument: `constant:5`."""
    us = float(request.argument or 1)
    machine, can_run = request.machine, affinity(request)
    kinds = {device.kind for device in machine.devices}
    time_us = {
        kind: np.where(can_run[machine.device_type(kind)], us, np.nan) for kind in sorted(kinds)
    }
    return Costs(time_us, notes=(f"every op takes {us:g} us.",))
