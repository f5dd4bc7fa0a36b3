"""`expert`: what a practitioner does by hand (Pesto, Section 5.2, "Expert").

By layers: contiguous layers in forward order over the accelerators, balanced by work; gradients,
optimiser slots and gradient sums with their layer; the embedding first, softmax and attention last.
Where most work is in layers with parallel branches, as in the cells of NASNet: the branches of each
layer divided evenly among the accelerators, if that is faster.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pesto_cli.data.canonical import RESOLUTION, rounded
from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, objective, rounding_us
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import accelerators, fastest_device, group_time_us
from pesto_cli.strategies.layers import Layers, layers_of_groups
from pesto_cli.strategies.order import ordered


@dataclass(frozen=True)
class Expert:
    """Layers over the accelerators, balanced by work.

    most_cuts: ways to cut that are tried: there are some tens on up to eight devices, and
        thousands on 64.
    """

    name: ClassVar[str] = "expert"
    most_cuts: int = 1000

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Start from the cuts that balance work best, and shift them while that helps."""
        simulator = Simulator(problem)
        layers = layers_of_groups(problem.graph, problem.min_duration_us)
        hands, elsewhere = accelerators(problem), fastest_device(problem)
        group_us = group_time_us(problem)
        movable = np.isfinite(group_us[:, hands]).any(axis=1)
        finite = np.where(np.isfinite(group_us[:, hands]), group_us[:, hands], 0.0)
        work_us = np.zeros((len(layers.names), len(hands)))
        np.add.at(work_us, layers.of_group[movable], finite[movable])

        def schedule(part: IntArray) -> Schedule:
            device = np.array(hands)[part]
            allowed = problem.group_allowed[np.arange(len(device)), device]
            return ordered(
                simulator, np.where(allowed, device, elsewhere)[problem.graph.colocation_group]
            )

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
        if _parallel_share(layers, finite) > 0.5:
            schedules.append(schedule(dealt_branches(layers, finite)))
        return Solution.of(
            problem, min(schedules, key=lambda schedule: objective(problem, schedule))
        )


def _is_better(problem: Problem, one: Schedule, other: Schedule) -> bool:
    """By more than rounding, which may be another if ops are numbered otherwise."""
    short, makespan_us = objective(problem, one)
    return (short, makespan_us + rounding_us(one)) < objective(problem, other)


def dealt_branches(layers: Layers, work_us: FloatArray) -> IntArray:
    """Divide each layer's branches evenly: longest first, to the part with the least of the layer.

    Args:
        layers: of the graph.
        work_us: `[num_groups, num_parts]`, time of each group on the device of each part.

    Returns:
        `[num_groups]`, the part of each.
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
    """The share of work in layers of which no branch and no path is longer than an even part."""
    layer, _, pair_us = _branches(layers, work_us)
    least_us = pair_us.min(axis=1)
    of_layer_us = np.bincount(layer, least_us, len(layers.names))
    largest_us = np.zeros(len(layers.names))
    np.maximum.at(largest_us, layer, least_us)
    even = (1.0 + RESOLUTION) / work_us.shape[1]
    is_parallel = (largest_us <= even * of_layer_us) & (layers.longest_chain <= even)
    return float(of_layer_us[is_parallel].sum() / max(of_layer_us.sum(), np.finfo(float).tiny))


def _branches(layers: Layers, work_us: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Every pair of a layer and a branch: the layer, the pair of each group, times by part."""
    pairs, pair_of_group = np.unique(
        np.stack((layers.of_group, layers.branch_of_group), axis=1), axis=0, return_inverse=True
    )
    pair_of_group = pair_of_group.reshape(-1)
    pair_us = np.zeros((len(pairs), work_us.shape[1]))
    np.add.at(pair_us, pair_of_group, work_us)
    return pairs[:, 0], pair_of_group, pair_us


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
        cut = _best_cuts(before[:, part], load)
        choice.append(cut)
        load = np.maximum(before[:, part] - before[cut, part], load[cut])
    cuts, end = [], num_layers
    for cut_for in reversed(choice):
        end = int(cut_for[end])
        cuts.append(end)
    return cuts[::-1]


def _best_cuts(before: FloatArray, load: FloatArray) -> IntArray:
    """`[num_layers + 1]`: for every end, the first cut with the least greatest load up to there.

    The later the cut, the less has the last part and the more have those before it. So the best
    cut is the first one where these have more, or the one before it; of cuts as good, the first.

    Args:
        before: `[num_layers + 1]`, work of the layers before each on the device of the last part.
        load: `[num_layers + 1]`, the least greatest load of the parts before.
    """
    end = np.arange(len(before))
    crossing = _first(end, lambda cut: load[cut] >= before - before[cut])
    sooner = np.maximum(crossing - 1, 0)
    own = before - before[sooner]
    as_good = _first(crossing, lambda cut: before - before[cut] <= own)
    best: IntArray = np.where((crossing > 0) & (own <= load[crossing]), as_good, crossing)
    return best


def _first(last: IntArray, holds: Callable[[IntArray], BoolArray]) -> IntArray:
    """By bisection, the first index at which something holds from there on to `last`, for each."""
    low, high = np.zeros_like(last), last.copy()
    while (low < high).any():
        middle = (low + high) >> 1
        held = holds(middle)
        low, high = np.where(held, low, np.minimum(middle + 1, high)), np.where(held, middle, high)
    return low


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
