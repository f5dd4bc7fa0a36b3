"""The interface of strategies: a strategy is called with a problem and a context."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Progress, RewardPoint
from pesto_cli.data.schedule import Placement
from pesto_cli.data.solution import Solution
from pesto_cli.data.split_start import SplitStart


@dataclass(frozen=True)
class Context:
    """The context of a strategy call. Parameters belong to the strategy and not to the context.

    warm_start: a placement to start from, or None.
    split_start: a plan and a placement of the ops that it makes, to start from, or None. Strategies
        that do not split ignore it.
    deviation: `[num_ops, num_devices]`, the standard deviation of the time of each op, divided by
        its mean; None if it is unknown. Robust searches use it.
    on_progress: called at the begin of each stage, and for each better schedule or bound.
    on_reward: called after each iteration of a policy that learns.
    """

    limits: Limits = field(default_factory=Limits)
    warm_start: Placement | None = None
    split_start: SplitStart | None = None
    deviation: FloatArray | None = None
    on_progress: Callable[[Progress], None] = lambda progress: None
    on_reward: Callable[[RewardPoint], None] = lambda point: None

    def deviation_of(self, problem: Problem) -> FloatArray:
        """Return the deviation of each op's time, `[num_ops, num_devices]`; 0 if it is unknown."""
        if self.deviation is None:
            return np.zeros((problem.num_ops, problem.num_devices))
        return self.deviation


class Strategy(Protocol):
    """A strategy returns a solution, which fits in memory if it finds any that does.

    Any callable of this form is a strategy. Those of pesto are frozen dataclasses whose fields are
    their parameters. Some attributes describe a strategy:

    is_search: it improves its solution until the limits end the search, and uses a warm start.
        Other strategies build one solution, and ignore the warm start and the number of workers.
    splits: it may split ops, if the problem has prices of parts.
    needs_parts: it splits ops, and is called only if the problem has prices of parts.
    rewrites: it may return a solution of another graph in any case.
    learns: it trains a policy by TensorFlow, and is called only by its name: a comparison of all
        strategies leaves it out.

    A strategy that may rewrite the graph is called even if no placement of the given graph can fit
    in memory.
    """

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Solve a problem."""


def is_search(strategy: Strategy) -> bool:
    """Return whether a strategy improves its solution until the limits end the search."""
    return bool(getattr(strategy, "is_search", False))


def may_rewrite(strategy: Strategy, problem: Problem) -> bool:
    """Return whether a strategy may return a solution of another graph than the given one."""
    return bool(getattr(strategy, "rewrites", False)) or (
        splits(strategy) and problem.parts is not None
    )


def splits(strategy: Strategy) -> bool:
    """Return whether a strategy may split ops, if the problem has prices of parts."""
    return bool(getattr(strategy, "splits", False))


def needs_parts(strategy: Strategy) -> bool:
    """Return whether a strategy can be used only for problems with prices of parts."""
    return bool(getattr(strategy, "needs_parts", False))


def learns(strategy: Strategy) -> bool:
    """Return whether a strategy trains a policy, and so is called only by its name."""
    return bool(getattr(strategy, "learns", False))


def parameters(strategy: Strategy) -> dict[str, Any]:
    """Return the parameters of a strategy; only dataclasses have parameters."""
    return asdict(strategy) if is_dataclass(strategy) and not isinstance(strategy, type) else {}


S = TypeVar("S", bound=Strategy)


def with_parameters(strategy: S, **values: Any) -> S:
    """Return the strategy with new parameter values; names that it does not have are ignored."""
    own = {name: value for name, value in values.items() if name in parameters(strategy)}
    return replace(strategy, **own) if own else strategy  # type: ignore[type-var]


def name_of(strategy: Strategy) -> str:
    """Return the name of a strategy in results: its `name`, or its function or type name."""
    named = getattr(strategy, "name", None) or getattr(strategy, "__name__", None)
    return str(named or type(strategy).__name__)
