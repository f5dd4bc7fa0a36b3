"""Turn a Baechi placement into a schedule, and retry with other settings if it does not fit.

Baechi only places ops; TensorFlow then starts them as they become ready. Here each placement gets
the best of our orders: by upward rank with and without transfers (`ordered`), and by the starts in
Baechi's own schedule if it has all ops. So every baseline gets our best ordering, and only
placements are compared.

Baechi's memory model differs from the simulator's. If only forward ops are placed, it ignores the
memory for gradients. So if a schedule does not fit in memory, the placer runs again with other
settings of its own, until one fits: with less memory (`memory_fraction`), with memory reserved for
groups, without co-placement, and with all ops instead of forward ops. The paper places forward ops
alone if memory suffices; the authors' program fails if it does not.

When the time is over, there is no further attempt. The current one is finished without looking
ahead (`earliest.py`), and ops that are not fused by then stay unfused.
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
    """A placement of nodes.

    device: `[num_nodes]`.
    start_us: start of each node, `[num_nodes]`, or None if the algorithm computes no times.
    """

    device: IntArray
    start_us: FloatArray | None = None


# Returns whether the time is over, such as the result of `Limits.begin`.
IsOver = Callable[[], bool]
Place = Callable[[Problem, PlacementGraph, Settings, IsOver], Placed]


def best_fitting(problem: Problem, settings: Settings, place: Place, limits: Limits) -> Solution:
    """Return the first schedule that fits in memory, or else the one that exceeds it least."""
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
