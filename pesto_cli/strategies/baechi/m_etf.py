"""`m-etf`: the op that can start earliest, where it can (Jeon et al., SoCC '20, Section 3.2).

Earliest task first (Hwang et al., SIAM J. Comput. 1989) with memory and communication in sequence:
see `earliest.py`. Departure: on devices of unequal speed, an op that may start at once on several
goes to that which runs it fastest; on equal ones to the first, as in the program.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.strategies.baechi.answer import IsOver, Placed, best_fitting
from pesto_cli.strategies.baechi.columns import NONE
from pesto_cli.strategies.baechi.earliest import earliest_first
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph
from pesto_cli.strategies.baechi.settings import RECIPE, Settings
from pesto_cli.strategies.context import Context


@dataclass(frozen=True)
class MEtf:
    """Place by earliest start."""

    name: ClassVar[str] = "m-etf"
    settings: Settings = RECIPE

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """The best attempt that fits."""
        return best_fitting(problem, self.settings, _place, context.limits)


def _place(problem: Problem, graph: PlacementGraph, settings: Settings, is_over: IsOver) -> Placed:
    nobody = np.full(graph.num_nodes, NONE, dtype=np.int64)
    plan = earliest_first(problem, graph, settings, nobody, is_over)
    return Placed(plan.device, plan.start_us)
