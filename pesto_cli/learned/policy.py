"""A policy: its parameters, and the objective by which it learns. Each policy is a strategy.

To add a policy, add a file with a subclass, and a line in `strategies.STRATEGIES`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from pesto_cli.data.columns import FloatArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution

if TYPE_CHECKING:  # strategies import the policies
    from pesto_cli.learned.environment import Environment
    from pesto_cli.learned.network import Array, Network
    from pesto_cli.learned.trials import Trials
    from pesto_cli.strategies.context import Context

# The upper limit of sizes and counts among the settings. A file of weights contains settings, too,
# and with larger ones, it could fill the memory or make an iteration endless.
MOST = 10_000


@dataclass(frozen=True)
class Policy(ABC):
    """Learn to place by sampled placements; return the best placement of all samples.

    weights: a file with the weights to start from, of `pesto train`; None: random ones.
    units: size of each layer of the network.
    num_placements: placements that are sampled in an iteration.
    num_steps: steps of gradient ascent in an iteration.
    learning_rate: of Adam.
    out_of_memory_factor: the step time of a placement that does not fit in memory counts so many
        times.
    new_share: the share of the new trials in the moving average of the rewards, at least; with 0,
        all trials count alike.
    num_kept: how many of the best placements are kept, to learn from them again. With 1 or more,
        the first ones of a graph have the same action for all decisions.
    with_most_probable: whether an iteration also times the most probable placement. It counts in
        the average, and the policy does not learn from it.
    random_share: the share of sampled placements in which a random number of decisions have random
        actions.
    prior: the probability that the policy first gives to the action that is best if all decisions
        take it. A search does this if that placement is better than the most probable one, and a
        training before its first iteration. With 0, these placements are not tried.
    """

    is_search: ClassVar[bool] = True
    learns: ClassVar[bool] = True
    name: ClassVar[str]
    weights: str | None = None
    units: int = 32
    num_placements: int = 5
    num_steps: int = 10
    learning_rate: float = 1e-3
    out_of_memory_factor: float = 10.0
    new_share: float = 0.1
    num_kept: int = 0
    with_most_probable: bool = False
    random_share: float = 0.0
    prior: float = 0.0

    def __post_init__(self) -> None:
        wrong = [
            f"{each.name} is {value}"
            for each in fields(self)
            if isinstance(each.default, int | float)
            for value in [getattr(self, each.name)]
            if not 0 <= value < math.inf
            or (isinstance(each.default, int) and (value != int(value) or value > MOST))
        ]
        counts = ("units", "num_placements", "num_steps")
        wrong += [f"{name} is 0" for name in counts if not getattr(self, name)]
        wrong += [f"prior is {self.prior}"] if 1 <= self.prior < math.inf else []
        if wrong:
            raise ValueError(
                f"{', '.join(wrong)}; finite numbers of 0 or more were expected, whole numbers up "
                f"to {MOST:,} for sizes and counts, 1 or more for {', '.join(counts)}, and less "
                "than 1 for prior"
            )

    @property
    def num_timed(self) -> int:
        """The number of placements that are timed in an iteration."""
        return self.num_placements + self.with_most_probable

    @property
    @abstractmethod
    def network(self) -> "Network":
        """The network that is trained."""

    @abstractmethod
    def environment(self, problem: Problem) -> "Environment":
        """Return what the policy decides about a problem."""

    @abstractmethod
    def objective(self, new: Any, old: Any, chosen: Any, advantage: Any) -> Any:
        """Return what a step of gradient ascent increases, as a tensor without dimensions.

        Args:
            new: log q'(. | s_n), `[num_decisions, num_placements, num_actions]`.
            old: log q(. | s_n) before the iteration, of the same shape.
            chosen: 1 at the action of each decision, otherwise 0, of the same shape.
            advantage: by how much each placement is better than the average, `[num_placements]`.
        """

    def at(self, trials: "Trials") -> Self:
        """Return the policy with the parameters for the next steps on a graph."""
        return self

    def costs_us(self, solutions: Sequence[Solution]) -> FloatArray:
        """Return the simulated step times that count, in us, `[num_placements]`."""
        return np.array(
            [
                makespan_us * (self.out_of_memory_factor if short_bytes else 1.0)
                for short_bytes, makespan_us in (each.objective for each in solutions)
            ]
        )

    def reward(self, costs_us: FloatArray) -> FloatArray:
        """Return the rewards of placements, by their step times in us, `[num_placements]`."""
        return -costs_us

    def extended(self, trials: "Trials", costs_us: FloatArray) -> "Trials":
        """Return the trials of a graph with the step times of new ones, `[num_placements]`."""
        return trials.extended(self.reward(costs_us), float(costs_us.min()), self.new_share)

    def unit(self, trials: "Trials") -> float:
        """Return the unit in which rewards count."""
        return trials.unit

    def advantage(self, trials: "Trials", costs_us: FloatArray) -> "Array":
        """Return by how much placements are better than the average, `[num_placements]`."""
        gain = self.reward(costs_us) - trials.mean
        return (gain / self.unit(trials)).astype(np.float32)

    def __call__(self, problem: Problem, context: "Context") -> Solution:
        """Train on this problem within the limits, and return the best schedule.

        Raises:
            BadInputError: the file of weights cannot be used for this policy and machine.
        """
        from pesto_cli.learned.search import best_sample

        return best_sample(self, problem, context)


@dataclass(frozen=True)
class SequencePolicy(Policy):
    """Place one super-op after the other, by a sequence-to-sequence network, without a prior."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prior:
            raise ValueError(f"prior is {self.prior}; 0 was expected, because only heterog has one")

    @property
    def network(self) -> "Network":
        """The network of Spotlight."""
        from pesto_cli.learned.sequence import SequenceNetwork

        return SequenceNetwork(self.units)

    def environment(self, problem: Problem) -> "Environment":
        """Return the super-ops of a problem, by the scopes of their names."""
        from pesto_cli.learned.placements import Placements

        return Placements.of(problem)
