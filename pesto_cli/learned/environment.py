"""The environment of a policy: actions in, a simulated solution out."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pesto_cli.data.columns import BoolArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.learned.network import FORBIDDEN


@dataclass(frozen=True, eq=False)
class Environment(ABC):
    """A problem as the decisions of a policy.

    inputs: those of the policy's network; the last one is what is added to the logits,
        `[num_decisions, num_actions]`.
    notes: what the policy cannot decide, and why.
    """

    problem: Problem
    inputs: tuple[NDArray[Any], ...]
    notes: tuple[str, ...]

    @property
    def num_decisions(self) -> int:
        """The number of decisions in a placement; 0 if there is no choice."""
        return len(self.inputs[-1])

    @property
    def num_actions(self) -> int:
        """The number of actions of a decision."""
        return int(self.inputs[-1].shape[1])

    @property
    def allowed(self) -> BoolArray:
        """Whether a decision may take an action, `[num_decisions, num_actions]`."""
        allowed: BoolArray = self.inputs[-1] > FORBIDDEN / 2
        return allowed

    def uniform(self) -> IntArray:
        """Return the placements with one action for all decisions, `[num_rows, num_decisions]`.

        There is a row for each action that all decisions may take.
        """
        actions = np.flatnonzero(self.allowed.all(axis=0))
        return np.repeat(actions[:, None], self.num_decisions, axis=1)

    def can_take(self, actions: Sequence[int]) -> bool:
        """Return whether there is one action for each decision, and all are allowed."""
        fits = len(actions) == self.num_decisions
        if not fits or min(actions) < 0 or max(actions) >= self.num_actions:
            return False
        return bool(self.allowed[np.arange(len(actions)), list(actions)].all())

    @abstractmethod
    def solution(self, chosen: IntArray) -> Solution:
        """Return the solution that actions lead to, `[num_decisions]`."""

    def solutions(self, chosen: IntArray, pool: ThreadPoolExecutor) -> Sequence[Solution]:
        """Return the solution of each row of actions, `[num_placements, num_decisions]`."""
        return list(pool.map(self.solution, chosen))
