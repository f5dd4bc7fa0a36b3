"""What a strategy is given: a problem and the context of the call."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from typing import Any, Protocol, TypeVar

from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Progress
from pesto_cli.data.schedule import Placement
from pesto_cli.data.solution import Solution


@dataclass(frozen=True)
class Context:
    """What a call of a strategy has beside the problem; parameters are the strategy's own.

    warm_start: a placement to start from.
    on_progress: called at each stage, better schedule and higher bound.
    """

    limits: Limits = field(default_factory=Limits)
    warm_start: Placement | None = None
    on_progress: Callable[[Progress], None] = lambda progress: None


class Strategy(Protocol):
    """Finds a solution; one that exceeds the memory only if it finds none that fits.

    Any callable of this form is a strategy. Those of pesto are frozen dataclasses whose fields are
    their parameters. One that has a true attribute `is_search` improves its solution until the
    limits end it, and starts from a warm start; others build one solution, and heed neither a warm
    start nor the number of workers. One that has a true attribute `rewrites` may answer with
    another graph: it is asked even where no placement of the graph as it is can fit into memory.
    """

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Solve a problem."""


def is_search(strategy: Strategy) -> bool:
    """Whether a strategy improves its solution until the limits end it."""
    return bool(getattr(strategy, "is_search", False))


def rewrites(strategy: Strategy) -> bool:
    """Whether a strategy may answer with another graph than it was given."""
    return bool(getattr(strategy, "rewrites", False))


def parameters(strategy: Strategy) -> dict[str, Any]:
    """Return the parameters of a strategy that is a dataclass, and none of any other."""
    return asdict(strategy) if is_dataclass(strategy) and not isinstance(strategy, type) else {}


S = TypeVar("S", bound=Strategy)


def with_parameters(strategy: S, **values: Any) -> S:
    """Return the strategy with other values of those parameters that it has."""
    own = {name: value for name, value in values.items() if name in parameters(strategy)}
    return replace(strategy, **own) if own else strategy  # type: ignore[type-var]


def name_of(strategy: Strategy) -> str:
    """Return what a strategy is called in results: its `name`, or that of its function or type."""
    named = getattr(strategy, "name", None) or getattr(strategy, "__name__", None)
    return str(named or type(strategy).__name__)
