"""`expert`: a placement as practitioners make it by hand (Pesto, Section 5.2, "Expert").

Each accelerator gets contiguous layers in forward order, balanced by work. Gradients, optimiser
slots and gradient sums are placed with their layer; the embedding is first, softmax and attention
are last. If most work is in layers with parallel branches, such as the cells of NASNet, a second
placement divides the branches of each layer evenly among the accelerators. The faster one is used.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pesto_cli.bounds.canonical import RESOLUTION, rounded
from pesto_cli.coarsen.layers import Layers
from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, objective, rounding_us
from pesto_cli.data.solution import Solution
from pesto_cli.strategies.balanced_cuts import balanced_cuts
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.layer_placer import LayerPlacer


@dataclass(frozen=True)
class Expert:
    """Layers over the accelerators, balanced by work.

    most_cuts: largest number of divisions into contiguous layers that are tried. There are tens of
        them on up to eight devices, and thousands on 64.
    """

    name: ClassVar[str] = "expert"
    most_cuts: int = 1000

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Start from the cuts that balance work best, and shift single cuts while this helps."""
        placer = LayerPlacer.of(problem)
        layers, schedule = placer.layers, placer.schedule
        work_us = placer.work_us

        def cut(cuts: list[int]) -> Schedule:
            return schedule(np.searchsorted(cuts, layers.of_group, side="right"))

        is_over = context.limits.begin()
        best = balanced_cuts(rounded(work_us))
        schedules, tried = [cut(best)], {tuple(best)}
        improved = True
        while improved:
            improved = False
            for cuts in _shifted(best, len(work_us)):
                if len(tried) == self.most_cuts or is_over():
                    break
                if tuple(cuts) in tried:
                    continue
                tried.add(tuple(cuts))
                shifted = cut(cuts)
                if _is_better(problem, shifted, schedules[0]):
                    best, schedules, improved = cuts, [shifted], True
        if _parallel_share(layers, placer.group_us) > 0.5:
            schedules.append(schedule(dealt_branches(layers, placer.group_us)))
        return Solution.of(
            problem, min(schedules, key=lambda schedule: objective(problem, schedule))
        )


def _is_better(problem: Problem, one: Schedule, other: Schedule) -> bool:
    """Return whether one schedule is better by more than rounding, which depends on op indices."""
    short, makespan_us = objective(problem, one)
    return (short, makespan_us + rounding_us(one)) < objective(problem, other)


def dealt_branches(layers: Layers, work_us: FloatArray) -> IntArray:
    """Divide each layer's branches evenly: longest first, to the part with the least of the layer.

    Args:
        layers: the layers of the graph.
        work_us: time of each group on the device of each part, `[num_groups, num_parts]`.

    Returns:
        The part of each group, `[num_groups]`.
    """
    layer, pair_of_group, pair_us = _branches(layers, work_us)
    part = np.zeros(len(layer), dtype=np.int64)
    load_us = np.zeros((len(layers.names), work_us.shape[1]))
    pair_us = rounded(pair_us)
    for pair in np.argsort(-pair_us.max(axis=1), kind="stable"):
        of_layer = load_us[layer[pair]]
        part[pair] = (of_layer + pair_us[pair]).argmin()
        of_layer[part[pair]] += pair_us[pair, part[pair]]
    return part[pair_of_group]


def _parallel_share(layers: Layers, work_us: FloatArray) -> float:
    """Return the share of work that is in parallel layers.

    A layer is parallel if no branch and no path of it takes more than 1 / num_parts of its work.
    """
    layer, _, pair_us = _branches(layers, work_us)
    least_us = pair_us.min(axis=1)
    of_layer_us = np.bincount(layer, least_us, len(layers.names))
    largest_us = np.zeros(len(layers.names))
    np.maximum.at(largest_us, layer, least_us)
    even = (1.0 + RESOLUTION) / work_us.shape[1]
    is_parallel = (largest_us <= even * of_layer_us) & (layers.longest_chain <= even)
    return float(of_layer_us[is_parallel].sum() / max(of_layer_us.sum(), np.finfo(float).tiny))


def _branches(layers: Layers, work_us: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Return for all pairs (layer, branch): their layer, the pair of each group, times by part."""
    pairs, pair_of_group = np.unique(
        np.stack((layers.of_group, layers.branch_of_group), axis=1), axis=0, return_inverse=True
    )
    pair_of_group = pair_of_group.reshape(-1)
    pair_us = np.zeros((len(pairs), work_us.shape[1]))
    np.add.at(pair_us, pair_of_group, work_us)
    return pairs[:, 0], pair_of_group, pair_us


def _shifted(cuts: list[int], num_layers: int) -> list[list[int]]:
    """Return all results of moving one cut by one layer."""
    rows = []
    for index in range(len(cuts)):
        for step in (-1, 1):
            row = cuts.copy()
            row[index] += step
            if 0 <= row[index] <= num_layers and row == sorted(row):
                rows.append(row)
    return rows
