"""`m-topo`: ops in topological order, device after device (Jeon et al., SoCC '20, Section 3.1).

Each device takes groups until it holds its share of the memory that all ops need, which is an equal
part plus the largest op; the next op then opens the next device. As in the program (`m_topo.py`), a
group is held against the share with its variables alone, and counts with all that its ops hold.

Departures: no share exceeds the memory of its device. A group that its turn's device cannot take,
by affinity, goes to the next that can, and what is left over at the end to where most room is. The
program assumes equal devices that are large enough, and gives up otherwise.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.strategies.baechi.answer import IsOver, Placed, best_fitting
from pesto_cli.strategies.baechi.memory import needs, plan_bytes
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph
from pesto_cli.strategies.baechi.settings import TOPO_RECIPE, Settings
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import accelerators


@dataclass(frozen=True)
class MTopo:
    """Fill one device after the other."""

    name: ClassVar[str] = "m-topo"
    settings: Settings = TOPO_RECIPE

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """The best attempt that fits."""
        return best_fitting(problem, self.settings, filled_in_turn, context.limits)


def filled_in_turn(
    problem: Problem, graph: PlacementGraph, settings: Settings, is_over: IsOver
) -> Placed:
    """Place every node, however long it takes: it looks at each once.

    m-TOPO has no times, hence no order of its own.
    """
    hands = accelerators(problem)
    need = needs(problem, graph)
    held = need.variables + need.outputs
    group_held = np.bincount(graph.group, held, minlength=graph.num_groups).astype(np.float64)
    limit = plan_bytes(problem, settings.memory_fraction)
    if settings.uniform:
        is_spread = graph.group_allowed[:, hands].any(axis=1)
        share = group_held[is_spread].sum() / len(hands) + held.max(initial=0.0)
        limit = np.minimum(limit, share)
    return Placed(_in_turn(graph, hands, need.group_variables, group_held, limit)[graph.group])


def _in_turn(
    graph: PlacementGraph,
    hands: list[int],
    variables: FloatArray,
    held: FloatArray,
    limit: FloatArray,
) -> IntArray:
    """`[num_groups]`: the device, from bytes of variables, of all, and the limit of each device."""
    device = np.full(graph.num_groups, -1, dtype=np.int64)
    used = np.zeros(len(limit))
    turn = 0
    for group in graph.group.tolist():
        if device[group] >= 0:
            continue
        allowed = graph.group_allowed[group]
        while turn < len(hands) and used[hands[turn]] + variables[group] >= limit[hands[turn]] > 0:
            turn += 1
        in_turn = [hand for hand in hands[turn:] if allowed[hand]]
        room = np.where(allowed, limit - used, -np.inf)
        device[group] = in_turn[0] if in_turn else int(room.argmax())
        used[device[group]] += held[group]
    return device
