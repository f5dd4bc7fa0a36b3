"""Who takes part: every strategy as it is, Baechi's placers in all settings, and pesto in parts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pesto_cli.data.schedule import objective
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies import STRATEGIES, Answer, Search, Strategy
from pesto_cli.strategies.baechi import SETTINGS, m_etf, m_sct, m_topo
from pesto_cli.strategies.expert import expert
from pesto_cli.strategies.pesto import pesto, solve_coarsely
from pesto_cli.strategies.single import single

PESTO = "pesto"
FROM_SINGLE = "pesto from single"
ILP_ALONE = "ILP alone"

RIVALS = tuple(name for name in STRATEGIES if name != PESTO)
_BAECHI: Mapping[str, Callable[..., Answer]] = {"m-topo": m_topo, "m-etf": m_etf, "m-sct": m_sct}
BAECHI = tuple(_BAECHI)

TUNED: Mapping[str, tuple[str, ...]] = {
    placer: tuple(f"{placer}, {setting}" for setting in SETTINGS) for placer in _BAECHI
}
"""The settings of a rival that is run in several, as names of contenders."""


@dataclass(frozen=True)
class Contender:
    """uses_time: it searches for as long as it may, so that its answer depends on the limit."""

    strategy: Strategy
    uses_time: bool = False


def pesto_from_single(simulator: Simulator, search: Search) -> Answer:
    """`pesto` that starts from one device, and from no rival's placement."""
    start = single(simulator, search).schedule.placement
    return pesto(simulator, replace(search, warm_start=start, cheap_starts=False))


def ilp_alone(simulator: Simulator, search: Search) -> Answer:
    """The paper's Pesto: coarsen, solve the ILP, expand, and no refinement.

    The ILP gets the starts that it gets in `pesto`. If it finds nothing, the best of these is left.
    """
    starts = [single(simulator, search).schedule, expert(simulator, search).schedule]
    found = solve_coarsely(simulator, search, search.limits, starts)
    schedules = found.schedules or starts
    best = min(schedules, key=lambda schedule: objective(simulator.problem, schedule))
    return Answer(best, found.lower_bound_us)


CONTENDERS: Mapping[str, Contender] = {
    **{name: Contender(STRATEGIES[name]) for name in RIVALS},
    **{
        f"{placer}, {setting}": Contender(partial(function, settings=settings))
        for placer, function in _BAECHI.items()
        for setting, settings in SETTINGS.items()
    },
    PESTO: Contender(STRATEGIES[PESTO], uses_time=True),
    FROM_SINGLE: Contender(pesto_from_single, uses_time=True),
    ILP_ALONE: Contender(ilp_alone, uses_time=True),
}
