"""How much a tuning may use, and how it is shared between searches and steps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from pesto_cli.runtime.interleaved import Turns
from pesto_cli.tuning.clock import Clock

# Few steps in a row give many turns, and so narrow intervals of speed-ups.
STEPS_IN_A_ROW, MOST_STEPS = 2, 60
# A round has at most so many candidates: 3 simple ones, and 3 others.
MOST_CANDIDATES = 6


class Budget(Protocol):
    """The limit of a tuning, in a unit of its own."""

    @property
    def search_s(self) -> float:
        """Seconds for the searches of a round."""

    @property
    def spent(self) -> float:
        """What was used until now."""

    def has_room(self, round_cost: float) -> bool:
        """Return whether one more round and the final round fit.

        round_cost: what the last round used; 0 if there was none.
        """

    def turns(self, predicted_us: Sequence[float], *, is_final: bool = False) -> Turns:
        """Return how candidates run in a round.

        predicted_us: `[num_candidates]`, the predictions for their steps.
        """

    def count(self, num_steps: int) -> None:
        """Count steps that are about to run."""


@dataclass(frozen=True)
class TimeBudget:
    """A time limit for everything. The final round gets all the time that is left."""

    # Shares of the limit: for the searches and the steps of one round, and for the final round.
    search_share: ClassVar[float] = 0.12
    steps_share: ClassVar[float] = 0.08
    final_share: ClassVar[float] = 0.15
    least: ClassVar[Turns] = Turns(12, 3, 3, STEPS_IN_A_ROW)
    clock: Clock

    @property
    def search_s(self) -> float:
        """Seconds for the searches of a round."""
        return self.search_share * self.clock.limit_s

    @property
    def spent(self) -> float:
        """Seconds until now."""
        return self.clock.spent_s

    def has_room(self, round_cost: float) -> bool:
        """Return whether one more round and the final round fit."""
        return self.clock.left_s > self.final_share * self.clock.limit_s + round_cost

    def turns(self, predicted_us: Sequence[float], *, is_final: bool = False) -> Turns:
        """Return how candidates run in a round. A traced step takes about two steps."""
        share_s = self.steps_share * self.clock.limit_s
        if is_final:
            share_s = max(self.final_share * self.clock.limit_s, self.clock.left_s)
        of_each = share_s * 1e6 / max(sum(predicted_us), 1.0)
        return _turns(self.least, of_each - self.least.num_traced)

    def count(self, num_steps: int) -> None:
        """Count nothing: the clock runs."""


@dataclass
class StepBudget:
    """A number of steps of a training. The final round gets all the steps that are left.

    num_steps: at least `fewest`, so that one round and the final round fit.
    """

    round_share: ClassVar[float] = 0.25
    least: ClassVar[Turns] = Turns(4, 1, 1, STEPS_IN_A_ROW)
    fewest: ClassVar[int] = 2 * MOST_CANDIDATES * least.num_all
    num_steps: int
    search_s: float
    spent: float = 0.0

    def has_room(self, round_cost: float) -> bool:
        """Return whether one more round and the final round fit."""
        return self.num_steps - self.spent >= self.fewest / 2 + round_cost

    def turns(self, predicted_us: Sequence[float], *, is_final: bool = False) -> Turns:
        """Return how candidates run in a round."""
        share = self.num_steps - self.spent if is_final else self.round_share * self.num_steps
        return _turns(self.least, share / len(predicted_us))

    def count(self, num_steps: int) -> None:
        """Count steps that are about to run."""
        self.spent += num_steps


def _turns(least: Turns, of_each: float) -> Turns:
    """Return turns with about so many steps of each candidate, untimed steps included."""
    timed = int(of_each - least.num_warm_up - least.num_traced) // STEPS_IN_A_ROW * STEPS_IN_A_ROW
    return replace(least, num_steps=int(np.clip(timed, least.num_steps, MOST_STEPS)))
