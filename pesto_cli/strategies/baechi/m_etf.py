"""`m-etf`: schedule the op with the earliest start next (Jeon et al., SoCC '20, Section 3.2).

This is earliest task first (Hwang et al., SIAM J. Comput. 1989) with limited memory and sequential
communication: see `earliest.py`. One difference: if an op can start at the same time on several
devices of unequal speed, it goes to the fastest; on equal devices to the first, as in the authors'
program.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.strategies.baechi.columns import NONE
from pesto_cli.strategies.baechi.earliest import earliest_first
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph
from pesto_cli.strategies.baechi.retries import IsOver, Placed, best_fitting
from pesto_cli.strategies.baechi.settings import RECIPE, Settings
from pesto_cli.strategies.context import Context


@dataclass(frozen=True)
class MEtf:
    """Place by earliest start."""

    name: ClassVar[str] = "m-etf"
    settings: Settings = RECIPE

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Return the first attempt that fits in memory, or else the best one."""
        return best_fitting(problem, self.settings, _place, context.limits)


def _place(problem: Problem, graph: PlacementGraph, settings: Settings, is_over: IsOver) -> Placed:
    no_favourites = np.full(graph.num_nodes, NONE, dtype=np.int64)
    plan = earliest_first(problem, graph, settings, no_favourites, is_over)
    return Placed(plan.device, plan.start_us)
