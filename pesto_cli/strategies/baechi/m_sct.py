"""`m-sct`: earliest task first with favourite children (Jeon et al., SoCC '20, Section 3.3).

This is small communication times (Hanen and Munier, 1995) with limited memory. The linear program
of `favourites.py` chooses for each op a child that should follow it on its device, and
`earliest.py` keeps the device awake for this child. The linear program may take half of the time
limit. If it takes longer, as on graphs of more than about 50,000 ops, there are no favourite
children, and m-SCT is the same as m-ETF.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.strategies.baechi.earliest import earliest_first
from pesto_cli.strategies.baechi.favourites import favourite_children
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph
from pesto_cli.strategies.baechi.retries import IsOver, Placed, best_fitting
from pesto_cli.strategies.baechi.settings import RECIPE, Settings
from pesto_cli.strategies.context import Context


@dataclass(frozen=True)
class MSct:
    """Place by earliest start, with favourite children."""

    name: ClassVar[str] = "m-sct"
    settings: Settings = RECIPE

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Solve the linear program once for each graph, then place."""
        limits = context.limits
        half = replace(limits, time_limit_s=limits.time_limit_s / 2)
        favourites = cache(lambda graph: favourite_children(problem, graph, self.settings, half))

        def place(
            problem: Problem, graph: PlacementGraph, attempt: Settings, is_over: IsOver
        ) -> Placed:
            plan = earliest_first(problem, graph, attempt, favourites(graph), is_over)
            return Placed(plan.device, plan.start_us)

        return best_fitting(problem, self.settings, place, limits)
