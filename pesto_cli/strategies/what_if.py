"""What a step would take if one colocation group ran on another device, all else as it is."""

from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import Adjacency, IntArray, topological_order
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement, Schedule
from pesto_cli.evaluation.simulator import Simulator


@dataclass(frozen=True, eq=False)
class WhatIf:
    """The two orders that suggest themselves once a group is on another device.

    kept: every device runs its ops in the order in which they start now, and waits for each.
    dispatched: an idle device takes of its ready ops the one that starts first now.
    """

    kept: Schedule
    dispatched: Schedule


def what_if(simulator: Simulator, schedule: Schedule, op: int, device: int) -> WhatIf:
    """Put an op and its group on a device that may run them; may exceed its memory."""
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
    """`[num_ops]`: where each comes by start; in an instant, as devices and precedence have it."""
    queue = np.lexsort((schedule.rank, schedule.device))
    num_ops, same = problem.num_ops, np.diff(schedule.device[queue]) == 0
    turns = np.column_stack((queue[:-1][same], queue[1:][same]))
    edges = np.unique(np.concatenate((problem.graph.edges, turns)), axis=0)
    order = np.array(
        topological_order(Adjacency.from_edges(num_ops, edges[:, 0], edges[:, 1])), dtype=np.int64
    )
    place = np.empty(num_ops, dtype=np.int64)
    place[order[np.argsort(schedule.start_us[order], kind="stable")]] = np.arange(num_ops)
    return place
