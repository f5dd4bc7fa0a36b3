"""The contenders: all strategies, Baechi's placers in all settings, and variants of pesto."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import objective
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies import STRATEGIES, Context, Strategy
from pesto_cli.strategies.baechi import SETTINGS, MEtf, MSct, MTopo
from pesto_cli.strategies.context import is_search, learns, needs_parts
from pesto_cli.strategies.expert import Expert
from pesto_cli.strategies.os_dpos import OsDpos
from pesto_cli.strategies.pesto import Pesto
from pesto_cli.strategies.single import Single

PESTO = "pesto"
FROM_SINGLE = "pesto from single"
ILP_ALONE = "ILP alone"
WITHOUT_SPLITS = "os-dpos without splits"

SPLITTING = tuple(
    name for name, each in STRATEGIES.builtin.items() if name != PESTO and needs_parts(each)
)
"""The rivals that split ops."""
LEARNED = tuple(name for name, each in STRATEGIES.builtin.items() if learns(each))
"""The policies that learn."""
BASELINES = tuple(
    name
    for name, each in STRATEGIES.builtin.items()
    if name != PESTO and not needs_parts(each) and not learns(each)
)
_BAECHI: Mapping[str, type[MTopo | MEtf | MSct]] = {"m-topo": MTopo, "m-etf": MEtf, "m-sct": MSct}
BAECHI = tuple(_BAECHI)

TUNED: Mapping[str, tuple[str, ...]] = {
    placer: tuple(f"{placer}, {setting}" for setting in SETTINGS) for placer in _BAECHI
}
"""Baseline that is run in several settings -> its contenders, one for each setting."""


@dataclass(frozen=True)
class Contender:
    """A strategy in an experiment.

    strategy: if it has the parameters `num_nodes` and `congestion`, a job sets them.
    """

    strategy: Strategy

    @property
    def uses_time(self) -> bool:
        """Whether the solution depends on the limits.

        Searches continue until a limit ends them. Some rivals that split ops would take hours.
        """
        return is_search(self.strategy) or needs_parts(self.strategy)


@dataclass(frozen=True)
class PestoFromSingle(Pesto):
    """`pesto` that starts with all ops on one device, and not with a baseline's placement."""

    name: ClassVar[str] = FROM_SINGLE
    cheap_starts: bool = False

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Solve with the placement of `single` as warm start."""
        start = Single()(problem, context).schedule.placement
        return super().__call__(problem, replace(context, warm_start=start))


@dataclass(frozen=True)
class IlpAlone(Pesto):
    """The paper's Pesto: coarsen, solve the ILP and expand, without refinement."""

    name: ClassVar[str] = ILP_ALONE

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Solve the ILP with `single` and `expert` as warm starts.

        If the ILP finds no solution, return the better of these two.
        """
        starts = [place(problem, context).schedule for place in (Single(), Expert())]
        found = self.solve_coarsely(Simulator(problem), context.limits, starts)
        schedules = found.schedules or starts
        best = min(schedules, key=lambda schedule: objective(problem, schedule))
        return Solution.of(problem, best, found.lower_bound_us)


CONTENDERS: Mapping[str, Contender] = {
    **{name: Contender(STRATEGIES[name]) for name in (*BASELINES, *SPLITTING, *LEARNED)},
    **{
        f"{placer}, {setting}": Contender(placer_type(settings))
        for placer, placer_type in _BAECHI.items()
        for setting, settings in SETTINGS.items()
    },
    PESTO: Contender(STRATEGIES[PESTO]),
    FROM_SINGLE: Contender(PestoFromSingle()),
    ILP_ALONE: Contender(IlpAlone()),
    WITHOUT_SPLITS: Contender(OsDpos(splits_critical_ops=False)),
}
