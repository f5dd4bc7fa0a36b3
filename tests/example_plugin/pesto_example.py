"""A strategy, a solver, a cost source and a search move, as small as they can be."""

import numpy as np
from pesto_cli.strategies.search import Answer, Search

from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.ilp.search import SolverAnswer, SolverRequest
from pesto_cli.ilp.timetable import timetable_of
from pesto_cli.profile.affinity import affinity
from pesto_cli.profile.source import CostRequest, Costs
from pesto_cli.strategies.order import ordered


def last_device(simulator: Simulator, search: Search) -> Answer:
    """Every group on the last device that may take it."""
    problem = simulator.problem
    last = problem.num_devices - 1 - problem.group_allowed[:, ::-1].argmax(axis=1)
    return Answer(ordered(simulator, last[problem.graph.colocation_group]))


def one_device(request: SolverRequest) -> SolverAnswer:
    """The best of all placements that have every group on its first or last device."""
    problem = request.formulation.problem
    simulator, allowed = Simulator(problem), problem.group_allowed
    first, last = allowed.argmax(axis=1), problem.num_devices - 1 - allowed[:, ::-1].argmax(axis=1)
    devices = [choice[problem.graph.colocation_group] for choice in (first, last)]
    schedules = [simulator.list_schedule(each, simulator.upward_rank(each)) for each in devices]
    best = min(schedules, key=lambda schedule: schedule.makespan_us)
    return SolverAnswer(times=timetable_of(request.formulation, best))


def constant(request: CostRequest) -> Costs:
    """Every op takes as many microseconds as the argument says: `constant:5`."""
    us = float(request.argument or 1)
    machine, can_run = request.machine, affinity(request)
    kinds = {device.kind for device in machine.devices}
    time_us = {
        kind: np.where(can_run[machine.device_type(kind)], us, np.nan) for kind in sorted(kinds)
    }
    return Costs(time_us, notes=(f"every op takes {us:g} us.",))
