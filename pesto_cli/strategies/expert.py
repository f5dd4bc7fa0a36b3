"""`expert`: what a practitioner does by hand (Pesto, Section 5.2, "Expert").

Contiguous layers in forward order over the accelerators, balanced by work; gradients, optimiser
slots and gradient sums with their layer; the embedding first, softmax and attention last.
"""

import numpy as np

from pesto_cli.graph import FloatArray, IntArray
from pesto_cli.schedule import Schedule, goodness
from pesto_cli.simulate import Simulator
from pesto_cli.strategies.devices import accelerators, fastest_device, group_time_us
from pesto_cli.strategies.layers import layers_of_groups
from pesto_cli.strategies.order import ordered
from pesto_cli.strategies.search import Answer, Search


def expert(simulator: Simulator, search: Search) -> Answer:
    """Start from the cuts that balance work best, and shift them while the makespan improves."""
    problem = simulator.problem
    _, layer_of_group = layers_of_groups(problem.graph, problem.min_duration_us)
    hands, elsewhere = accelerators(problem), fastest_device(problem)
    group_us = group_time_us(problem)
    movable = np.isfinite(group_us[:, hands]).any(axis=1)
    work_us = np.zeros((layer_of_group.max(initial=0) + 1, len(hands)))
    finite = np.where(np.isfinite(group_us[:, hands]), group_us[:, hands], 0.0)
    np.add.at(work_us, layer_of_group[movable], finite[movable])

    def schedule(cuts: list[int]) -> Schedule:
        part = np.searchsorted(cuts, layer_of_group, side="right")
        device = np.array(hands)[part]
        allowed = problem.group_allowed[np.arange(len(device)), device]
        return ordered(
            simulator, np.where(allowed, device, elsewhere)[problem.graph.colocation_group]
        )

    best = balanced_cuts(work_us)
    found = {tuple(best): schedule(best)}
    improved = True
    while improved and not search.limits.stop.is_set():
        improved = False
        for cuts in _shifted(best, len(work_us)):
            if tuple(cuts) in found:
                continue
            found[tuple(cuts)] = schedule(cuts)
            if goodness(problem, found[tuple(cuts)]) < goodness(problem, found[tuple(best)]):
                best, improved = cuts, True
    return Answer(found[tuple(best)])


def balanced_cuts(work_us: FloatArray) -> list[int]:
    """Cut a sequence of layers into one part for each device, with the least greatest load.

    Args:
        work_us: `[num_layers, num_parts]`, work of each layer on the device of each part.

    Returns:
        `num_parts - 1` cuts: part p holds layers `cuts[p - 1]` to `cuts[p]`, the latter excluded.
    """
    num_layers, num_parts = work_us.shape
    before = np.vstack((np.zeros(num_parts), np.cumsum(work_us, axis=0)))
    load = before[:, 0].copy()  # least greatest load of the first layers on the parts so far
    choice: list[IntArray] = []
    for part in range(1, num_parts):
        own = before[:, None, part] - before[None, :, part]  # [end, cut]
        worst = np.where(own >= 0, np.maximum(own, load[None, :]), np.inf)
        worst[np.triu_indices(num_layers + 1, 1)] = np.inf
        choice.append(worst.argmin(axis=1))
        load = worst.min(axis=1)
    cuts, end = [], num_layers
    for cut_for in reversed(choice):
        end = int(cut_for[end])
        cuts.append(end)
    return cuts[::-1]


def _shifted(cuts: list[int], num_layers: int) -> list[list[int]]:
    """Every way to move one cut by one layer."""
    rows = []
    for index in range(len(cuts)):
        for step in (-1, 1):
            row = cuts.copy()
            row[index] += step
            if 0 <= row[index] <= num_layers and row == sorted(row):
                rows.append(row)
    return rows
