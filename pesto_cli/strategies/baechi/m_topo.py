"""`m-topo`: ops in topological order, device after device (Jeon et al., SoCC '20, Section 3.1).

A device gets groups until its share of memory is full, and then the next device is used. The share
is an equal part of the memory that all ops need, plus the largest op. As in the authors' program
(`m_topo.py`), the test whether a group still fits counts only its variables, but a placed group
counts with all memory of its ops.

Differences: no share exceeds the memory of its device. If a group may not run on the current
device, it goes to the next device where it may run. Groups that remain after the last device go to
the device with the most free memory. The authors' program assumes equal devices that are large
enough, and fails otherwise.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.strategies.baechi.memory import needs, plan_bytes
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph
from pesto_cli.strategies.baechi.retries import IsOver, Placed, best_fitting
from pesto_cli.strategies.baechi.settings import TOPO_RECIPE, Settings
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import accelerators


@dataclass(frozen=True)
class MTopo:
    """Fill one device after the other."""

    name: ClassVar[str] = "m-topo"
    settings: Settings = TOPO_RECIPE

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Return the first attempt that fits in memory, or else the best one."""
        return best_fitting(problem, self.settings, filled_in_turn, context.limits)


def filled_in_turn(
    problem: Problem, graph: PlacementGraph, settings: Settings, is_over: IsOver
) -> Placed:
    """Place all nodes in one pass, which is fast enough to ignore the time limit.

    m-TOPO computes no times, so it has no order of its own.
    """
    candidates = accelerators(problem)
    need = needs(problem, graph)
    held = need.variables + need.outputs
    group_held = np.bincount(graph.group, held, minlength=graph.num_groups).astype(np.float64)
    limit = plan_bytes(problem, settings.memory_fraction)
    if settings.uniform:
        is_spread = graph.group_allowed[:, candidates].any(axis=1)
        share = group_held[is_spread].sum() / len(candidates) + held.max(initial=0.0)
        limit = np.minimum(limit, share)
    return Placed(_in_turn(graph, candidates, need.group_variables, group_held, limit)[graph.group])


def _in_turn(
    graph: PlacementGraph,
    candidates: list[int],
    variables: FloatArray,
    held: FloatArray,
    limit: FloatArray,
) -> IntArray:
    """Return the device of each group, `[num_groups]`.

    Args:
        graph: the placement graph.
        candidates: the devices, in the order in which they are filled.
        variables: bytes of each group's variables, `[num_groups]`.
        held: bytes of all that each group holds, `[num_groups]`.
        limit: bytes that each device may hold, `[num_devices]`.
    """
    device = np.full(graph.num_groups, -1, dtype=np.int64)
    used = np.zeros(len(limit))
    turn = 0
    for group in graph.group.tolist():
        if device[group] >= 0:
            continue
        allowed = graph.group_allowed[group]
        while (
            turn < len(candidates)
            and used[candidates[turn]] + variables[group] >= limit[candidates[turn]] > 0
        ):
            turn += 1
        in_turn = [candidate for candidate in candidates[turn:] if allowed[candidate]]
        room = np.where(allowed, limit - used, -np.inf)
        device[group] = in_turn[0] if in_turn else int(room.argmax())
        used[device[group]] += held[group]
    return device
