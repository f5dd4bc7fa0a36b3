"""From Baechi's placement to a schedule, and what happens when that does not fit into memory.

Baechi places; TensorFlow then starts ops as they become ready. Here each placement gets the best of
the orders at hand: by upward rank with and without transfers (`ordered`), and, where every op has a
time in Baechi's own schedule, by that. Of what a rival lacks, nothing but its placement is left to
compare.

Baechi's model of memory is not ours, and with forward ops alone it does not see what gradients
need. So when a schedule does not fit, the placer plans again, with its own means: less memory
(`memory_fraction`), memory reserved by group, then without co-placement, then with all ops and not
the forward ones alone, until one fits. The paper places forward ops alone where memory suffices;
the program fails where it does not.

When the time is over, no further plan is made, and one that is under way is ended without looking
ahead (`earliest.py`); what was not fused by then stays as it is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, objective
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph, prepared
from pesto_cli.strategies.baechi.settings import Settings
from pesto_cli.strategies.order import ordered

TIGHTER = (1.0, 0.85, 0.7, 0.55, 0.4)


@dataclass(frozen=True, eq=False)
class Placed:
    """`device`: `[num_nodes]`. `start_us`: `[num_nodes]`, if the algorithm has times."""

    device: IntArray
    start_us: FloatArray | None = None


# Whether the time is over, as `Limits.begin` tells it.
IsOver = Callable[[], bool]
Place = Callable[[Problem, PlacementGraph, Settings, IsOver], Placed]


def best_fitting(problem: Problem, settings: Settings, place: Place, limits: Limits) -> Solution:
    """The first schedule that fits into memory, or that which exceeds it least."""
    is_over = limits.begin()
    simulator = Simulator(problem)
    found: list[Schedule] = []
    graphs: dict[tuple[str, bool], PlacementGraph] = {}
    for attempt in _attempts(settings):
        key = (attempt.gradients, attempt.co_placement)
        if key not in graphs:
            graphs[key] = prepared(problem, attempt, is_over)
        found.append(
            _scheduled(simulator, graphs[key], place(problem, graphs[key], attempt, is_over))
        )
        if objective(problem, found[-1])[0] == 0 or is_over():
            break
    return Solution.of(problem, min(found, key=lambda schedule: objective(problem, schedule)))


def _attempts(settings: Settings) -> Iterator[Settings]:
    alone = replace(settings, co_placement=False)
    whole = (replace(alone, gradients="colocated"), replace(alone, gradients="free"))
    for graph in dict.fromkeys((settings, alone, *whole)):
        for share in TIGHTER:
            for reserve in dict.fromkeys((settings.reserve_memory, True)):
                yield replace(
                    graph, reserve_memory=reserve, memory_fraction=share * settings.memory_fraction
                )


def _scheduled(simulator: Simulator, graph: PlacementGraph, placed: Placed) -> Schedule:
    problem = simulator.problem
    device = graph.device_of_ops(problem, placed.device)
    schedules = [ordered(simulator, device)]
    if placed.start_us is not None and (graph.node_of_op[~problem.is_fetch] >= 0).all():
        position = np.empty(problem.num_ops)
        position[problem.graph.topological_order] = np.arange(problem.num_ops)
        start_us = graph.by_op(placed.start_us, np.inf)
        priority = np.empty(problem.num_ops)
        priority[np.lexsort((position, start_us))] = -np.arange(problem.num_ops)
        schedules.append(simulator.list_schedule(device, priority))
    return min(schedules, key=lambda schedule: objective(problem, schedule))
