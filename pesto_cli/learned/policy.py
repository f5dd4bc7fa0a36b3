"""A policy: its parameters, and the objective by which it learns. Each policy is a strategy.

To add a policy, add a file with a subclass, and a line in `strategies.STRATEGIES`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution

if TYPE_CHECKING:  # strategies import the policies
    from pesto_cli.strategies.context import Context


@dataclass(frozen=True)
class Policy(ABC):
    """Learn to place by sampled placements; return the best placement of all samples.

    weights: a file with the weights to start from, of `pesto train`; None: random ones.
    units: size of each layer of the network.
    num_placements: placements that are sampled in an iteration.
    num_steps: steps of gradient ascent in an iteration.
    learning_rate: of Adam.
    """

    is_search: ClassVar[bool] = True
    learns: ClassVar[bool] = True
    name: ClassVar[str]
    weights: str | None = None
    units: int = 32
    num_placements: int = 5
    num_steps: int = 10
    learning_rate: float = 1e-3

    @abstractmethod
    def objective(self, new: Any, old: Any, chosen: Any, advantage: Any) -> Any:
        """Return what a step of gradient ascent increases, as a tensor without dimensions.

        Args:
            new: log q'(. | s_n), `[num_super_ops, num_placements, num_devices]`.
            old: log q(. | s_n) before the iteration, of the same shape.
            chosen: 1 at the device of each super-op, otherwise 0, of the same shape.
            advantage: by how much each placement is better than the average, `[num_placements]`.
        """

    def __call__(self, problem: Problem, context: "Context") -> Solution:
        """Train on this problem within the limits, and return the best schedule.

        Raises:
            BadInputError: the file of weights cannot be used for this policy and machine.
        """
        from pesto_cli.learned.search import best_sample

        return best_sample(self, problem, context)
