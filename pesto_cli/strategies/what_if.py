"""What-if analysis: the step time if one colocation group ran on another device."""

from dataclasses import dataclass

import numpy as np

from pesto_cli.data.columns import unique_rows
from pesto_cli.data.graph import Adjacency, IntArray, topological_order
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement, Schedule
from pesto_cli.evaluation.simulator import Simulator


@dataclass(frozen=True, eq=False)
class WhatIf:
    """The schedules of two orders after a group has moved to another device.

    kept: each device runs its ops strictly in the order of their current starts.
    dispatched: an idle device runs the ready op with the earliest current start.
    """

    kept: Schedule
    dispatched: Schedule


def what_if(simulator: Simulator, schedule: Schedule, op: int, device: int) -> WhatIf:
    """Move an op and its group to a device that may run them, and simulate two orders.

    The result may exceed the memory of the device.
    """
    problem = simulator.problem
    group = problem.graph.groups[problem.graph.colocation_group[op]]
    placed = schedule.device.copy()
    placed[group] = device
    place = _places(problem, schedule)
    rank = np.empty_like(place)
    queue = np.lexsort((place, placed))
    first = np.searchsorted(placed[queue], np.arange(problem.num_devices))
    rank[queue] = np.arange(problem.num_ops) - first[placed[queue]]
    return WhatIf(
        kept=simulator.replay(Placement(placed, rank)),
        dispatched=simulator.list_schedule(placed, -place.astype(np.float64)),
    )


def _places(problem: Problem, schedule: Schedule) -> IntArray:
    """Return the position of each op by start, `[num_ops]`.

    Ops that start at the same instant are in the order of their device and of precedence.
    """
    queue = np.lexsort((schedule.rank, schedule.device))
    num_ops, same = problem.num_ops, np.diff(schedule.device[queue]) == 0
    turns = np.column_stack((queue[:-1][same], queue[1:][same]))
    edges = unique_rows(np.concatenate((problem.graph.edges, turns)))
    order = np.array(
        topological_order(Adjacency.from_edges(num_ops, edges[:, 0], edges[:, 1])), dtype=np.int64
    )
    place = np.empty(num_ops, dtype=np.int64)
    place[order[np.argsort(schedule.start_us[order], kind="stable")]] = np.arange(num_ops)
    return place
