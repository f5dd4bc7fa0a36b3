"""`m-sct`: earliest task first that keeps favourite children (Jeon et al., SoCC '20, Section 3.3).

Small communication times (Hanen and Munier, 1995) with memory: the linear program of
`favourites.py` names for each op a child that should follow it on its device, and `earliest.py`
keeps the device awake for it.
"""

from functools import cache

from pesto_cli.data.problem import Problem
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies.baechi.answer import Placed, best_fitting
from pesto_cli.strategies.baechi.earliest import earliest_first
from pesto_cli.strategies.baechi.favourites import favourite_children
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph
from pesto_cli.strategies.baechi.settings import RECIPE, Settings
from pesto_cli.strategies.search import Answer, Search


def m_sct(simulator: Simulator, search: Search, settings: Settings = RECIPE) -> Answer:
    """Solve the linear program once for each graph, then place."""
    favourites = cache(lambda graph: favourite_children(simulator.problem, graph, settings))

    def place(problem: Problem, graph: PlacementGraph, attempt: Settings) -> Placed:
        plan = earliest_first(problem, graph, attempt, favourites(graph))
        return Placed(plan.device, plan.start_us)

    return best_fitting(simulator, settings, place)
