"""What every strategy is given, and what it answers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pesto_cli.data.limits import Limits
from pesto_cli.data.result import Progress
from pesto_cli.data.schedule import Placement, Schedule
from pesto_cli.evaluation.simulator import Simulator


@dataclass(frozen=True)
class Search:
    """Parameters of a search.

    solver: a name in `ilp.SOLVERS`. num_nodes: size of the coarse graph.
    congestion, balance: as `ilp.solve_ilp` takes them.
    warm_start: a placement to start from. It is left out where the best of
        the other starts is faster.
    cheap_starts: start from what cheap strategies find; without a warm start, always.
    on_progress: called at each stage, better schedule and higher bound.
    """

    limits: Limits = field(default_factory=Limits)
    solver: str = "cpsat"
    num_nodes: int = 200
    congestion: bool = True
    balance: float | None = None
    warm_start: Placement | None = None
    cheap_starts: bool = True
    on_progress: Callable[[Progress], None] = lambda progress: None


@dataclass(frozen=True, eq=False)
class Answer:
    """A schedule, and a bound that the strategy proved for the full graph, 0 if none.

    notes: what of the strategy was left out, a sentence each.
    """

    schedule: Schedule
    lower_bound_us: float = 0.0
    notes: tuple[str, ...] = ()


class Strategy(Protocol):
    """Finds a schedule; one that exceeds the memory only if it finds none that fits."""

    def __call__(self, simulator: Simulator, search: Search) -> Answer:
        """Solve `simulator.problem`."""
